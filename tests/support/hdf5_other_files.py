"""Elements of HDF5 files with data in other files. Not here: what of them may be read."""

from __future__ import annotations

import numpy as np

SECRET = np.arange(100, dtype="<i4") + 7000
