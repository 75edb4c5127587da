"""The checks of `fsbridge doctor`: this machine, its mounts, and one source. Each bad finding names a remedy.

Not here: how findings are printed (`doctor.py`).
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from shlex import quote
from typing import Literal

from fsbridge import __version__
from fsbridge.children import landlock
from fsbridge.codecs.table import Codec, libraries
from fsbridge.errors import FsbridgeError, SetupError
from fsbridge.installing import install, repair
from fsbridge.mount.preflight import SYSLOG, check_device, program_folders
from fsbridge.store.local import descriptors

State = Literal["ok", "note", "bad"]
"""States of a finding: good; worth knowing, but a mount works; something does not work."""

LIBRARIES = (
    *("pyfuse3", "trio", "numpy", "numcodecs", "cramjam", "deflate", "google-crc32c", "xxhash", "lmdb", "msgpack"),
    *("h5py", "obstore", "tifffile", "nibabel", "fsspec", "tqdm"),
)
"""Distributions that fsbridge needs."""


MOST_NAMES = 6
"""Most codecs of a library that are named."""


def _describe_data(codecs: list[Codec]) -> str:
    kind = "HDF5" if all(codec.hdf5 is not None for codec in codecs) else "Zarr"
    names = [codec.name for codec in codecs]
    more = f" and {len(names) - MOST_NAMES} more codecs" if len(names) > MOST_NAMES else ""
    return f"{kind} data compressed by {', '.join(names[:MOST_NAMES])}{more}"


OPTIONAL = {
    **{library.name: _describe_data(codecs) for library, codecs in libraries().items()},
    "distributed": "--dask: work on the workers of a Dask cluster",
    "boto3": "--profile: credentials from ~/.aws",
}
"""Distributions without which some data cannot be read."""

IMPORTED = f"import {', '.join(LIBRARIES).replace('-', '_')}"

FEW_FILES = 1024
"""Open files that a daemon with many readers may need."""

CLOCK_SECONDS = 5.0
"""Most seconds between our clock and a file system's: the age of a change is computed from both."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A finding about one subject. `mend`: the command or the change that helps."""

    subject: str
    state: State
    words: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as a mount finds it: the user, where things are, and what the kernel and Python say about themselves."""

    user: int = field(default_factory=os.geteuid)
    device: str = "/dev/fuse"
    program_folders: str = field(default_factory=program_folders)
    fuse_conf: str = "/etc/fuse.conf"
    helper: str = "/sbin/mount.fsbridge"
    syslog: str = SYSLOG
    landlock: int = field(default_factory=landlock.version)
    has_openat2: bool = descriptors.HAVE_OPENAT2
    open_files: tuple[int, int] = field(default_factory=partial(resource.getrlimit, resource.RLIMIT_NOFILE))
    version: Callable[[str], str] = version
    """Returns the version of a distribution; raises PackageNotFoundError."""
    now: Callable[[], float] = time.time


def check_machine(machine: Machine) -> Iterator[Diagnosis]:
    """Yield the findings about a machine and what is installed on it."""
    for look in (
        _check_fuse,
        _check_fusermount,
        _check_allow_other,
        _check_helper,
        _check_kernel,
        _check_imports,
        _check_versions,
        _check_optional,
        _check_open_files,
        _check_clock,
        _check_log,
    ):
        yield from look(machine)


def _check_fuse(machine: Machine) -> Iterator[Diagnosis]:
    try:
        check_device(machine.device)
    except SetupError as error:
        words, _, mend = str(error).partition("\n  ")
        yield Diagnosis("/dev/fuse", "bad", words, mend)
    else:
        yield Diagnosis("/dev/fuse", "ok", "can be opened")


def _check_fusermount(machine: Machine) -> Iterator[Diagnosis]:
    path = shutil.which("fusermount3", path=machine.program_folders)
    needed: State = "note" if machine.user == 0 else "bad"  # root mounts without it
    if path is None:
        yield Diagnosis("fusermount3", needed, "is not installed: only root can mount", "apt-get install fuse3")
    elif not os.stat(path).st_mode & stat.S_ISUID:
        mend = f"as root: chmod u+s {quote(path)}"
        yield Diagnosis("fusermount3", needed, f"{path} is not setuid root: only root can mount", mend)
    else:
        yield Diagnosis("fusermount3", "ok", path)


def _check_allow_other(machine: Machine) -> Iterator[Diagnosis]:
    try:
        with open(machine.fuse_conf) as file:
            allowed = any(line.strip() == "user_allow_other" for line in file)
    except OSError:
        allowed = False
    if allowed or machine.user == 0:
        yield Diagnosis("--allow-other", "ok", "is permitted")
    else:
        words = "is for root only: other users cannot see into your mounts"
        yield Diagnosis("--allow-other", "note", words, f"as root: echo user_allow_other >> {machine.fuse_conf}")


def _check_helper(machine: Machine) -> Iterator[Diagnosis]:
    if os.access(machine.helper, os.X_OK):
        yield Diagnosis("mount -t fsbridge", "ok", f"{machine.helper} is {os.path.realpath(machine.helper)}")
    elif os.path.islink(machine.helper):
        words = f"{machine.helper} leads to {os.readlink(machine.helper)}, which does not exist"
        yield Diagnosis("mount -t fsbridge", "bad", words, "as root: fsbridge install-helper")
    else:
        yield Diagnosis("mount -t fsbridge", "note", "the helper is not installed", "as root: fsbridge install-helper")


def _check_kernel(machine: Machine) -> Iterator[Diagnosis]:
    yield Diagnosis("kernel", "ok", f"Linux {platform.release()}")
    if machine.landlock:
        yield Diagnosis("Landlock", "ok", f"version {machine.landlock}: child processes may open nothing but their files")
    else:
        words = "not available: only their own checks keep child processes to their files"
        yield Diagnosis(
            "Landlock", "note", words, "Linux 5.13 or later has it; it may be off (lsm= of the kernel's command line)"
        )
    if machine.has_openat2:
        yield Diagnosis("openat2", "ok", "paths are resolved beneath the store by the kernel")
    else:
        yield Diagnosis(
            "openat2", "note", "not available: paths are resolved step by step, which is slower", "Linux 5.6 or later has it"
        )


def _check_imports(_machine: Machine) -> Iterator[Diagnosis]:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2] or f"Python ended with {done.returncode}"
        name = next((name for name in LIBRARIES if name.replace("-", "_") in reason), "")
        mend = "as root: apt-get install fuse3" if "libfuse" in reason else repair([name] if name else LIBRARIES)
        yield Diagnosis("libraries", "bad", f"cannot be loaded: {reason}", mend)


def _check_versions(machine: Machine) -> Iterator[Diagnosis]:
    versions, missing = [f"fsbridge {__version__}", f"Python {platform.python_version()}"], []
    for name in LIBRARIES:
        try:
            versions.append(f"{name} {machine.version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    yield Diagnosis("versions", "ok", ", ".join(versions))
    if missing:
        words = f"not installed: {', '.join(missing)}"
        yield Diagnosis("libraries", "bad", words, repair(missing))


def list_versions() -> list[str]:
    """Return a line for each piece of software that may matter in a bug report."""
    lines = [f"fsbridge {__version__}", f"Python {platform.python_version()} ({sys.executable})"]
    for name in (*LIBRARIES, *OPTIONAL):
        try:
            lines.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            lines.append(f"{name} (not installed)")
    return [*lines, f"libfuse {_find_libfuse()}", f"Linux {platform.release()} {platform.machine()}", f"libc {_find_libc()}"]


def _find_libfuse() -> str:
    for name in ("libfuse3.so.4", "libfuse3.so.3"):
        try:
            version = ctypes.CDLL(name).fuse_pkgversion
        except (OSError, AttributeError):
            continue
        version.restype = ctypes.c_char_p
        return str(version().decode())
    return "(not found)"


def _find_libc() -> str:
    return " ".join(platform.libc_ver()).strip() or "(unknown)"


def _check_optional(machine: Machine) -> Iterator[Diagnosis]:
    for name, use in OPTIONAL.items():
        try:
            yield Diagnosis(name, "ok", f"{machine.version(name)}, for {use}")
        except PackageNotFoundError:
            before = next((one.before for one in libraries() if one.name == name), "")
            yield Diagnosis(name, "note", f"is not installed, but needed for: {use}", install(name, before))


def _check_open_files(machine: Machine) -> Iterator[Diagnosis]:
    soft, hard = machine.open_files
    if soft < FEW_FILES:
        mend = f"ulimit -n {min(hard, 65536) if hard > 0 else 65536}"
        yield Diagnosis("open files", "note", f"{soft} at most: many readers at the same time may get errors", mend)
    else:
        yield Diagnosis("open files", "ok", f"{soft} at most")


def _check_clock(machine: Machine) -> Iterator[Diagnosis]:
    mend = "timedatectl set-ntp true"
    made = os.stat(__file__).st_mtime
    with tempfile.TemporaryFile() as file:
        file.write(b"x")
        file.flush()
        now = machine.now()
        apart = os.fstat(file.fileno()).st_mtime - now
    local = time.localtime(now)
    if now < made - 86400:
        yield Diagnosis("clock", "bad", f"{time.strftime('%Y-%m-%d', local)} is before fsbridge was installed", mend)
    elif abs(apart) > CLOCK_SECONDS:
        yield Diagnosis(
            "clock",
            "note",
            f"the clock of the file system of {tempfile.gettempdir()} differs from it by {apart:.0f} s",
            mend,
        )
    else:
        yield Diagnosis("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S %Z", local))


def _check_log(machine: Machine) -> Iterator[Diagnosis]:
    if os.path.exists(machine.syslog):
        yield Diagnosis("log", "ok", "goes to syslog; show it with: journalctl -t fsbridge")
    else:
        words = "there is no syslog, so logs of mounts in the background are lost"
        yield Diagnosis("log", "note", words, "mount with --log-file FILE; fsbridge errors MOUNTPOINT works without")


def check_mounts() -> Iterator[Diagnosis]:
    """Yield the findings about the mounts of this machine."""
    from fsbridge.mount.running import GONE, SILENT, ask, list_running

    for status in ask(list_running(), {"ask": "status"}):
        point, pid = status.mount.mountpoint, status.mount.pid
        if status.state == GONE:
            yield Diagnosis(point, "bad", f"is stale: its daemon (pid {pid}) has ended", f"fsbridge umount {quote(point)}")
        elif status.state == SILENT:
            mend = f"kill -9 {pid}; fsbridge umount --lazy {quote(point)}"
            yield Diagnosis(point, "bad", f"its daemon (pid {pid}) is stopped or hangs", mend)
        elif status.answer.get("errors"):
            yield Diagnosis(point, "note", f"{status.state or 'answers'}, with errors", f"fsbridge errors {quote(point)}")
        else:
            yield Diagnosis(point, "ok", status.state or "answers")


def check_source(path: str, look: Callable[[], Iterator[Diagnosis]]) -> Iterator[Diagnosis]:
    """Yield the findings of `look` about a source. If `look` raises an error, that is a finding, too."""
    try:
        yield from look()
    except SetupError as error:
        words, _, mend = str(error).partition("\n  ")
        yield Diagnosis(path, "bad", words, mend)
    except (FsbridgeError, OSError) as error:
        yield Diagnosis(path, "bad", str(error), f"fsbridge info {quote(path)} shows what can be read")


def check_all(path: str, look: Callable[[], Iterator[Diagnosis]] | None) -> Iterator[Diagnosis]:
    """Yield all findings. `look` yields those about the source at `path`; None if no source was named."""
    yield from check_machine(Machine())
    yield from check_mounts()
    if look is not None:
        yield from check_source(path, look)
