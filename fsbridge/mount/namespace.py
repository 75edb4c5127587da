"""Mount namespaces that the calling process enters: one of its own, or another process's. Not here: what is mounted."""

from __future__ import annotations

import contextlib
import ctypes
import os

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REC, MS_SLAVE = 1, 2, 4, 0x4000, 1 << 19
MNT_DETACH = 2


def enter() -> None:
    """Move this process, which has one thread, into a mount namespace where it may mount; OSError if that is refused.

    User and groups stay what they are.
    """
    libc = _libc()
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWNS):
        _check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS))
        with contextlib.suppress(FileNotFoundError):
            _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    _check(libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None))  # what others unmount is unmounted here, too


def join(path: str) -> None:
    """Move this process, which has one thread, into the mount namespace of the file `path`; OSError if that is refused."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc().setns(file, CLONE_NEWNS))
    finally:
        os.close(file)


def permitted(folder: str) -> bool:
    """True if a process may `enter` and then mount FUSE on `folder`. A child tries it and leaves nothing behind."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            enter()
            _try_mount(folder)
            code = 0
        except OSError:
            pass
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return status == 0


def _try_mount(folder: str) -> None:
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()}"
    flags = MS_RDONLY | MS_NOSUID | MS_NODEV
    libc = _libc()
    _check(libc.mount(b"fsbridge", os.fsencode(folder), b"fuse.fsbridge", flags, options.encode()))
    libc.umount2(os.fsencode(folder), MNT_DETACH)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
