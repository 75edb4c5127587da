"""The HDF5 child process: what runs beside HDF5, away from the daemon. Only this package imports h5py."""
