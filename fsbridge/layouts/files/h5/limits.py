"""What the process that writes skeletons of virtual HDF5 files and the daemon agree on. Nothing is imported."""

LEFT_OUT = "fsbridge_left_out"
"""Attribute of a group: its members that the file does not hold, and why."""

SPECIFICATION_BYTES = 1 << 30
"""Bytes of a specification: a hundred thousand datasets take a tenth."""

SKELETON_BYTES = 1 << 30
"""Bytes of a skeleton: a thousand datasets have 5 MB."""

ADDRESS_SPACE_BYTES = 6 << 30
"""Bytes of virtual memory of the process: numpy and h5py take 0.6 GiB, then there are the specification and the skeleton
twice.
"""

PATIENCE_SECONDS = 60.0
"""Seconds that the writer may take: a hundred thousand datasets take half of them."""
