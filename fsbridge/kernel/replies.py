"""Attributes and directory entries as the kernel takes them, and for how long it may rely on them.

The reply to `readdir` is where a long listing spends its time: one `EntryAttributes` serves all its entries, and numbered
entries need no other object. Not here: requests (`filesystem.py`), which entry gets which inode (`inodes.py`).
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable
from typing import TypeAlias

from pyfuse3 import EntryAttributes, ReaddirToken

from fsbridge.config import Config
from fsbridge.errors import CorruptData
from fsbridge.kernel.ages import Ages
from fsbridge.kernel.handles import Listing
from fsbridge.kernel.inodes import InodeTable
from fsbridge.tree import Attrs, Numbered

FOREVER_SECONDS = 86400.0
"""Most seconds for which the kernel keeps a reply before it asks again, of a store that never changes, too."""

BLOCK_SIZE = 65536
"""st_blksize, the bytes that stdio and Python read at a time. More slows small random reads; less costs more calls."""

UNTOLD = -1
"""The size of a listed entry that tells the kernel to ignore the entry's attributes.

It is used if the kernel knows the inode already, and the listing does not know all attributes. Linux (5.5, and maintained
versions before it) then takes only the name, keeps what it knows of the inode, and drops the reference that comes with the
entry. It would believe any attributes with a valid size at once, even with a left of zero: a program that has the file
mapped would lose its pages, and a directory might refuse a program that may enter it.
"""

DOT_ENTRIES = 2
"""Listing positions taken by `.` and `..`."""

MAX_TARGET = 4095
"""Most bytes of a symlink's target that the kernel accepts (PATH_MAX less its NUL)."""

MAX_XATTR = 65536
"""Most bytes of an extended attribute that the kernel accepts."""

Reply: TypeAlias = Callable[[ReaddirToken, bytes, EntryAttributes, int], bool]
"""Adds an entry to the reply with that token; the number is its position plus 1. False if the entry does not fit."""

_MODES = {"directory": stat.S_IFDIR | 0o555, "file": stat.S_IFREG | 0o444, "link": stat.S_IFLNK | 0o777}


class Replies:
    """Makes the replies of one mount.

    All files have one owner, one group and one mode, with which the kernel checks permissions (`default_permissions`). The
    modes of the store's own files are checked by the store (`store/local/files.py`).
    """

    def __init__(self, inodes: InodeTable, ages: Ages, config: Config, reply: Reply) -> None:
        """`reply`: adds an entry to the reply to `readdir`."""
        self._inodes = inodes
        self._ages = ages
        self._reply = reply
        self._lifetime = min(ages.lifetime, FOREVER_SECONDS)
        self._modes = {kind: mode & ~config.hidden_mode if kind != "link" else mode for kind, mode in _MODES.items()}
        self._uid = os.getuid() if config.uid is None else config.uid
        self._gid = os.getgid() if config.gid is None else config.gid
        self._entry = self._make_blank()  # reused for every entry of every listing: a new object each doubles the cost
        self._dot = self._make_blank()
        self._fill(self._dot, Attrs("directory", 0, 0), self._lifetime)

    def make_attributes(self, inode: int, attrs: Attrs, left: float = math.inf) -> EntryAttributes:
        """Return the reply to `lookup` and `getattr`; `left`: most seconds for which the attributes stay valid."""
        entry = self._make_blank()
        self._fill(entry, attrs, min(self._lifetime, left))
        entry.st_ino = inode
        return entry

    def make_absence(self) -> EntryAttributes:
        """Return the reply by which the kernel remembers that a name does not exist."""
        entry = self._make_blank()
        entry.entry_timeout = self._lifetime
        return entry

    def add_dots(self, inode: int, start_id: int, token: ReaddirToken) -> bool:
        """Reply with `.` and `..` of the directory, from position `start_id` on; true if they fitted."""
        entry = self._dot
        for position, name, number in ((0, b".", inode), (1, b"..", self._inodes.parent(inode))):
            if position >= start_id:
                entry.st_ino = number
                if not self._reply(token, name, entry, position + 1):
                    return False
        return True

    def add_entries(self, listing: Listing, position: int, token: ReaddirToken) -> None:
        """Fill the reply from the listing's batch. Each entry that fits counts as one lookup."""
        if position >= listing.end:
            return
        left = min(self._ages.left_of_entries(listing.asked, listing.shown.extent), FOREVER_SECONDS)
        batch, space = listing.batch, listing.shown.space
        base = None if space is None else self._inodes.base(listing.inode, space)
        if base is not None:
            numbered = 0
            try:
                if isinstance(batch, Numbered):
                    numbered = self._add_numbered(batch, position - listing.start, base, left, position + DOT_ENTRIES, token)
                else:
                    numbered = self._add_others(listing, position, base, left, token)
            finally:
                self._inodes.count(base, numbered)
        else:
            self._add_others(listing, position, None, left, token)

    def _add_numbered(self, batch: Numbered, first: int, base: int, left: float, last_id: int, token: ReaddirToken) -> int:
        """Fill the reply from entry `first` of the batch on; `last_id`: id of the one before. Returns how many fitted."""
        entry, reply, begun = self._entry, self._reply, last_id
        self._fill(entry, Attrs(batch.kind, batch.size, 0), left)
        base += batch.first
        shown = 0
        for number, mtime_ns in batch.pairs[first:]:
            if mtime_ns != shown:
                shown = mtime_ns
                _fill_times(entry, mtime_ns)
            entry.st_ino = base + number
            if not reply(token, b"%d" % number, entry, last_id + 1):
                break
            last_id += 1
        return last_id - begun

    def _add_others(self, listing: Listing, position: int, base: int | None, left: float, token: ReaddirToken) -> int:
        """Fill the reply with entries of any kind. Return how many of them were numbered nodes of the space at `base`."""
        entry, reply, batch = self._entry, self._reply, listing.batch
        space = listing.shown.space
        numbered, sized, known = 0, True, base is not None and self._inodes.lookups(base) > 0
        shown: Attrs | None = None
        for index in range(position - listing.start, len(batch)):
            name, attrs, node, _ = batch[index]
            if attrs != shown:
                self._fill(entry, attrs, left)
                shown, sized = attrs, attrs.size is not None
            next_id = listing.start + index + 1 + DOT_ENTRIES
            if base is not None and isinstance(node, int):
                entry.st_ino = base + node
                if known and not sized:
                    entry.st_size = UNTOLD
                if not reply(token, name, entry, next_id):
                    break
                numbered += 1
            else:
                inode, reliable = self._inodes.count_listed(listing.inode, batch[index], space)
                entry.st_ino = inode
                if not reliable:
                    entry.entry_timeout = 0
                    shown = None
                if not sized and self._inodes.lookups(inode) > 1:
                    entry.st_size, shown = UNTOLD, None
                if not reply(token, name, entry, next_id):
                    self._inodes.forget(inode, 1)
                    break
        return numbered

    def _make_blank(self) -> EntryAttributes:
        entry = EntryAttributes()
        entry.st_uid, entry.st_gid = self._uid, self._gid
        entry.st_nlink = 1
        entry.st_blksize = BLOCK_SIZE
        return entry

    def _fill(self, entry: EntryAttributes, attrs: Attrs, left: float) -> None:
        """Set the fields that differ between entries. An unknown size gets timeouts of 0, so that the kernel asks again."""
        kind, size, mtime_ns = attrs
        _fill_times(entry, mtime_ns)
        entry.st_mode = self._modes[kind]
        entry.attr_timeout = entry.entry_timeout = 0 if size is None else left
        entry.st_size = size or 0
        entry.st_blocks = ((size or 0) + 511) // 512


def _fill_times(entry: EntryAttributes, mtime_ns: int) -> None:
    entry.st_mtime_ns = entry.st_ctime_ns = entry.st_atime_ns = mtime_ns


def check_target(target: bytes) -> bytes:
    """Return a symlink's target; CorruptData if the kernel would reject it."""
    if not 0 < len(target) <= MAX_TARGET or b"\0" in target:
        raise CorruptData(f"a link cannot have this target of {len(target)} bytes: {target[:80]!r}")
    return target
