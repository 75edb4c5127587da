"""What the process does that writes skeletons of HDF5 files. Empty: a child's program is above it."""
