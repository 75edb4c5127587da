"""How much the kernel side keeps and for how long it reads, all limits in one object. Every mount has the usual ones.

Tests set others. Not here: limits that the user sets (`config.py`), those of worker threads (`lanes.py`, `jobs.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelLimits:
    """The limits of one mount's kernel side."""

    opened_nodes: int = 2048
    """Nodes and spaces that stay open: an array takes about 8 KiB with its metadata and its space."""

    beginning_seconds: float = 0.05
    """Seconds for which the job that opens a directory also reads it: most are complete by then and need no other job."""

    listing_bytes: int = 10 << 20
    """Most memory, in bytes, that the whole listing of a directory may take to be kept: 35,000 arrays, or 650,000 chunks."""

    just_seconds: float = 0.1
    """Seconds after opening a directory for which a listing may show what the open has read, even with a TTL of 0."""

    directories_bytes: int = 32 << 20
    """Memory for all remembered directories, in bytes: roughly 5,000 arrays with three directories each."""

    batch_seconds: float = 0.01
    """Seconds after which a job that reads ahead begins no further sibling: a slow one, such as an HDF5 file, is left to its
    reader.
    """

    wait_seconds: float = 0.1
    """Most seconds that a request waits for a directory that is being read ahead, before it reads the directory itself (P7).
    """


USUAL = KernelLimits()
