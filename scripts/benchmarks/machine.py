"""How the machine behaves: what it is, its load, and the speed of its memory before and after a run.

A virtual machine may take seconds of a processor away (steal) and hand out memory slowly on its first touch; both move every
figure of a run, so they are told beside the figures.
"""

from __future__ import annotations

import mmap
import os
import platform
import time
from typing import Any

import numpy as np

COPY = 64 << 20
FRESH = 256 << 20


def describe() -> dict[str, Any]:
    """Facts that do not change during a run."""
    model = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "?")
    total = next(int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal"))
    return {
        "cores": len(os.sched_getaffinity(0)),
        "model": model,
        "memory_gib": round(total / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def behaviour() -> dict[str, Any]:
    """Load average, memcpy of 64 MiB, and the first touch of fresh memory, in GB/s; processor ticks for `stolen`."""
    source = np.ones(COPY, np.uint8)
    target = np.empty(COPY, np.uint8)
    target[:] = source
    copies = []
    for _ in range(8):
        start = time.perf_counter()
        target[:] = source
        copies.append(time.perf_counter() - start)
    with mmap.mmap(-1, FRESH) as memory:
        fresh = np.frombuffer(memory, np.uint8)
        start = time.perf_counter()
        fresh[::4096] = 1
        touched = time.perf_counter() - start
        del fresh
    return {
        "load": round(os.getloadavg()[0], 2),
        "memcpy_gbs": round(COPY / sorted(copies)[len(copies) // 2] / 1e9, 1),
        "memcpy_worst_gbs": round(COPY / max(copies) / 1e9, 1),
        "first_touch_gbs": round(FRESH / touched / 1e9, 2),
        "ticks": [int(text) for text in _lines("/proc/stat")[0].split()[1:9]],
    }


def stolen(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Share of processor time that the host took away between two calls of `behaviour`."""
    spent = [end - start for start, end in zip(before["ticks"], after["ticks"], strict=True)]
    return spent[7] / sum(spent) if sum(spent) else 0.0


def _lines(path: str) -> list[str]:
    with open(path) as file:
        return file.read().splitlines()
