"""The tree of a source without a mount: look up, list and read its paths in this process, with a mount's errors.

`VirtualTree` is for commands and for Python programs. Not here: what the tree shows (`layouts/`), the kernel's side of it,
fsspec (`filesystem.py`), long work over it (`units.py`).
"""

from __future__ import annotations

import _thread
import contextlib
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self, TypeVar, cast

from fsbridge.children.starting import end_use, use
from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import CorruptData, FsbridgeError, IsADirectory, NotADirectory, NotFound, SetupError, Stale, TooDeep
from fsbridge.formats.open import open_source
from fsbridge.layouts import root_directory
from fsbridge.lru import LRU
from fsbridge.model import Source
from fsbridge.threads.forking import PerProcess
from fsbridge.tree import AnyNode, Attrs, Buffer, Directory, Entry, File, Handle, Kind, Space, Symlink

T = TypeVar("T")

MAX_LINKS = 40
"""Most links on one path, the same limit as in Linux."""

KNOWN_DIRECTORIES = 4096
"""Most directories that are kept, so that a path below them is not looked up from the root."""

TRIES = 3
"""Most look-ups of a path that turns out Stale: the kernel retries in the same way."""


class Listed(NamedTuple):
    """A member of a directory. `attrs.size` is None for a file if only its content tells the size.

    `node` opens the member that was listed.
    """

    name: str
    attrs: Attrs
    node: Callable[[], AnyNode]


class ReadableFile:
    """One version of a file's bytes, open for reading. Thread-safe. A forked process opens it again."""

    def __init__(self, handle: Handle, reopen: Callable[[], Handle]) -> None:
        """`reopen` opens the present version of the file in a forked process."""
        self.size = handle.size
        self._handle = PerProcess(handle, partial(_same_version, reopen, handle.version, handle.size))

    def read(self, start: int, stop: int) -> Buffer:
        """Return exactly the bytes [start, stop), up to the end of the file. Stale once the stored objects have changed."""
        start, stop = max(0, start), min(stop, self.size)
        if start >= stop:
            return b""
        data = self._handle.get().read(start, stop - start)
        if len(data) != stop - start:
            raise CorruptData(f"a read of {stop - start} bytes at {start} gave {len(data)}")
        return data

    def close(self) -> None:
        """Close the file, and what the source holds open for it."""
        _close(self._handle)

    def close_when_unused(self) -> None:
        """Close the file when the last reference to it is gone, because its last user is not known."""
        close_unused(self, partial(_close, self._handle))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def close_unused(owner: object, close: Callable[[], object]) -> None:
    """Have `close` run when the last reference to `owner` is gone, but not at the interpreter's end, which frees everything.

    It gets a thread of its own, because the thread that happens to collect garbage may hold a lock that `close` waits for.
    """
    weakref.finalize(owner, _start, close).atexit = False


def _start(close: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # no room for a thread, or the interpreter ends
        _thread.start_new_thread(close, ())


def _close(handle: PerProcess[Handle]) -> None:
    """Close the handle of this process."""
    if handle.made is not None:
        handle.made.close()


def _same_version(reopen: Callable[[], Handle], version: Hashable, size: int) -> Handle:
    """Open a file again, in a forked process; Stale unless it surely is the `version` that the parent process has open."""
    handle = reopen()
    if (handle.version, handle.size) != (version, size):
        handle.close()
        raise Stale("it may have changed since the parent process opened it; open it again")
    return handle


class _OpenTree:
    """An open source and its tree, with what is known of it."""

    def __init__(self, config: Config) -> None:
        """Open the source; SetupError in the cases in which `fsbridge mount` raises it."""
        self.lock = threading.Lock()
        self.directories: LRU[tuple[bytes, ...], Directory] = LRU(KNOWN_DIRECTORIES)
        with contextlib.ExitStack() as opened:
            use()
            opened.callback(end_use)
            try:
                self.source = open_source(config.source, config)
            except SetupError:
                raise
            except (FsbridgeError, OSError) as error:
                raise SetupError(f"{config.source}: {reason(error)}") from None
            opened.callback(self.source.close)
            self.cache = ChunkCache(config.cache_size)
            self.root = root_directory(self.source, config, self.cache)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close the source. If no other one is open, the processes that all sources share end, too."""
        self.directories.clear()
        with self.lock:
            opened = self._opened.pop_all()
        opened.close()

    def keep(self, names: tuple[bytes, ...], node: AnyNode) -> None:
        """Keep a directory for later look-ups, but none of a chunk grid, because those belong to one version."""
        if node.slot is None and node.attrs().kind == "directory":
            self.directories.put(names, cast(Directory, node))


class VirtualTree:
    """The tree that a mount of `config` would show. Thread-safe; each method may block.

    Paths are those below the mount's root, with or without a `/` at either end; `..` leads up as it does in a shell. Errors
    are those of `errors.py`, or the operating system's. A forked process opens the source again.
    """

    def __init__(self, config: Config) -> None:
        """Open the source; SetupError in the cases in which `fsbridge mount` raises it."""
        self.config = config
        self._open = PerProcess(_OpenTree(config), partial(_OpenTree, config))

    @property
    def source(self) -> Source:
        """The opened source."""
        return self._open.get().source

    @property
    def cache(self) -> ChunkCache:
        """The cache of the source's decoded chunks."""
        return self._open.get().cache

    @property
    def root(self) -> Directory:
        """The directory at the root."""
        return self._open.get().root

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the source; open files of it may not be read any more."""
        if self._open.made is not None:
            self._open.made.close()

    def stat(self, path: str, follow: bool = True) -> Attrs:
        """Return the attributes with the size of every file; those of a link itself unless `follow`."""
        return self._tried(path, measure_node, follow)

    def target(self, path: str) -> str:
        """Return the target of a link."""

        def ask(node: AnyNode) -> str:
            if node.attrs().kind != "link":
                raise FsbridgeError("not a link")
            return decode(cast(Symlink, node).target)

        return self._tried(path, ask, follow=False)

    def list(self, path: str = "") -> Iterator[Listed]:
        """Yield the members of a directory as they are found, in the order of the mount's listing."""
        return members(self._tried(path, as_directory, follow=True))

    def open(self, path: str) -> ReadableFile:
        """Open the present version of a file."""

        def ask(node: AnyNode) -> Handle:
            if node.attrs().kind == "directory":
                raise IsADirectory("a directory, not a file")
            return cast(File, node).open()

        reopen = partial(self._tried, path, ask, follow=True)
        return ReadableFile(reopen(), reopen)

    def node(self, path: str) -> AnyNode:
        """Return the node at a path. Links are followed."""
        return self._tried(path, lambda node: node, follow=True)

    def walk(
        self,
        path: str = "",
        enter: Callable[[str], bool] = lambda path: True,
        failed: Callable[[str, Exception], object] | None = None,
    ) -> Iterator[tuple[str, Listed]]:
        """Yield path and member for all that is below a directory, parents first; links are not followed.

        A directory for which `enter` returns False is left out with all below. Members are opened as they were listed,
        without a look-up from the root. `failed` gets each directory that cannot be listed, which is then left out.
        """
        try:
            directory = self._tried(path, as_directory, follow=True)
        except (FsbridgeError, OSError) as error:
            if failed is None:
                raise
            failed(path, error)
            return
        yield from _below("/".join(map(decode, split(path))), directory, enter, failed)

    def _tried(self, path: str, ask: Callable[[AnyNode], T], follow: bool) -> T:
        """Return `ask(node)` for the node at `path`. If that is Stale, look the path up again."""
        names = split(path)
        for left in reversed(range(TRIES)):
            try:
                return ask(self._find(names, follow))
            except Stale:
                self._open.get().directories.clear()
                if not left:
                    raise
        raise AssertionError("not reached")

    def _find(self, names: tuple[bytes, ...], follow: bool) -> AnyNode:
        tree = self._open.get()
        links = 0
        at: tuple[bytes, ...] = ()  # the present directory, without any link in it
        ahead = list(reversed(names))
        node: AnyNode = self.root
        while ahead:
            name = ahead.pop()
            if name == b"..":
                at = at[:-1]
                node = tree.directories.get(at) or self._find(at, follow=True)
                continue
            child = tree.directories.get((*at, name)) or as_directory(node).lookup(name)
            if child.attrs().kind == "link" and (ahead or follow):
                links += 1
                if links > MAX_LINKS:
                    raise TooDeep("too many links in a row")
                target = cast(Symlink, child).target
                if target.startswith(b"/"):
                    raise NotFound("the link leads out of the tree")
                ahead += reversed([part for part in target.split(b"/") if part not in (b"", b".")])
                continue
            at, node = (*at, name), child
            tree.keep(at, node)
        return node


def split(path: str) -> tuple[bytes, ...]:
    """Return the names in a path, without empty ones and `.`."""
    names = path.encode("utf-8", "surrogateescape").split(b"/")
    return tuple(name for name in names if name not in (b"", b"."))


def decode(name: bytes) -> str:
    """Return a file name as text, as `os.fsdecode` does where file names are UTF-8."""
    return name.decode("utf-8", "surrogateescape")


def members(directory: Directory) -> Iterator[Listed]:
    """Yield the members of a directory."""
    contents = directory.refresh()
    for batch in contents.entries():
        for entry in batch:
            yield Listed(decode(entry.name), entry.attrs, partial(_open_entry, directory, contents.space, entry))


def _below(
    path: str,
    directory: Directory,
    enter: Callable[[str], bool],
    failed: Callable[[str, Exception], object] | None,
) -> Iterator[tuple[str, Listed]]:
    listing = members(directory)
    while True:
        at = path
        try:
            member = next(listing, None)
            if member is None:
                return
            below = f"{path}/{member.name}" if path else member.name
            if member.attrs.kind != "directory":
                yield below, member
            elif enter(below):
                yield below, member
                at = below
                subdirectory = as_directory(member.node())
                at = path
                yield from _below(below, subdirectory, enter, failed)
        except (FsbridgeError, OSError) as error:
            if failed is None:
                raise
            failed(at, error)
            if at == path:
                return


def _open_entry(directory: Directory, space: Space | None, entry: Entry) -> AnyNode:
    if entry.node is None or (isinstance(entry.node, int) and space is None):
        return directory.lookup(entry.name)
    return (
        space.node(entry.node)
        if isinstance(entry.node, int) and space is not None
        else cast(Callable[[], AnyNode], entry.node)()
    )


def open_file(node: AnyNode) -> ReadableFile:
    """Open the present version of a file, for this process."""
    return ReadableFile(cast(File, node).open(), _unknown_path)


def _unknown_path() -> Handle:
    raise Stale("the parent process opened it; open it again")


def as_directory(node: AnyNode) -> Directory:
    """Return `node`; NotADirectory unless it is a directory."""
    if node.attrs().kind != "directory":
        raise NotADirectory("not a directory")
    return cast(Directory, node)


def measure_node(node: AnyNode) -> Attrs:
    """Return a node's attributes with the size. To find out the size may take as long as reading the file."""
    attrs = node.attrs()
    return cast(File, node).measure() if attrs.size is None else attrs


def reason(error: Exception) -> str:
    """Return the text of an error for a message."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def mode(kind: Kind) -> int:
    """Return the mode that a mount shows for a node, unless options narrow it."""
    return {"directory": 0o40555, "file": 0o100444, "link": 0o120777}[kind]
