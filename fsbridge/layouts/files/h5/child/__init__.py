"""The work of the process that writes skeletons of HDF5 files, and the limits that the daemon shares with it.

Imports nothing, because that process imports little.
"""

from __future__ import annotations

LEFT_OUT = "fsbridge_left_out"
"""Name of a group's attribute that lists its members missing from the file, with reasons."""

SPECIFICATION_BYTES = 1 << 30
"""Most bytes of one request: a batch of objects, or all dimension scales."""

SKELETON_BYTES = 1 << 30
"""Most bytes of a skeleton. A thousand datasets take 5 MB."""

ADDRESS_SPACE_BYTES = 6 << 30
"""Bytes of virtual memory of the process: numpy and h5py take 0.6 GiB, and it has the skeleton twice."""

PATIENCE_SECONDS = 60.0
"""Most seconds that the process may take for one request."""
