"""HDF5 files whose data lie in others. Not here: what of it may be read."""

from __future__ import annotations

import numpy as np

SECRET = np.arange(100, dtype="<i4") + 7000
