"""`NAME.h5`: an array, a group or a whole store as one virtual HDF5 file. Empty: a child process imports it."""
