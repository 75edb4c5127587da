"""The tests' object store in a process of its own, so that it takes no time from its readers.

`python -m benchmarks.objects LATENCY PREFIX=DIRECTORY ...` (milliseconds) puts the directories into its bucket and
prints its port; on each line of its input it prints what was asked of it since the last one. Not here: what is measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from fake_s3 import BUCKET, FakeS3, Request


class Objects:
    """The process, seen from the one that measures. A context manager."""

    def __init__(self, latency: float, **directories: str) -> None:
        """`latency` in milliseconds before each answer."""
        words = [f"{prefix}={directory}" for prefix, directory in directories.items()]
        command = [sys.executable, "-m", "benchmarks.objects", str(latency), *words]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint = f"http://127.0.0.1:{self._line()}"

    @property
    def options(self) -> list[str]:
        """Options of `fsbridge mount`."""
        return ["--anonymous", "--region", "us-east-1", "--endpoint", self.endpoint]

    def url(self, prefix: str) -> str:
        return f"s3://{BUCKET}/{prefix}"

    def asked(self) -> dict[str, Any]:
        """`requests` since the last time, by kind, and how many were answered at a time at most."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._line())
        return found

    def __enter__(self) -> Objects:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def _condition(request: Request) -> str:
    """Describe a request: its range, and if it asks only for a changed object."""
    return request.range + ("if changed" if "if-none-match" in request.headers else "")


def main() -> None:
    """Serve until the input ends."""
    server = FakeS3()
    server.latency = float(sys.argv[1]) / 1e3
    for word in sys.argv[2:]:
        prefix, _, directory = word.partition("=")
        server.put_tree(Path(directory), prefix)
    print(server.port, flush=True)
    for _ in sys.stdin:
        seen = list(server.requests)
        kinds = Counter(request.kind for request in seen)
        paths = [f"{request.kind} {request.key} {_condition(request)}" for request in seen[-200:]]
        print(json.dumps({"requests": len(seen), **kinds, "at a time": server.most_in_flight, "paths": paths}), flush=True)
        server.requests.clear()
        server.most_in_flight = 0
    server.stop()


if __name__ == "__main__":
    main()
