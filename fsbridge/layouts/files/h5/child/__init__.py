"""The work of the process that writes skeletons of HDF5 files. Empty, because that process imports it."""
