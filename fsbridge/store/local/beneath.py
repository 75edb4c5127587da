"""Open a path that cannot leave a directory: openat2(2) with RESOLVE_BENEATH, or the same rules step by step.

Not here: what is opened and why. The step-by-step form serves kernels before 5.6 and sandboxes that forbid openat2.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

_SYS_OPENAT2 = 437  # the same number on every Linux architecture
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_BENEATH = 0x08
STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags that open one directory on the way, but no link."""
_MAX_LINKS = 40  # the kernel's own limit

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_syscall = _libc.syscall
_ENCODING = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_HOW_BYTES = ctypes.sizeof(_OpenHow)


@lru_cache(maxsize=32)
def _how(flags: int, resolve: int) -> Any:
    return ctypes.byref(_OpenHow(flags, 0, resolve))


def openat2(root: int, path: str, flags: int, resolve: int, call: Any = _syscall) -> tuple[int, int]:
    """Open by the system call. Return a descriptor and 0, or -1 and an errno. `call`: the C library's `syscall`."""
    fd: int = call(_SYS_OPENAT2, root, path.encode(*_ENCODING), _how(flags, resolve), _HOW_BYTES)
    return (fd, 0) if fd >= 0 else (-1, ctypes.get_errno())


def open_beneath(root: int, path: str, flags: int) -> int:
    """Open relative `path` below the directory descriptor `root`, following links that stay below it.

    Raises OSError: EXDEV when the path leads out of `root`, else what open(2) says.
    """
    if "\0" in path:  # C would cut the path here and open something else
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if not HAVE_OPENAT2:
        return walk_beneath(root, path, flags)
    for _ in range(100):
        fd, number = openat2(root, path, flags, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
        if fd >= 0:
            return fd
        if number not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a rename elsewhere made the kernel unsure; ask again
            break
    raise OSError(number, os.strerror(number), path)


def walk_beneath(root: int, path: str, flags: int, check: Callable[[int], None] | None = None) -> int:
    """Do the same as `open_beneath`, one component at a time, without openat2.

    `check` is called with a descriptor of each directory on the way, also of those that links lead through.
    """
    pending = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    trail = [os.dup(root)]
    links = 0
    try:
        if check is not None:
            check(root)
        while pending:
            part = pending.pop()
            if part == "..":
                if len(trail) == 1:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
                os.close(trail.pop())
                continue
            try:
                if pending:
                    trail.append(os.open(part, STEP, dir_fd=trail[-1]))
                    if check is not None:
                        check(trail[-1])
                    continue
                target = None if flags & os.O_NOFOLLOW else _readlink(part, trail[-1])
                if target is None:
                    return os.open(part, flags | os.O_NOFOLLOW, dir_fd=trail[-1])
            except NotADirectoryError:  # a link, or a file
                target = _readlink(part, trail[-1]) if pending else None
                if target is None:
                    raise
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
            pending += [step for step in reversed(target.split("/")) if step not in ("", ".")]
        return os.open(".", flags, dir_fd=trail[-1])
    finally:
        for fd in trail:
            os.close(fd)


def _readlink(name: str, directory: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None  # not a link
        raise


def _probe() -> bool:
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        fd, _ = openat2(root, ".", os.O_PATH | os.O_CLOEXEC, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
        if fd >= 0:
            os.close(fd)
        return fd >= 0
    finally:
        os.close(root)


HAVE_OPENAT2 = _probe()
"""True if the kernel has it, and lets this process use it."""
