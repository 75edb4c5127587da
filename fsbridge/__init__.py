"""fsbridge mounts N5, Zarr and HDF5 stores as plain files."""

__version__ = "0.1.0"
