"""The floor: a bare pyfuse3 file system that answers everything from Python dicts. What FUSE and Python cost by themselves.

`python -m benchmarks.floor TREE MOUNTPOINT` shows a copy, held in memory, of the directory TREE (a mount of fsbridge, say).
Not here: fsbridge.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import Any

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileInfo, ReaddirToken, RequestContext

TTL_SECONDS = 1.0
"""How long the kernel may rely on an answer: as fsbridge's default."""


class Floor(pyfuse3.Operations):
    """One directory tree in memory: inodes are positions in lists."""

    supports_dot_lookup = False
    enable_writeback_cache = False

    def __init__(self, tree: str) -> None:
        super().__init__()
        self.content: list[bytes | None] = [None]  # None: a directory; inode 0 is unused
        self.names: list[dict[bytes, int]] = [{}]
        self.listed: list[list[tuple[bytes, int]]] = [[]]  # the same, in the order of their listing
        self.attributes: list[EntryAttributes] = [EntryAttributes()]
        self._take(os.fsencode(tree))

    def _take(self, path: bytes) -> int:
        inode = len(self.content)
        status = os.lstat(path)
        members: dict[bytes, int] = {}
        self.content.append(None)
        self.names.append(members)
        self.listed.append([])
        self.attributes.append(_attributes(inode, status))
        if stat.S_ISDIR(status.st_mode):
            for name in sorted(os.listdir(path)):
                members[name] = self._take(os.path.join(path, name))
            self.listed[inode] = list(members.items())
        else:
            with open(path, "rb", buffering=0) as file:
                self.content[inode] = file.read()
        return inode

    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        inode = self.names[parent_inode].get(name)
        if inode is None:
            raise pyfuse3.FUSEError(2)
        return self.attributes[inode]

    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        return self.attributes[inode]

    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        return inode

    async def readdir(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        members = self.listed[fh]
        for position in range(start_id, len(members)):
            name, inode = members[position]
            if not pyfuse3.readdir_reply(token, name, self.attributes[inode], position + 1):
                return

    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        raise pyfuse3.FUSEError(38)

    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        return FileInfo(fh=inode, keep_cache=True)

    async def read(self, fh: int, off: int, size: int) -> Any:
        content = self.content[fh]
        assert content is not None
        return memoryview(content)[off : off + size]


def _attributes(inode: int, status: os.stat_result) -> EntryAttributes:
    entry = EntryAttributes()
    entry.st_ino = inode
    entry.st_mode, entry.st_nlink, entry.st_uid, entry.st_gid = status.st_mode, 1, os.getuid(), os.getgid()
    entry.st_size, entry.st_blocks, entry.st_blksize = status.st_size, status.st_blocks, 65536
    entry.st_mtime_ns = entry.st_ctime_ns = entry.st_atime_ns = status.st_mtime_ns
    entry.attr_timeout = entry.entry_timeout = TTL_SECONDS
    return entry


def main() -> None:
    """Mount until unmounted."""
    tree, mountpoint = sys.argv[1:]
    floor = Floor(tree)
    pyfuse3.init(floor, mountpoint, {"ro", "default_permissions", "fsname=floor"})
    trio.run(pyfuse3.main)
    pyfuse3.close()


if __name__ == "__main__":
    main()
