"""Messages to systemd about a daemon (sd_notify): ready, stopping, a status line, and that its event loop still runs.

Nothing happens where systemd does not listen. Not here: the units (`share/`), what is told (`report.py`).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

import trio

STATUS_SECONDS = 10.0
"""Seconds between two status lines: `systemctl status` is read by people."""


def notify(state: str) -> None:
    """Send `state` as sd_notify(3) does. Does not block: if systemd's socket is full, nothing is sent."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sock:
        sock.connect(address)
        sock.send(state.encode())


async def keep_told(words: Callable[[], str]) -> None:
    """Send systemd the line `words()` regularly, and tell its watchdog that the event loop runs.

    Without that, systemd restarts the service.
    """
    if not os.environ.get("NOTIFY_SOCKET"):
        return
    watched = watchdog_seconds()
    while True:
        await trio.sleep(min(STATUS_SECONDS, watched / 2 or STATUS_SECONDS))
        notify(f"STATUS={words()}" + ("\nWATCHDOG=1" if watched else ""))


def watchdog_seconds() -> float:
    """Seconds within which systemd wants to hear from this process; 0 if it does not."""
    text, process = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not text.isdecimal() or (process and process != str(os.getpid())):
        return 0.0
    return int(text) / 1_000_000
