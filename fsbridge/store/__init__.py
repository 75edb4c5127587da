"""Stores: bytes by key and byte range, listings, versions. Not here: any format, any decoding.

A `Key` is a path inside a store that is already known to be harmless. A `Stat` holds the version of a stored object, in
terms that only its store understands. Stores are blocking and thread-safe.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, Protocol, TypeAlias

from fsbridge.errors import CorruptData, NotFound, TooLarge


class Key(str):
    """A store key: `/`-joined non-empty components of text, none of them `.` or `..`, no NUL. The root is the empty key.

    `Key.parse` and `/` are the only ways to make one; both raise NotFound for anything else, because a store cannot hold
    an object of such a name. Undecodable bytes of file names are surrogates (`os.fsdecode`).
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Key:
        """Return `text` as a key; NotFound if one of its components cannot be part of a key."""
        key = cls(text)
        if text:
            for part in text.split("/"):
                _check(part)
        return key

    def __truediv__(self, name: str) -> Key:
        """Return the key of `name`, which is one component, below this one."""
        _check(name)
        if "/" in name:
            raise NotFound(f"{name!r} is not one key component")
        return Key(f"{self}/{name}" if self else name)

    @property
    def name(self) -> str:
        """The last component."""
        return self.rpartition("/")[2]

    @property
    def parent(self) -> Key:
        """The key without its last component."""
        return Key(self.rpartition("/")[0])


def _check(part: str) -> None:
    if part in ("", ".", "..") or not is_path(part):
        raise NotFound(f"{part!r} cannot be part of a key")


def is_path(text: str) -> bool:
    """True if the operating system takes `text` as a path. A string from JSON may hold NUL or a lone surrogate."""
    try:
        return "\0" not in text and (text.isascii() or bool(text.encode("utf-8", "surrogateescape")))
    except UnicodeEncodeError:
        return False


ROOT = Key("")

BATCH_NAMES = 4096
"""Most members in one batch of a listing."""


class Stat(NamedTuple):
    """What a store knows about a key.

    `size` in bytes, `mtime_ns` for people to read. `version` is only for comparison: an object's differs
    after it was replaced or rewritten, a directory's after members came or went; None if the store cannot tell.
    `settled`: any later change gives another version. False within a tick of the store's clock after a change.
    `changed_ns`: when the object was changed or put there last, or later (`time.time_ns`); 0: the store cannot tell.
    """

    is_dir: bool
    size: int
    mtime_ns: int
    version: Hashable
    settled: bool = True
    changed_ns: int = 0


class Member(NamedTuple):
    """One member of a listing; `stat` comes with it when the listing was asked for stats, else it is None.

    `hidden`: the kind is unknown (a link to nothing, a damaged inode). Opening the member raises the reason.
    """

    name: str
    is_dir: bool
    stat: Stat | None
    hidden: bool = False


Range = tuple[int, int | None]
"""First byte and length of a part of an object; a negative first byte counts from the end, no length means all."""

WHOLE: Range = (0, None)


def compact(numbers: Sequence[int]) -> Sequence[int]:
    """Pack sizes or times (ns) into 8 bytes each; unchanged if one needs more, as a time before 1677 or after 2262."""
    try:
        return array("q", numbers)
    except OverflowError:
        return tuple(numbers)


Stored: TypeAlias = bytes | memoryview
"""Stored bytes, passed on without a copy."""


class OpenedObject(Protocol):
    """A stored object held open. It stays the same even after another one has taken its place in the store."""

    @property
    def stat(self) -> Stat:
        """Return the stat that the object had when it was opened."""

    def read(self, limit: int) -> bytes:
        """Read the whole object; TooLarge above `limit` bytes, Stale if it has changed since it was opened."""

    def read_range(self, start: int, length: int) -> bytes:
        """Read exactly `length` bytes from byte `start`; CorruptData if the object is too short, Stale as in `read`."""

    def close(self) -> None: ...


class Store(ABC):
    """Bytes by key.

    Errors: NotFound (absent, or below a file), AccessDenied (refused, or outside the root), IsADirectory.
    """

    @abstractmethod
    def stat(self, key: Key, read: Range | None = None) -> Stat:
        """Return kind, size, time and version of the object or directory at `key`.

        `read`: given if `key` must be an object; the bytes that will be read next. A remote store gets them with the stat.
        """

    @abstractmethod
    def read(self, key: Key, limit: int) -> tuple[Stored, Stat]:
        """Return the object and the stat of exactly these bytes; TooLarge above `limit`, Stale if it changes meanwhile."""

    @abstractmethod
    def read_range(self, key: Key, start: int, length: int) -> tuple[bytes, Stat]:
        """Return `length` bytes from byte `start` (negative: from the end); CorruptData if the object is too short."""

    @abstractmethod
    def list(self, key: Key, stats: bool = False) -> Iterator[Member]:
        """Yield the members of the directory at `key` as the store tells them, in its own order; NotFound without directory.

        Members that are neither files nor directories are not listed. A link that leads nowhere or out of the root, and a
        member that the disk cannot tell of, are listed as `hidden` files: opening one raises the reason.
        """

    @abstractmethod
    def mtimes(self, key: Key, names: Sequence[str]) -> Sequence[int | None]:
        """Return the mtimes (ns) of the members `names` of a directory as `list` does; None for one that is gone."""

    @abstractmethod
    def describe(self, key: Key) -> str:
        """Return `key` as a path for a message."""

    # What only some stores are, do better, or can do: each default is right for all others

    has_no_directories: bool = False
    """True if directories are only parts of keys: asking for one means listing it, and a look below needs no check."""

    remote: bool = False
    """True if objects are sent over a network, so that `fetch` is worth a call."""

    rests: bool = False
    """True if `rest` closes descriptors, which the next use opens again."""

    vouches: bool = False
    """True if the store lists ETags, so that `vouch` is worth a call."""

    @property
    def listable(self) -> bool:
        """True if the store can be listed at all."""
        return True

    def names(self, key: Key, cuts: Sequence[str] = ()) -> Iterator[Sequence[str]]:
        """Yield the names of all that `list` gives, in batches. May take a fraction of the time that `list` takes.

        `cuts`: see `prefetch_listing`.
        """
        members = self.list(key)
        while batch := [member.name for member in islice(members, BATCH_NAMES)]:
            yield batch

    def open_object(self, key: Key) -> OpenedObject | None:
        """Open the object at `key`; None in stores where that costs more than `stat`. Errors as in `read`."""
        return None

    def close(self) -> None:
        """Release descriptors."""
        return

    def rest(self) -> None:
        """Close descriptors until the next use opens them again. Does not block."""
        return

    def check_access(self, key: Key) -> None:
        """Raise AccessDenied if the mount's users may not read the object at `key`.

        Call it before showing bytes that were read earlier; each read from the store checks this itself.
        """
        return

    def commit(self, key: Key) -> Hashable:
        """Return a value that changes when many objects below `key` are replaced together; see `model.Chunks.commit`."""
        return None

    def stats(self, key: Key, names: Iterable[str]) -> Mapping[str, Stat | None]:
        """Return what `stat` says of members of the directory at `key`, which is opened only once; None: it is absent.

        Members that only `stat` can tell about are left out: all members, if this store opens directories at no cost.
        """
        return {}

    def left_out(self, key: Key) -> Iterator[str]:
        """Describe what is stored in the directory at `key` and in no listing of it."""
        return iter(())

    # Of remote stores

    def listed_sizes(self, key: Key, names: Iterable[str]) -> Mapping[str, int]:
        """Return the sizes of those of the `names` in the directory at `key` that a remembered listing shows as objects."""
        return {}

    def holds(self, key: Key) -> bool:
        """True if a directory is at `key` now, whatever an old listing says. Stale if nothing is left of the store."""
        return True

    def shows(self, key: Key) -> bool:
        """True if a remembered listing, perhaps an old one, has an object at `key`. Its stat may not be known, though."""
        return False

    def lacks(self, key: Key) -> bool:
        """True if a remembered listing, perhaps an old one, has nothing at `key`."""
        return False

    def vouch(self, key: Key, texts: Iterable[bytes]) -> tuple[bytes, Stat] | None:
        """Return the one of `texts` that is the object's content, and its stat, without reading it; None if unknown."""
        return None

    def fetch(self, key: Key, read: Range = WHOLE, around: Range | None = None) -> None:
        """Prefetch these bytes of an object. Does not block.

        `around`: a larger range that is better fetched with them.
        """
        return

    def prefetch_listing(self, key: Key, cuts: Sequence[str] = ()) -> None:
        """Prepare for listing everything beneath `key`: a store that needs a request for each listing asks for all at once.

        `cuts`: names, evenly distributed among the possible ones below `key`, at which the store may cut the listing into
        parts.
        """
        return

    def prefetch_stat(self, key: Key) -> None:
        """Ask whether an object has changed since it was read, for the next `stat`. Does not block."""
        return


class Describes(Protocol):
    """A store, or anything else that can name its keys in messages."""

    def describe(self, key: Key) -> str:
        """Return `key` as it is named in messages."""


def check_limit(store: Describes, key: Key, size: int, limit: int) -> None:
    """Raise TooLarge if the object at `key` has more than `limit` bytes."""
    if size > limit:
        raise TooLarge(f"{store.describe(key)}: has {size} bytes stored, and the limit here is {limit}")


def check_range(store: Describes, key: Key, start: int, length: int, size: int) -> None:
    """Raise CorruptData if an object of `size` bytes does not have all the bytes [start, start + length)."""
    if start < 0 or length < 0 or start + length > size:
        raise CorruptData(f"{store.describe(key)}: cannot give {length} bytes at {start} of an object of {size}")
