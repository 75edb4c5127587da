"""A file system that shows a directory and fails by a seeded plan: the faults of `faulty_store.py` for whatever reads files.

For readers that a store in memory does not reach: child processes, libraries in C, descriptors of their own. `FaultyMount`
is the test's side, the rest is the program that serves the mount. Not here: what the faults are good for.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyfuse3
import trio
from faulty_store import Plan
from forking import environment
from mounting import READY, STOP, mounted
from waiting import until

OPERATIONS = ("stat", "open", "read", "list")
MAPPED = (".lmdb", ".mdb")
"""Ends of the names of files that are read through the kernel's page cache, because their readers map them. A short read
would look like zeros there, so these are never cut."""


class FaultyMount:
    """A mount of `folder` at `path`, without faults until `begin`."""

    def __init__(self, folder: Path, path: Path) -> None:
        self.path = path
        path.mkdir()
        words = [sys.executable, __file__, str(folder), str(path)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(words, env=environment(), **pipes)
        until(lambda: mounted(path) or self._process.poll() is not None, READY)
        assert mounted(path)

    def begin(self, seed: int, share: dict[str, float], only: tuple[str, ...] = OPERATIONS) -> None:
        """Give each of the operations `only` its share of each fault from now on."""
        self._tell({"seed": seed, "share": share, "only": only})

    def release(self) -> Counter[str]:
        """Let nothing go wrong from now on, and let go on what hangs; return the faults since `begin`."""
        return Counter(self._tell({}))

    def stop(self) -> None:
        """Unmount, whatever has become of the program."""
        self._process.communicate(timeout=STOP)
        ended = self._process.returncode, mounted(self.path)
        if ended[1]:
            subprocess.run(["fusermount3", "-uz", self.path], check=True)
        assert ended == (0, False)

    def _tell(self, what: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)
        answer: Any = json.loads(self._process.stdout.readline())
        return answer


class _Files(pyfuse3.Operations):
    """Inodes are never forgotten, so that a path has one number as long as the mount lives."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._paths = {pyfuse3.ROOT_INODE: folder}
        self._numbers = {folder: pyfuse3.ROOT_INODE}
        self._changes: Counter[str] = Counter()
        self._open: dict[int, tuple[int, str]] = {}
        self._broken: set[int] = set()
        self._next = 0
        self.plan = Plan(on=False)
        self.released = trio.Event()

    async def lookup(self, parent: int, name: bytes, ctx: Any = None) -> pyfuse3.EntryAttributes:
        path = os.path.join(self._paths[parent], os.fsdecode(name))
        await self._fault("stat", path)
        return self._attributes(path)

    async def getattr(self, inode: int, ctx: Any = None) -> pyfuse3.EntryAttributes:
        await self._fault("stat", self._paths[inode])
        return self._attributes(self._paths[inode])

    async def readlink(self, inode: int, ctx: Any) -> bytes:
        return os.fsencode(os.readlink(self._paths[inode]))

    async def open(self, inode: int, flags: int, ctx: Any) -> pyfuse3.FileInfo:
        path = self._paths[inode]
        await self._fault("open", path)
        return pyfuse3.FileInfo(fh=self._number(os.open(path, os.O_RDONLY), path), direct_io=not path.endswith(MAPPED))

    async def read(self, fh: int, off: int, size: int) -> bytes:
        descriptor, path = self._open[fh]
        fault = await self._fault("read", path)
        data = os.pread(descriptor, size, off)
        if fault == "truncate" and path.endswith(MAPPED):
            raise pyfuse3.FUSEError(errno.EIO)
        if fault == "truncate" and data:
            return data[: self.plan.random.randint(1, len(data))]  # nothing at all would be the file's end
        if fault == "flip" and data:
            position = self.plan.random.randrange(len(data))
            return data[:position] + bytes((data[position] ^ 1 << self.plan.random.randrange(8),)) + data[position + 1 :]
        return data

    async def release(self, fh: int) -> None:
        self._broken.discard(fh)
        os.close(self._open.pop(fh)[0])

    async def opendir(self, inode: int, ctx: Any) -> int:
        await self._fault("open", self._paths[inode])
        number: int = self._number(os.open(self._paths[inode], os.O_RDONLY | os.O_DIRECTORY), self._paths[inode])
        return number

    async def readdir(self, fh: int, start: int, token: Any) -> None:
        path = self._open[fh][1]
        fault = await self._fault("list", path)
        names = sorted(os.listdir(path))
        end = (start + len(names)) // 2 if fault == "truncate" else len(names)
        if fh in self._broken or start == end < len(names):  # nothing at all would be the listing's end
            raise pyfuse3.FUSEError(errno.EIO)
        if fault == "truncate":
            self._broken.add(fh)
        for number in range(start, end):
            found = os.path.join(path, names[number])
            if not pyfuse3.readdir_reply(token, os.fsencode(names[number]), self._attributes(found), number + 1):
                return

    async def releasedir(self, fh: int) -> None:
        await self.release(fh)

    def _number(self, descriptor: int, path: str) -> Any:
        self._next += 1
        self._open[self._next] = descriptor, path
        return self._next

    def _attributes(self, path: str) -> pyfuse3.EntryAttributes:
        try:
            status = os.lstat(path)
        except OSError as error:
            raise pyfuse3.FUSEError(error.errno or errno.EIO) from None
        number = self._numbers.setdefault(path, len(self._numbers) + pyfuse3.ROOT_INODE)
        self._paths[number] = path
        entry = pyfuse3.EntryAttributes()
        entry.st_ino, entry.st_mode, entry.st_size, entry.st_nlink = number, status.st_mode, status.st_size, status.st_nlink
        entry.st_uid, entry.st_gid, entry.st_blocks = status.st_uid, status.st_gid, status.st_blocks
        entry.st_mtime_ns = status.st_mtime_ns + self._changes[path]
        entry.st_ctime_ns = status.st_ctime_ns + self._changes[path]
        entry.entry_timeout = entry.attr_timeout = 0
        return entry

    async def _fault(self, operation: str, path: str) -> str | None:
        fault = self.plan.next(operation)
        if fault == "fail":
            raise pyfuse3.FUSEError(errno.EIO)
        if fault == "delay":
            await trio.sleep(0.005)
        if fault == "hang":
            await self.released.wait()
        if fault == "change" and os.path.isfile(path):
            self._changes[path] += 1
        return fault


async def _serve(folder: str) -> None:
    """Until the standard input ends; each line is a plan, or the end of one."""
    files = _Files(folder)
    options = {"fsname=faulty", "ro"} | pyfuse3.default_options
    pyfuse3.init(files, sys.argv[2], options)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pyfuse3.main)
            while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
                told = dict(files.plan.told)
                files.released.set()
                files.released = trio.Event()
                what = json.loads(line)
                files.plan = Plan(what["seed"], what["share"], frozenset(what["only"])) if what else Plan(on=False)
                print(json.dumps(told), flush=True)
            files.released.set()
            files.plan = Plan(on=False)
            pyfuse3.terminate()
    finally:
        pyfuse3.close(unmount=True)


if __name__ == "__main__":
    trio.run(_serve, sys.argv[1])
