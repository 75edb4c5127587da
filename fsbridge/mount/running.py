"""The mounts of this machine as a command sees them: which daemon serves what, asked through the control sockets.

Nothing here touches a mount: a hung one would hang the command, too. All daemons are asked at once, and one deadline is for
all, so one that hangs delays no other. Not here: the daemon's side (`control.py`), what is printed (`commands/`).
"""

from __future__ import annotations

import array
import contextlib
import glob
import json
import os
import socket
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, TypeVar

from fsbridge import __version__
from fsbridge.errors import SetupError, printable
from fsbridge.mount.control import folders, is_private, short_address
from fsbridge.mount.preflight import FAILED, SYSTEM, Mounted, find_mount, list_mounts
from fsbridge.threads.deadlines import Deadline

ANSWER_SECONDS = 0.6
"""Seconds within which all daemons must answer, so that the command takes less than a second."""

FACTS_BYTES, ANSWER_BYTES = 65536, 8 << 20
"""Bytes of a daemon's file and of its answer at most: root reads what other users wrote."""

GONE, SILENT, UNKNOWN = "daemon has ended", "does not answer", "unknown"
"""States of a mount without an answer: its daemon has ended without unmounting; or it is stopped or hangs; or it is
another user's, or has no control socket."""


MISUNDERSTOOD = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError)
"""Errors of reading an answer that another version of fsbridge gave in another form."""


@dataclass(frozen=True, slots=True)
class Running:
    """A mount: what is known without asking its daemon, and the socket to ask it (empty: there is none)."""

    mountpoint: str
    source: str
    format: str = ""
    layout: str = ""
    pid: int = 0
    started: float = 0.0
    version: str = ""
    socket: str = ""


@dataclass(frozen=True, slots=True)
class MountStatus:
    """The answer of a daemon, or in `state` the reason why there is none."""

    mount: Running
    state: str
    answer: Mapping[str, Any]


def list_running() -> list[Running]:
    """Return all visible mounts of fsbridge, sorted by mount point, and remove what daemons that have ended left behind."""
    table = [mount for mount in list_mounts() if mount.fstype == "fuse.fsbridge"]
    daemons = [daemon for place in _places() for daemon in _in_folder(place, table)]
    known = [daemon.mountpoint for daemon in daemons]
    for mount in table:
        if mount.point in known:
            known.remove(mount.point)  # one daemon for each of several mounts on one directory
        else:
            daemons.append(Running(mount.point, mount.source))
    return sorted(daemons, key=lambda daemon: (daemon.mountpoint, daemon.started))


def find_serving(mountpoint: str) -> list[Running]:
    """Return the mounts on `mountpoint`, the latest last; SetupError if there is none."""
    everything = list_running()
    mounted = find_mount(mountpoint)
    places = {os.path.abspath(mountpoint), "" if mounted is None else mounted.point}
    daemons = [daemon for daemon in everything if daemon.mountpoint in places]
    if not daemons:
        others = ", ".join(daemon.mountpoint for daemon in everything)
        hint = f"mounts of fsbridge: {others}" if others else "fsbridge list shows all mounts; there are none"
        raise SetupError(f"{mountpoint}: fsbridge has no store mounted there", hint, FAILED)
    return daemons


def ask(daemons: Sequence[Running], question: Mapping[str, Any], descriptor: int | None = None) -> list[MountStatus]:
    """Ask all `daemons` at once, and return what each answers within `ANSWER_SECONDS`."""
    deadline = Deadline(ANSWER_SECONDS)
    asked = [(daemon, *_send(daemon, question, descriptor)) for daemon in daemons]
    return [_receive(daemon, connection, state, deadline) for daemon, connection, state in asked]


def misunderstood(mount: Running) -> str:
    """Return why an answer cannot be read, in words: this command and the daemon are of different versions."""
    version = mount.version or "of an unknown version"
    return f"the daemon is fsbridge {version}, and this command, {__version__}, does not understand its answer"


T = TypeVar("T")


def ask_one(
    mountpoint: str, question: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T], descriptor: int | None = None
) -> T:
    """Return what `read` makes of the answer of the daemon at `mountpoint`; SetupError says why there is none."""
    (status,) = ask(find_serving(mountpoint)[-1:], question, descriptor)
    if status.state == GONE:
        raise SetupError(
            f"{mountpoint}: its daemon (pid {status.mount.pid}) has ended",
            f"unmount it with: fsbridge umount {mountpoint}",
            SYSTEM,
        )
    if status.state == SILENT:
        raise SetupError(
            f"{mountpoint}: its daemon (pid {status.mount.pid}) does not answer",
            f"it is stopped or hangs; end it with: kill -9 {status.mount.pid}; fsbridge umount --lazy {quote(mountpoint)}",
            SYSTEM,
        )
    if status.state == UNKNOWN:
        raise SetupError(f"{mountpoint}: its daemon cannot be asked", "ask as the user who mounted it, or as root", SYSTEM)
    if "error" in status.answer:
        raise SetupError(printable(str(status.answer["error"])))
    try:
        return read(status.answer)
    except MISUNDERSTOOD:
        advice = f"use the version that mounted it, or mount it again: fsbridge umount {quote(mountpoint)}"
        raise SetupError(f"{mountpoint}: {printable(misunderstood(status.mount))}", advice, SYSTEM) from None


def _places() -> list[str]:
    """Return the folders of control sockets: this user's, and for root those of all users."""
    places = [path for path in folders() if is_private(path)]
    if os.geteuid() == 0:
        places += [*glob.glob("/run/user/*/fsbridge"), *glob.glob("/tmp/fsbridge-*")]
    return list(dict.fromkeys(places))


def _in_folder(folder: str, table: Sequence[Mounted]) -> list[Running]:
    daemons = []
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    for name in names:
        if name.endswith(".json") and (daemon := _describe(f"{folder}/{name}")) is not None:
            mounted = any(mount.point == daemon.mountpoint for mount in table)
            if mounted or _lives(daemon):
                daemons.append(daemon)
            elif is_private(folder):
                for remains in (daemon.socket, f"{folder}/{name}"):
                    with contextlib.suppress(OSError):
                        os.unlink(remains)
    return daemons


def _describe(path: str) -> Running | None:
    """Return what the file beside a control socket says; None if it is not such a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            said = json.loads(file.read(FACTS_BYTES))
        return Running(
            mountpoint=str(said["mountpoint"]),
            source=str(said["source"]),
            format=str(said.get("format", "")),
            layout=str(said.get("layout", "")),
            pid=int(said["pid"]),
            started=float(said["started"]),
            version=str(said.get("version", "")),
            socket=f"{path.removesuffix('.json')}.sock",
        )
    except (OSError, *MISUNDERSTOOD, RecursionError):
        return None


def _lives(daemon: Running) -> bool:
    connection, state = _send(daemon, None, None)
    if connection is not None:
        connection.close()
    return state != GONE


def _send(daemon: Running, question: Mapping[str, Any] | None, descriptor: int | None) -> tuple[socket.socket | None, str]:
    """Return a connection on which `question` was sent, or None and the state of the mount. Does not wait."""
    if not daemon.socket:
        return None, UNKNOWN
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        with short_address(daemon.socket) as address:
            connection.connect(address)
        if question is not None:
            passed = [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
            connection.sendmsg([json.dumps(question).encode() + b"\n"], passed)
    except (ConnectionRefusedError, FileNotFoundError):
        connection.close()
        return None, GONE
    except BlockingIOError:  # so many ask already
        connection.close()
        return None, SILENT
    except OSError:
        connection.close()
        return None, UNKNOWN
    return connection, ""


def _receive(daemon: Running, connection: socket.socket | None, state: str, deadline: Deadline) -> MountStatus:
    if connection is None:
        return MountStatus(daemon, state, {})
    said = b""
    with connection:
        try:
            while not said.endswith(b"\n") and len(said) < ANSWER_BYTES:
                connection.settimeout(deadline.left)  # what has arrived is read in no time
                more = connection.recv(1 << 16)
                if not more:
                    break
                said += more
            answer = json.loads(said)
            if not isinstance(answer, dict):
                raise ValueError(answer)
        except (OSError, ValueError, RecursionError):
            return MountStatus(daemon, SILENT, {})
    return MountStatus(daemon, str(answer.get("state", "")), answer)
