"""Landlock (landlock(7)): from now on this thread, and whatever it starts, may open nothing but what a set of rules names.

Not here: which files a child process may open (`server.py`). Only the standard library. Looking (stat, O_PATH) and what is
open already are never restricted.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Sequence
from struct import Struct

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_VERSION_FLAG = 1
_PR_SET_NO_NEW_PRIVS = 38
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of file system rights by Landlock's version; later ones have those of 5."""
_NET_RIGHTS = 0b11
"""Bind and connect TCP, since version 4."""

_ATTRIBUTES, _PATH_BENEATH = Struct("=QQ"), Struct("=Qi")
"""The kernel's structures: rights of file systems and of networks; what is allowed below a descriptor (packed)."""

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Return the version of the kernel's Landlock; 0 if it has none."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))))


def ruleset(readable: Sequence[str]) -> int:
    """Return a descriptor of rules: only `readable` may be opened, and only to read; from version 4 on no TCP connection.

    `readable`: files, and folders with all below them. A rule is about the inode that is at a path now, and a path with
    nothing there gets no rule. Raises OSError where the kernel has no Landlock.
    """
    known = version()
    rights = (1 << _FS_RIGHTS.get(min(known, 5), 16)) - 1
    attributes = _ATTRIBUTES.pack(rights, _NET_RIGHTS if known >= 4 else 0)
    size = len(attributes) if known >= 4 else 8
    handle = int(_libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0)))
    if handle < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    os.set_inheritable(handle, False)
    try:
        for path in readable:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                _allow(handle, path)
    except BaseException:
        os.close(handle)
        raise
    return handle


def restrict(handle: int) -> None:
    """Confine the calling thread to the rules, for ever; OSError if the kernel will not."""
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    if _libc.syscall(_RESTRICT_SELF, handle, ctypes.c_uint32(0)):
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")


def _allow(handle: int, path: str) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights = _READ_FILE | _READ_DIR if stat.S_ISDIR(os.fstat(fd).st_mode) else _READ_FILE
        rule = _PATH_BENEATH.pack(rights, fd)
        if _libc.syscall(_ADD_RULE, handle, _RULE_PATH_BENEATH, rule, ctypes.c_uint32(0)):
            raise OSError(ctypes.get_errno(), f"landlock_add_rule for {path}")
    finally:
        os.close(fd)
