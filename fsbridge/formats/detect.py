"""Finds the format of a directory or file, in the one documented order, and makes the errors for a path without a store.

Each error is a SetupError that says what is at the path, and what to name or do instead. Not here: the table of formats
(`registry.py`).

A directory is, in this order,

1. `zarr3` if it holds `zarr.json`,
2. `zarr2` if it holds `.zarray`, `.zgroup` or `.zmetadata`,
3. `n5` if it holds `attributes.json` with `n5` or `dimensions`,
4. `hangar` if it is or holds a Hangar repository (`branch.lmdb` beside `data`), `icechunk` if it is a repository of Icechunk
   (a file `repo` of its own, or the branch `refs/branch.main`),
5. the format of the arrays beneath it, if they are all of one of the first three formats: TensorStore writes roots without
   any metadata; if there are none, `attributes.json` alone makes it `n5` and `.zattrs` alone `zarr2`,
6. `collection` if there are several stores of different formats beneath it, or HDF5 files, zip files, Hangar repositories.

A file never counts as absent because it may not be read (AccessDenied: it belongs to another user, or a link leads out of
the store) or because reading it fails at the moment.

A file is `hdf5` or `zip` by its first bytes; beneath a collection a zip file must be named like one.
"""

from __future__ import annotations

import errno
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from shlex import quote

from fsbridge.config import Config
from fsbridge.errors import PASSING, AccessDenied, FsbridgeError, NotFound, SetupError
from fsbridge.formats.format import CandidateDirectory, CandidateFile
from fsbridge.formats.records import COLLECTION, HDF5, N5, ZARR2, ZIP
from fsbridge.formats.registry import FORMATS, REFERENCES, REFERENCES_HELP
from fsbridge.metadata import Format
from fsbridge.store import ROOT, Key, Stat, Store
from fsbridge.store.local import LocalStore

_UNREADABLE = (AccessDenied, OSError, *PASSING)

SEARCHED_DIRECTORIES = 512
"""Directories that are searched for stores when the root itself says nothing."""

SEARCHED_LEVELS = 3
"""Levels of directories below a source that are searched for stores, unless its format is said to be `collection`.

A directory such as /usr has a zip file or an HDF5 file somewhere, which nobody means.
"""

SEARCHED_ENTRIES = 4096
"""Most entries that are examined in a directory that is searched for stores. A larger one holds chunks, not stores."""


FIRST_LOOK = 4096
"""Bytes that are read from a remote object to detect its format."""


def detect(store: Store, config: Config) -> Format | None:
    """Return the format of the root directory of `store`; None if it is no store and contains none."""
    own = detect_directory(store, config, ROOT)
    if own is not None:
        return own
    kinds = search(store, config, ROOT, levels(config))
    if not kinds:
        root = CandidateDirectory(store, config, ROOT)
        return N5 if root.has("attributes.json") else ZARR2 if root.has(".zattrs") else None
    return only(kinds) or COLLECTION


def only(formats: set[Format]) -> Format | None:
    """Return the one format in `formats` if it keeps its data under keys, else None.

    A directory above stores of only that format counts as the root of one store; above others it is a collection.
    """
    return next((form for form in formats if form.access == "keys"), None) if len(formats) == 1 else None


def detect_directory(store: Store, config: Config, key: Key) -> Format | None:
    """Apply steps 1 to 4: return the format of the directory `key` from its direct members, or None."""
    directory = CandidateDirectory(store, config, key)
    return next((entry.format for entry in FORMATS.values() if entry.recognise(directory)), None)


def detect_file(read: Callable[[int, int], bytes], size: int) -> Format | None:
    """Return the format that the first bytes of a file tell, or None. `read(start, length)` returns bytes of the file."""
    file = CandidateFile(size, read)
    return next((entry.format for entry in FORMATS.values() if entry.recognise(file)), None)


def detect_key(store: Store, key: Key, size: int) -> Format | None:
    """Detect the format of an object in a store, as `detect_file` does. A zip file must also have the name of one.

    Many zip files (`.npz`, `.docx`) are no stores. In a remote store an object with the name of an HDF5 file
    counts as HDF5 without a request, and any other object is read once. A server's error is raised: it never means
    "no store".
    """
    if store.has_no_directories:
        if promised(key.name, False) == HDF5:
            return HDF5
        head = store.read_range(key, 0, min(size, FIRST_LOOK))[0]
        form = detect_file(lambda start, length: head[start : start + length], len(head))
    else:
        form = detect_file(lambda start, length: store.read_range(key, start, length)[0], size)
    return None if form == ZIP and not key.name.lower().endswith(ZIP.suffixes) else form


def promised(name: str, is_dir: bool) -> Format | None:
    """Return the format that a member's name suggests; None if it suggests none.

    If `is_dir`, only formats of directories are considered, else only formats of files.
    """
    formats = (entry.format for entry in FORMATS.values())
    fitting = (form for form in formats if (form.kind == "directory") == is_dir)
    return next((form for form in fitting if name.lower().endswith(form.suffixes)), None)


def levels(config: Config) -> int:
    """Return the number of levels below the source that are searched for stores."""
    return config.limits.depth + 1 if config.format == COLLECTION.name else SEARCHED_LEVELS


def search(store: Store, config: Config, root: Key, depth: int, unseen: Callable[[], object] = lambda: None) -> set[Format]:
    """Return the formats of stores beneath `root`, searched breadth first, at most `depth` levels below the source.

    `unseen` is called if directories further down were not searched.

    The search stops at its limits, and as soon as `root` must be a collection: at a second format, or at a store that
    does not keep its data under keys (an HDF5 or zip file, a repository). Raises the first error if no store is found
    and something could not be read.
    """
    formats: set[Format] = set()
    refused: list[Exception] = []
    queue = deque([root])
    for _ in range(SEARCHED_DIRECTORIES):
        if not queue or len(formats) > 1:
            break
        for name, is_dir, size in _listing(store, queue[0], refused):
            key = queue[0] / name
            try:
                kind = detect_directory(store, config, key) if is_dir else detect_key(store, key, size)
            except _UNREADABLE as error:
                refused.append(error.with_traceback(None))
                continue
            if kind is not None and kind.access != "keys":
                return {kind}
            if kind is not None:
                formats.add(kind)
            elif is_dir and key.count("/") + 1 < depth:
                queue.append(key)
            elif is_dir:
                unseen()
        queue.popleft()
    if refused and not formats:
        raise refused.pop(0)
    return formats


def _listing(store: Store, key: Key, refused: list[Exception]) -> Iterator[tuple[str, bool, int]]:
    try:
        for _, entry in zip(range(SEARCHED_ENTRIES), store.list(key, stats=True), strict=False):
            stat = entry.stat
            if stat is not None and entry.hidden and stat.version is None:
                stat = _look_at(store, key / entry.name, refused)
            if stat is not None:
                yield entry.name, stat.is_dir, stat.size
    except _UNREADABLE as error:
        refused.append(error.with_traceback(None))
    except FsbridgeError:
        return


def _look_at(store: Store, key: Key, refused: list[Exception]) -> Stat | None:
    """Return the stat of `key`; None if that fails.

    The error is added to `refused`, so that one bad member hides no store.
    """
    try:
        return store.stat(key)
    except NotFound:
        return None
    except _UNREADABLE as error:
        refused.append(error.with_traceback(None))
        return None


HINT = "a store is a directory, an HDF5 file, a zip file, or a URL as s3://BUCKET/PATH"

_NETCDF = "convert it to HDF5: nccopy -k netCDF-4 OLD.nc NEW.nc"
_ARCHIVE = "unpack it, and name the directory of the store"
_PICTURE = "this format is not compressed: programs can read the file itself"

STRANGERS = (
    (0, b"CDF\x01", "a netCDF-3 file", _NETCDF),
    (0, b"CDF\x02", "a netCDF-3 file (64-bit offsets)", _NETCDF),
    (0, b"CDF\x05", "a netCDF-3 file (CDF-5)", _NETCDF),
    (0, b"\x0e\x03\x13\x01", "an HDF4 file", "convert it to HDF5: h4toh5 OLD.hdf NEW.h5"),
    (257, b"ustar", "a tar archive", _ARCHIVE),
    (0, b"\x1f\x8b", "a file compressed by gzip", _ARCHIVE),
    (0, b"BZh", "a file compressed by bzip2", _ARCHIVE),
    (0, b"\xfd7zXZ", "a file compressed by xz", _ARCHIVE),
    (0, b"7z\xbc\xaf", "an archive of 7-Zip", _ARCHIVE),
    (0, b"II*\0", "a TIFF file", _PICTURE),
    (0, b"MM\0*", "a TIFF file", _PICTURE),
    (0, b"II+\0", "a TIFF file", _PICTURE),
    (0, b"\x93NUMPY", "a NumPy file", _PICTURE),
)
"""Kinds of files that users mistake for stores: offset of the magic bytes, magic bytes, name of the kind, hint.

All of these bytes are in the `FIRST_LOOK`.
"""

_REFERENCES = re.compile(
    rb'\s*\{(?!\s*"(metadata|zarr_consolidated_format)"\s*:).*("refs"\s*:\s*\{|"([^"]+/)?\.z(group|array|attrs)"\s*:)',
    re.DOTALL,
)


def are_references(beginning: bytes) -> bool:
    """True if a file that begins with these bytes holds kerchunk references in JSON, not consolidated metadata."""
    return _REFERENCES.match(beginning) is not None


def unreadable(path: str, error: OSError, config: Config) -> SetupError:
    """Return the error for a path that the system cannot open, with a hint."""
    hint = ""
    if error.errno == errno.ENOENT:
        form, store = _around(path, config)
        hint = f"it is inside a store of the format {form}; see: fsbridge info {quote(store)}" if form else HINT
    elif error.errno == errno.ENOTDIR:
        file = next((above for above in _above(path) if os.path.isfile(above)), "")
        hint = f"{file} is a file: name only the file; its content appears below the mount point" if file else ""
    elif error.errno == errno.EACCES:
        hint = "ask its owner for access; only the user who made a mount can read it, unless the mount has --allow-other"
    elif error.errno == errno.ENOTCONN:
        hint = f"unmount the stale mount with: fsbridge umount {quote(path)}"
    return SetupError(f"{path}: {(error.strerror or str(error)).lower()}", hint)


def strange_directory(path: str, config: Config) -> SetupError:
    """Return the error for a directory in which no store was found."""
    depth = levels(config)
    where = "none below it" if depth > SEARCHED_LEVELS else f"none in the {depth} levels of directories below it"
    words = f"{path}: no N5, Zarr, HDF5, Hangar or Icechunk store, and {where}"
    hint = "name the directory of the store itself, or use --format if the store has no metadata"
    if depth == SEARCHED_LEVELS:
        hint += "; --format collection looks deeper"
    return SetupError(words, _inside(path, config) or hint)


def strange_file(path: str, config: Config) -> SetupError:
    """Return the error for a file of no known format."""
    with open(path, "rb") as file:
        beginning = file.read(FIRST_LOOK)
    inside = _inside(path, config)
    if not inside and are_references(beginning):  # attributes of a store may look like them
        return SetupError(f"{path}: {REFERENCES}", REFERENCES_HELP)
    for offset, magic, kind, help in STRANGERS:
        if beginning.startswith(magic, offset):
            return SetupError(f"{path}: {kind}, which fsbridge does not read", help)
    hint = inside or "name the directory of a store, or an HDF5 file"
    return SetupError(f"{path}: neither an HDF5 file nor a zip file", hint)


def check_format(form: Format, store: Store, path: str, config: Config) -> None:
    """Raise SetupError if the user names a format, but `store` has another one: its arrays would not be shown.

    A store without metadata may have any format. A store that cannot be read raises its error when it is opened.
    """
    try:
        if FORMATS[form.name].recognise(CandidateDirectory(store, config, ROOT)):
            return
        detected = detect(store, config)
    except (FsbridgeError, OSError):
        return
    if detected not in (None, form, COLLECTION):
        raise SetupError(f"{path}: the format is {detected.name}, not {form.name}", "leave out --format")


def _above(path: str) -> list[str]:
    """Return the parent directories, the nearest first, at most 40: a chunk of N5 is one level deeper for each dimension."""
    parents = [os.path.dirname(os.path.abspath(path))]
    while parents[-1] != "/" and len(parents) < 40:
        parents.append(os.path.dirname(parents[-1]))
    return parents


def store_around(path: str) -> str | None:
    """Return the store that the directory above `path` is or belongs to; None if there is none.

    Only in N5 it is common that directories between are no stores themselves, because its groups need no document.
    """
    form, store = _around(path, Config("", ""))
    return store if form == N5.name or store == os.path.dirname(path) else None


def _inside(path: str, config: Config) -> str:
    """Return a hint that names the store around `path`; an empty text if there is none."""
    form, store = _around(path, config)
    return f"it is inside a store of the format {form}; name that store: {quote(store)}" if form else ""


def _around(path: str, config: Config) -> tuple[str, str]:
    """Return format and path of the nearest store around `path`, which may be an array; empty texts if there is none."""
    for above in filter(os.path.isdir, _above(path)):
        try:
            store = LocalStore(above)
            try:
                form = detect_directory(store, config, ROOT)
            finally:
                store.close()
        except (FsbridgeError, OSError):
            break
        if form is not None:
            return form.name, above
    return "", ""
