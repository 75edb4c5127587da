"""The program of HDF5 children on a system without process descriptors: before Linux 5.3, or with a seccomp filter."""

from __future__ import annotations

import os

from fsbridge.children import server
from fsbridge.formats.hdf5.child.worker import serve, warm_up

if __name__ == "__main__":
    del os.pidfd_open
    warm_up()
    server.run(serve)
