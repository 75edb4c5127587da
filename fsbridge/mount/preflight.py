"""Checks before a mount, and the unmounting of stale ones: mistakes become one line and a hint instead of a hang.

Not here: the mount itself (`lifecycle.py`), whether the source is a store that fsbridge can read (`formats/`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import stat
import subprocess
import sys
from shlex import quote
from typing import NamedTuple

from fsbridge.config import SPILL_DIR, Config
from fsbridge.errors import SetupError
from fsbridge.installing import distribution, repair

USAGE, SYSTEM, INTERNAL, INTERRUPTED, FAILED = 1, 2, 4, 8, 32
"""Exit codes of mount(8): wrong invocation or permission; system error; bug; interrupted by the user; mount failure."""

MNT_DETACH = 2

SYSLOG = "/dev/log"
"""The socket of syslog(3)."""

PROCESSES = "the limit of processes is reached (ulimit -u, or the limit of the container)"
"""The usual reason why Python cannot start a thread."""

_HINTS = (
    (
        "busy",
        "see which program uses it with: fuser -vm {mountpoint}   (or detach it with: fsbridge umount --lazy {mountpoint})",
    ),
    ("not found in /etc/mtab", "only root, or the user who mounted it, can unmount it"),
    ("failed to open /etc/mtab", "make this link as root: ln -s /proc/self/mounts /etc/mtab"),
    ("user_allow_other", "add the line user_allow_other to /etc/fuse.conf, or mount without --allow-other"),
    ("no write access to mountpoint", "choose a mount point of your own, or mount as root"),
    ("failed to exec fusermount3", "install it with: apt-get install fuse3"),
    ("mount failed: Permission denied", "AppArmor refuses mounts in a container without --security-opt apparmor=unconfined"),
    ("Operation not permitted", "fusermount3 must be setuid root, and a container needs --cap-add SYS_ADMIN"),
)
"""Parts of messages of the kernel, libfuse and fusermount3, each with a hint. The first that fits counts."""

_PASSED_DESCRIPTOR = re.compile(r"/dev/fd/\d+")


class Mounted(NamedTuple):
    """A line of /proc/self/mountinfo: the directory `root` of file system `device` is seen at `point`."""

    device: str
    root: str
    point: str
    fstype: str
    source: str


WITHOUT = "without FUSE there are: fsbridge cat, fsbridge export, and fsspec in Python"


def is_descriptor(mountpoint: str) -> bool:
    """True if mount.fuse has mounted already and passes the connection (`-o drop_privileges`)."""
    return _PASSED_DESCRIPTOR.fullmatch(mountpoint) is not None


def check(config: Config) -> None:
    """Raise SetupError, with a hint, if a mount cannot work or would hang. Neither forks nor starts threads nor mounts."""
    if not is_descriptor(config.mountpoint):  # else it is open already; this process need not be able to open it
        check_device()
    _check_layout_options(config)
    if config.remote.block_cache and not config.uses_network:
        raise SetupError(f"--block-cache is for URLs, and {config.source} is not one", "leave it out", USAGE)
    _check_spill(config.spill_dir)
    if is_descriptor(config.mountpoint):
        return
    _check_mountpoint(config.mountpoint, config.force)
    if not config.nonempty:
        top = find_mount(config.mountpoint)
        if top is not None:
            raise SetupError(
                f"{config.mountpoint} is already a mount point (of {top.source}, type {top.fstype})",
                _place_advice(top, config.mountpoint),
                FAILED,
            )
    if os.path.exists(config.source):
        _check_nesting(config.source, config.mountpoint)
    if not config.nonempty and os.listdir(config.mountpoint):
        raise SetupError(
            f"{config.mountpoint} is not empty, and what is in it would be hidden",
            "name an empty directory, or mount over it with --nonempty",
            USAGE,
        )


def _place_advice(top: Mounted, mountpoint: str) -> str:
    """Return the advice for a mount point that is in use. Only a mount of fsbridge is to be unmounted."""
    if top.fstype == "fuse.fsbridge":
        return f"unmount it with: fsbridge umount {quote(mountpoint)}   (or mount over it with -o nonempty)"
    return "name another directory, or mount over it with -o nonempty"


def _check_layout_options(config: Config) -> None:
    """Refuse options of a layout that is not chosen: they would do nothing, and the user expects that layout."""
    plain = Config(config.source, config.mountpoint)
    given = {
        "--files": ("files", config.files != plain.files),
        "--consolidated": ("zarr2", config.consolidated),
        "--chunk-separator": ("zarr2", config.chunk_separator != plain.chunk_separator),
    }
    for option, (layout, is_given) in given.items():
        if is_given and layout not in config.layout.split(","):
            raise SetupError(
                f"{option} is for the layout {layout}, but the layout is {config.layout}", f"add: --layout {layout}", USAGE
            )


def _check_spill(directory: str) -> None:
    """Check that a folder that was named can hold unlinked files; a missing default folder is reported when it is needed."""
    if directory == SPILL_DIR:
        return
    try:
        os.close(os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        hint = (
            f"make it with: mkdir -p {quote(directory)}"
            if error.errno == errno.ENOENT
            else "name a directory on a local disk"
        )
        raise SetupError(f"--spill-dir {directory}: {error.strerror}", hint) from None


def unloadable(error: ImportError) -> SetupError:
    """Return the error for a library that is missing or can no longer be loaded, as after an upgrade of the system."""
    name = distribution(error.name or "")
    hint = f"install fsbridge again into this Python: {sys.executable}" if name is None else repair([name])
    if "libfuse" in str(error):
        hint = f"as root: apt-get install fuse3; after an upgrade of the system: {repair(['pyfuse3'])}"
    if "fuse" in str(error):
        hint += f"; {WITHOUT}"
    return SetupError(f"Python cannot load what fsbridge needs: {error}", hint, SYSTEM)


def list_mounts(table: str = "/proc/self/mountinfo") -> list[Mounted]:
    """Return all mounts in order; SetupError if the kernel does not tell them."""
    mounted = []
    try:
        with open(table, "rb") as file:
            lines = file.readlines()
    except OSError as error:
        raise SetupError(f"{table}: {error.strerror}", "mount -t proc proc /proc", SYSTEM) from None
    for line in lines:
        left, _, right = os.fsdecode(line).partition(" - ")
        fields, more = left.split(" "), right.split(" ")
        mounted.append(Mounted(fields[2], _plain(fields[3]), _plain(fields[4]), more[0], _plain(more[1])))
    return mounted


def find_mount(mountpoint: str) -> Mounted | None:
    """Return the topmost mount on `mountpoint`, found without touching it (a stale mount cannot be touched)."""
    parent, name = os.path.split(os.path.abspath(mountpoint))
    path, table = os.path.join(os.path.realpath(parent), name), list_mounts()
    if all(mount.point != path for mount in table):
        path = os.path.realpath(path)  # a symlink to a mount point, perhaps
    return next((mount for mount in reversed(table) if mount.point == path), None)


def unmount(mountpoint: str, lazy: bool = False) -> None:
    """Unmount an fsbridge mount, as its owner or as root; SetupError if that is impossible."""
    top = find_mount(mountpoint)
    if top is None:
        ours = [mount for mount in list_mounts() if mount.fstype == "fuse.fsbridge"]
        meant = next((mount.point for mount in ours if _means(mountpoint, mount)), "")
        find = "fsbridge list shows all mounts" if ours else "fsbridge list shows all mounts; there are none"
        raise SetupError(
            f"{mountpoint} is not mounted", f"perhaps: fsbridge umount {quote(meant)}" if meant else find, FAILED
        )
    if top.fstype != "fuse.fsbridge":
        advice = f"unmount it with: umount {quote(mountpoint)}" if top.fstype.startswith("fuse") else ""
        raise SetupError(f"{mountpoint} is not a mount of fsbridge (it is {top.source}, type {top.fstype})", advice, FAILED)
    problem = _unmount_as_root(top.point, lazy) if os.geteuid() == 0 else _unmount_as_user(top.point, lazy)
    if problem:
        raise SetupError(f"cannot unmount {mountpoint}: {problem}", hint(problem, mountpoint), FAILED)


def _means(path: str, mount: Mounted) -> bool:
    """True if `path` is the store that `mount` shows, or lies below its mount point. Touches no mount."""
    path = os.path.abspath(path)
    return path == mount.source or path.startswith(f"{mount.point}/")


def hint(words: str, mountpoint: str) -> str:
    """Return what helps against an error of the kernel or fusermount3; empty if nothing is known to help."""
    return next((help.format(mountpoint=quote(mountpoint)) for said, help in _HINTS if said in words), "")


def _unmount_as_root(point: str, lazy: bool) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(point), MNT_DETACH if lazy else 0) == 0:
        return ""
    return os.strerror(ctypes.get_errno())


def program_folders() -> str:
    """Return the folders in which programs are looked for, in the form of PATH: those of the user, then the system's."""
    return f"{os.environ.get('PATH') or os.defpath}:/usr/bin:/bin"  # an empty name would be the current folder


def _unmount_as_user(point: str, lazy: bool, folders: str | None = None) -> str:
    helper = shutil.which("fusermount3", path=folders or program_folders())
    if helper is None:
        raise SetupError("fusermount3 is not installed", "install it with: apt-get install fuse3", SYSTEM)
    command = [helper, "-u", *(["-z"] if lazy else []), "--", point]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or f"{helper} failed"


def check_device(device: str = "/dev/fuse") -> None:
    """Raise SetupError if the device of FUSE cannot be opened."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        raise without_fuse(error) from None


def without_fuse(error: OSError) -> SetupError:
    """Return the error for a device of FUSE that cannot be opened. Its hint names the commands that need no FUSE."""
    if error.errno == errno.ENOENT:
        hint = "load the module with: modprobe fuse   (containers need --device /dev/fuse --cap-add SYS_ADMIN)"
        return SetupError("/dev/fuse does not exist", f"{hint}; {WITHOUT}", SYSTEM)
    if error.errno in (errno.ENODEV, errno.ENXIO):
        return SetupError("the kernel has no FUSE", f"load the module with: modprobe fuse; {WITHOUT}", SYSTEM)
    hint = f"mount as root, or give your user access to it; {WITHOUT}"
    return SetupError(f"cannot open /dev/fuse: {error.strerror}", hint, USAGE)


def _check_mountpoint(mountpoint: str, force: bool) -> None:
    try:
        os.statvfs(mountpoint)  # stat(2) of a mount whose daemon has ended may still be answered from the kernel's memory
        kind = os.stat(mountpoint).st_mode
    except OSError as error:
        if error.errno in (errno.ENOTCONN, errno.ECONNABORTED):  # ECONNABORTED while the daemon is ending
            if not force:
                quoted = quote(mountpoint)
                raise SetupError(
                    f"{mountpoint} is a stale mount: its daemon has ended",
                    f"unmount it with: fsbridge umount {quoted}   (or: fusermount3 -u {quoted}, or mount with --force)",
                    FAILED,
                ) from None
            unmount(mountpoint, lazy=True)
            _check_mountpoint(mountpoint, force)
            return
        if error.errno == errno.ENOENT:
            if os.path.islink(mountpoint):
                words = f"mount point {mountpoint} is a link to {os.readlink(mountpoint)}, which does not exist"
                raise SetupError(words, exit_code=FAILED) from None
            raise SetupError(
                f"mount point {mountpoint} does not exist", f"create it with: mkdir -p {quote(mountpoint)}", FAILED
            ) from None
        raise SetupError(f"mount point {mountpoint}: {error.strerror}", exit_code=FAILED) from None
    if not stat.S_ISDIR(kind):
        raise SetupError(f"mount point {mountpoint} is not a directory", exit_code=FAILED)


def _check_nesting(source: str, mountpoint: str) -> None:
    """Refuse a store inside its own mount, or around it: the daemon would wait for itself when it reads the store."""
    inside = f"mount point {mountpoint} is inside the store {source}"
    around = f"the store {source} is inside the mount point {mountpoint}"
    hint = "choose a mount point elsewhere, for example below /mnt"
    table = list_mounts()
    for store_path in {source, _alias(source, table)}:
        for point_path in {mountpoint, _alias(mountpoint, table)}:
            if _identity(source) in map(_identity, _upwards(point_path)):
                raise SetupError(inside, hint, FAILED)
            if _identity(mountpoint) in map(_identity, _upwards(store_path)):
                raise SetupError(around, hint, FAILED)
    # The same directories seen through bind mounts: compare their places in the file systems themselves.
    store, point = _origin(source, table), _origin(mountpoint, table)
    if store is not None and point is not None and store[0] == point[0]:
        if _beneath(point[1], store[1]):
            raise SetupError(inside, hint, FAILED)
        if _beneath(store[1], point[1]):
            raise SetupError(around, hint, FAILED)


def _upwards(path: str) -> list[str]:
    """Return the real path and all directories above it."""
    path = os.path.realpath(path)
    paths = [path]
    while path != "/":
        path = os.path.dirname(path)
        paths.append(path)
    return paths


def _identity(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror}", exit_code=FAILED) from None
    return status.st_dev, status.st_ino


def _origin(path: str, table: list[Mounted]) -> tuple[str, str] | None:
    """Return the device that holds `path`, and the path inside that device's file system."""
    path = os.path.realpath(path)
    cover = _cover(path, table)
    if cover is None:
        return None
    rest = os.path.relpath(path, cover.point)
    return cover.device, os.path.normpath(os.path.join(cover.root, rest))


def _alias(path: str, table: list[Mounted]) -> str:
    """Return `path` without the bind mount that leads to it, if the bound directory can also be reached directly.

    In a chroot the mount table does not show the root's own place, so only the end of the bound path can be tried.
    """
    path = os.path.realpath(path)
    cover = _cover(path, table)
    parts = [] if cover is None else cover.root.split("/")
    for start in range(1, len(parts)):
        candidate = "/" + "/".join(parts[start:])
        if cover is not None and os.path.exists(candidate) and os.path.samefile(candidate, cover.point):
            other = os.path.normpath(os.path.join(candidate, os.path.relpath(path, cover.point)))
            return other if os.path.exists(other) else path
    return path


def _cover(path: str, table: list[Mounted]) -> Mounted | None:
    """Return the mount on which the real path `path` lies; None if a chroot hides that mount."""
    cover: Mounted | None = None
    for mount in table:
        if _beneath(path, mount.point) and (cover is None or len(mount.point) >= len(cover.point)):
            cover = mount
    return cover


def _beneath(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def _plain(field: str) -> str:
    """Undo mountinfo's octal escapes of blanks and backslashes."""
    raw = re.sub(rb"\\([0-7]{3})", lambda code: bytes((int(code[1], 8),)), os.fsencode(field))
    return os.fsdecode(raw)
