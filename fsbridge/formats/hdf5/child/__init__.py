"""The program that reads HDF5 for the daemon, in a process of its own. Only this package imports h5py."""
