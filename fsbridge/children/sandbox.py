"""Confinement of a child process: memory, no core dumps, and where the kernel has Landlock nothing but named files to open.

Not here: what the child may open (the daemon says so). Only the standard library: this runs beside HDF5, after all imports.
"""

from __future__ import annotations

import ctypes
import os
import resource
import stat
from collections.abc import Sequence

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_VERSION_FLAG = 1
_PR_SET_NO_NEW_PRIVS = 38
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of file system rights by Landlock ABI (landlock(7)); later ABIs have those of 5."""
_NET_RIGHTS = 0b11
"""Bind and connect TCP, since ABI 4."""


_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def limit_resources(address_space: int) -> None:
    """No core dumps (they would hold data), and at most `address_space` bytes of virtual memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = address_space if hard == resource.RLIM_INFINITY else min(address_space, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def restrict_files(readable: Sequence[str]) -> bool:
    """From now on this process can open nothing but `readable` (files, or folders with all below), and only to read.

    False where the kernel has no Landlock: then the checks of the worker are the only wall.
    """
    libc = _libc
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    if version < 1:
        return False
    rights = (1 << _FS_RIGHTS.get(min(version, 5), 16)) - 1
    ruleset = _Ruleset(rights, _NET_RIGHTS if version >= 4 else 0)
    size = ctypes.sizeof(ruleset) if version >= 4 else 8
    handle = libc.syscall(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), ctypes.c_uint32(0))
    if handle < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    try:
        for path in readable:
            _allow(libc, handle, path)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
        if libc.syscall(_RESTRICT_SELF, handle, ctypes.c_uint32(0)):
            raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    finally:
        os.close(handle)
    return True


def _allow(libc: ctypes.CDLL, handle: int, path: str) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights = _READ_FILE | _READ_DIR if stat.S_ISDIR(os.fstat(fd).st_mode) else _READ_FILE
        rule = _PathBeneath(rights, fd)
        if libc.syscall(_ADD_RULE, handle, _RULE_PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint32(0)):
            raise OSError(ctypes.get_errno(), f"landlock_add_rule for {path}")
    finally:
        os.close(fd)
