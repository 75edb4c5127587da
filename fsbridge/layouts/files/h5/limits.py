"""Constants that the daemon shares with the process that writes skeletons of virtual HDF5 files. Imports nothing."""

LEFT_OUT = "fsbridge_left_out"
"""Name of a group's attribute that lists its members missing from the file, with reasons."""

SPECIFICATION_BYTES = 1 << 30
"""Most bytes of a specification. A hundred thousand datasets take a tenth of it."""

SKELETON_BYTES = 1 << 30
"""Most bytes of a skeleton. A thousand datasets take 5 MB."""

ADDRESS_SPACE_BYTES = 6 << 30
"""Bytes of virtual memory of the process: numpy and h5py take 0.6 GiB, then there are the specification and the skeleton
twice.
"""

PATIENCE_SECONDS = 60.0
"""Most seconds that the writer may take. A hundred thousand datasets take half of them."""
