"""The tree of a source as a read-only fsspec file system: `fsspec.filesystem("fsbridge", source=..., layout="files")`.

Also `fsspec.open("fsbridge://PATH", source=...)`, `fsspec.open("fsbridge://SOURCE//PATH")`, and chained URLs as
`fsbridge://PATH::s3://BUCKET/STORE`, where PATH may be empty. Paths are those below a mount's root; errors are the mount's,
as OSErrors. Not here: the tree (`__init__.py`), what a forked process does (`threads/forking.py`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, ClassVar, NoReturn

from fsspec import AbstractFileSystem
from fsspec.spec import AbstractBufferedFile
from fsspec.utils import stringify_path

from fsbridge.config import Config, Remote, parse_place
from fsbridge.errors import FsbridgeError
from fsbridge.store.remote.urls import is_url, local_path, parse_url
from fsbridge.tree import Attrs
from fsbridge.unmounted import VirtualTree, close_unused, decode, split

SCHEMES = {
    "file": "",
    "local": "",
    "s3": "s3://",
    "s3a": "s3://",
    "gs": "gs://",
    "gcs": "gs://",
    "az": "az://",
    "abfs": "az://",
}
"""Prefix of a path in a chained URL, by fsspec's protocol; `http` and `https` give whole URLs."""

BLOCK = 1 << 20
"""Bytes that an open file reads ahead at a time, unless the caller says otherwise."""

REMOTE_OPTIONS = frozenset(Remote.__dataclass_fields__)
_OF_A_MOUNT = frozenset(
    {
        *("mountpoint", "allow_other", "uid", "gid", "umask", "nonempty", "force", "kernel_options", "environment"),
        *("foreground", "log_file", "log_level", "log_format", "access_log", "loop_limit", "xattrs", "read_ahead"),
    }
)
PLAIN_OPTIONS = frozenset(Config.__dataclass_fields__) - _OF_A_MOUNT - {"remote"}
"""Options of object storage, and the other ones."""

_FSSPEC = frozenset({"use_listings_cache", "listings_expiry_time", "max_paths", "asynchronous", "loop", "batch_size"})
"""Options that fsspec passes to any file system."""


class _Named(type(AbstractFileSystem)):  # type: ignore[misc]  # fsspec has no types
    """Makes the source's path absolute. fsspec then looks for an instance by the absolute path, and pickles that.

    A relative path is another source when the program, or the one that unpickles, runs in another folder.
    """

    def __call__(cls, *args: Any, **options: Any) -> Any:
        if args:
            args = (_normal(args[0]), *args[1:])
        elif "source" in options:
            options["source"] = _normal(options["source"])
        return super().__call__(*args, **options)


class FsbridgeFileSystem(AbstractFileSystem, metaclass=_Named):  # type: ignore[misc]
    """One source, opened in this process. Thread-safe; pickled, or in a forked process, it opens the source again.

    Options, which mean what those of `fsbridge mount` mean:

    - `source`: a path or URL.
    - `layout`: `zarr3` (default), `zarr2`, `n5`, `files`, or several as `zarr3,files`; `files`: file types that are listed.
    - `format`: of the source, if it is not to be detected.
    - `inside`: names that lead to the group or array that is shown; `include`, `exclude`: patterns of paths in it.
    - `chunk_separator`, `consolidated`: of the layout `zarr2`.
    - `cache_size`: bytes of memory for decoded chunks; `spill_dir`, `spill_size`: a folder for more, and its bytes.
    - `immutable`: the source never changes; `metadata_ttl`: seconds for which a server's answers hold; `verify`: compare
      digests of Hangar samples.
    - `metadata_deadline`, `read_deadline`: seconds to wait for a store; `limits`: of what a store may contain, a
      `fsbridge.config.Limits`.
    - `allow_external`: folders that links may lead to; `hdf5_plugins`: folders of filters for HDF5.
    - `anonymous`, `profile`, `region`, `endpoint`, `allow_http`, `absent_403`, `block_cache`, `block_cache_size`,
      `listing_ttl`: of object storage.

    fsspec keeps one instance for the same options until `close`.
    """

    protocol: ClassVar[str] = "fsbridge"
    root_marker: ClassVar[str] = ""

    def __init__(
        self,
        source: str | os.PathLike[str] | None = None,
        layout: str | None = None,
        fo: str | None = None,
        target_protocol: str | None = None,
        target_options: Mapping[str, Any] | None = None,
        files: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        """`options`: fields of `Config` (`format`, `cache_size`, ...) and of `Remote` (`anonymous`, `endpoint`, ...).

        `fo` and `target_...` come from a chained URL.
        """
        super().__init__(**options)
        _refuse_unknown("fsbridge", options, REMOTE_OPTIONS | PLAIN_OPTIONS | _FSSPEC)
        remote = {name: value for name, value in options.items() if name in REMOTE_OPTIONS} | _access(target_options or {})
        plain = {name: value for name, value in options.items() if name in PLAIN_OPTIONS}
        if source is not None and fo is not None:
            raise ValueError(f"two sources are named, {source!r} and {fo!r}: leave one out")
        named = _normal(_chained(fo, target_protocol) if source is None else source)
        if not named:
            raise ValueError("the source is empty: name one, as in fsspec.filesystem('fsbridge', source='brain.n5')")
        if files is not None:
            plain["files"] = tuple(files)
        plain |= {name: tuple(plain[name]) for name in ("inside", "include", "exclude") if name in plain}
        config = Config(
            source=named,
            mountpoint="",
            layout=layout or ("zarr3" if files is None else "files"),
            remote=Remote(**remote),
            **plain,
        )
        self._tree: VirtualTree | None = VirtualTree(config)
        close_unused(self, self._tree.close)

    @property
    def tree(self) -> VirtualTree:
        """The tree of the source. Raises ValueError once it is closed."""
        if self._tree is None:
            raise ValueError("this file system has been closed")
        return self._tree

    def close(self) -> None:
        """Close the source, and have fsspec forget this file system. Files of it that are open cannot be read any more."""
        known = type(self)._cache
        for token in [token for token, other in list(known.items()) if other is self]:
            known.pop(token, None)
        if self._tree is not None:
            self._tree.close()
            self._tree = None

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = stringify_path(path)
        if text.startswith("fsbridge://"):
            text = parse_place(text.removeprefix("fsbridge://"))[1] if "//" in text[11:] else text[11:]
        return "/".join(map(decode, split(text)))

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        place = path.removeprefix("fsbridge://")
        source, _ = parse_place(place)
        return {"source": source} if source != place else {}

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        """Return the members of a directory, or a file itself."""
        path = self._strip_protocol(path)
        with _errors(path):
            attrs = self.tree.stat(path)
            if attrs.kind == "directory":
                members = [(f"{path}/{name}" if path else name, attrs) for name, attrs, _ in self.tree.list(path)]
            else:
                members = [(path, attrs)]
            return [self._described(*one) for one in members] if detail else [name for name, _ in members]

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Return type, size and time of what is at a path."""
        path = self._strip_protocol(path)
        with _errors(path):
            return self._described(path, self.tree.stat(path, follow=False))

    def _described(self, path: str, attrs: Attrs) -> dict[str, Any]:
        link = attrs.kind == "link"
        if link:
            try:
                attrs = self.tree.stat(path)
            except (FsbridgeError, OSError):
                return {"name": path, "type": "other", "size": 0, "islink": True, "destination": self.tree.target(path)}
        elif attrs.size is None:
            attrs = self.tree.stat(path)
        info: dict[str, Any] = {"name": path, "type": attrs.kind, "size": attrs.size, "mtime": attrs.mtime_ns / 1e9}
        return {**info, "islink": True, "destination": self.tree.target(path)} if link else info

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Return bytes [start, end) of a file; negative positions count from its end."""
        path = self._strip_protocol(path)
        with _errors(path), self.tree.open(path) as file:
            first, last, _ = slice(start, end).indices(file.size)
            return bytes(file.read(first, last))

    def modified(self, path: str) -> datetime:
        """Return when the stored object was changed."""
        path = self._strip_protocol(path)
        with _errors(path):
            return datetime.fromtimestamp(self.tree.stat(path).mtime_ns / 1e9, UTC)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> VirtualFile:
        if mode != "rb":
            _refuse(path)
        return VirtualFile(self, path, block_size=block_size or BLOCK, **kwargs)

    def _refused(self, *args: Any, **kwargs: Any) -> Any:
        """Raise an error, because nothing can be changed (P1)."""
        _refuse(str(args[0] if args else kwargs.get("path", "")))

    mkdir = makedirs = rmdir = rm = rm_file = _rm = cp_file = copy = mv = pipe_file = put_file = touch = _refused


class VirtualFile(AbstractBufferedFile):  # type: ignore[misc]
    """One version of a file, open for reading."""

    def __init__(self, fs: FsbridgeFileSystem, path: str, block_size: int, **kwargs: Any) -> None:
        with _errors(path):
            self._file = fs.tree.open(path)
        super().__init__(fs, path, "rb", block_size, size=self._file.size, **kwargs)

    def _fetch_range(self, start: int, end: int) -> bytes:
        with _errors(self.path):
            return bytes(self._file.read(start, end))

    def close(self) -> None:
        """Close the file, and what the source holds open for it."""
        if not self.closed:
            self._file.close()
        super().close()


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Raise errors as the OSErrors that a program meets at a mount."""
    try:
        yield
    except FsbridgeError as error:
        raise OSError(error.errno, str(error), path) from error


def _chained(fo: str | None, protocol: str | None) -> str:
    """Return the source that a chained URL names."""
    if fo is None:
        raise ValueError("name a source: fsspec.filesystem('fsbridge', source='brain.n5')")
    if "://" in fo or protocol in (None, "http", "https"):
        return fo
    if protocol not in SCHEMES:
        raise ValueError(f"fsbridge opens no source by way of {protocol}://; known: {', '.join(SCHEMES)}, http, https")
    return SCHEMES[protocol] + fo


def _access(target: Mapping[str, Any]) -> dict[str, Any]:
    """Return fsbridge's options for fsspec's options of the inner file system."""
    client = target.get("client_kwargs") or {}
    _refuse_unknown("the inner file system", target, {"anon", "endpoint_url", "profile", "client_kwargs"} | _FSSPEC)
    _refuse_unknown("client_kwargs", client, {"endpoint_url", "region_name"})
    named = {
        "anonymous": target.get("anon"),
        "endpoint": target.get("endpoint_url") or client.get("endpoint_url"),
        "profile": target.get("profile"),
        "region": client.get("region_name"),
    }
    return {name: value for name, value in named.items() if value is not None}


def _refuse_unknown(place: str, given: Iterable[str], known: Set[str]) -> None:
    for name in given:
        if name not in known:
            near = next(iter(get_close_matches(name, known, 1, 0.8)), "")
            known_ones = f"did you mean {near!r}?" if near else f"known: {', '.join(sorted(known - _FSSPEC))}"
            raise TypeError(f"{place} has no option {name!r}; {known_ones}")


def _normal(source: str | os.PathLike[str] | None) -> str | None:
    """Return an absolute path, or a URL in one spelling; what names no source is returned as it is."""
    if source is None or not (text := os.fspath(source)):
        return source if source is None else ""
    if not is_url(text):
        return os.path.abspath(text)
    return local_path(text) or parse_url(text).text
