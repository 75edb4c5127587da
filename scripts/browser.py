"""Headless Chromium, told what to do through its own protocol: a page's picture, what it has loaded, its errors.

Not here: which pages are opened (`screenshot.py`, `legacy/meaning/pages.py`).
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
SECONDS = 60.0
"""Seconds to wait for an answer."""
LOADED = (
    "(async () => { for (const image of document.images) { image.loading = 'eager'; try { await image.decode() } catch {} }"
    " return JSON.stringify([...document.images].map(image => [image.getAttribute('src'), image.naturalWidth])) })()"
)


class Page:
    """One tab."""

    def __init__(self, told: int, tells: int) -> None:
        """`told`, `tells`: descriptors of pipes to the browser and from it."""
        self._told = told
        self._tells = tells
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def open(self, file: Path, width: int = 1100, height: int = 700, dark: bool = False) -> None:
        """Open a file, and wait until it is loaded."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self._ask("Page.navigate", url=file.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._receive()

    def pictures(self) -> dict[str, int]:
        """The width of each picture by its address; 0: it could not be shown."""
        found = self._ask("Runtime.evaluate", expression=LOADED, awaitPromise=True)["result"]["value"]
        return {str(source): int(width) for source, width in json.loads(found)}

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript."""
        return self._ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"]["value"]

    def errors(self) -> list[str]:
        """Return the errors on the console."""
        said = [
            event["params"] for event in self._events if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")
        ]
        return [json.dumps(params) for params in said]

    def screenshot(self) -> bytes:
        """The whole page as a PNG."""
        found = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._told, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            if not select.select([self._tells], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise RuntimeError("the browser does not answer")
            part = os.read(self._tells, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        if "method" in found:
            self._events.append(found)
        return found


def _pipe() -> tuple[int, int]:
    """A pipe with ends other than 3 and 4: the browser has its own by those numbers."""
    ends = os.pipe()
    found = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return found[0], found[1]


@contextmanager
def browser(command: str) -> Iterator[Page]:
    """A page of a browser of its own, which ends with it."""
    heard, told = _pipe()
    tells, says = _pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        words = [command, *FLAGS, f"--user-data-dir={folder}/profile", "about:blank"]
        shell = ["bash", "-c", f'exec "$@" 3<&{heard} 4>&{says}', "bash", *words]
        with open(f"{folder}/said", "w") as said:
            running = subprocess.Popen(shell, pass_fds=(heard, says), stdout=said, stderr=said)
        os.close(heard)
        os.close(says)
        try:
            yield Page(told, tells)
        finally:
            os.close(told)  # it ends when its pipe is closed
            try:
                running.wait(10)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
            os.close(tells)
