"""What zarr-python 2.18 wrote, and what it read from that itself; see data/make_zarr_python_2.py."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
from paths import DATA

ARCHIVE = DATA / "zarr_python_2.zip"

with zipfile.ZipFile(ARCHIVE) as _archive:
    FIXED = dict(np.load(io.BytesIO(_archive.read("expected.npz"))))
    OBJECTS = json.loads(_archive.read("expected.json"))
