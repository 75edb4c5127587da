"""Write `gdal.zip`: Zarr v3 arrays of GDAL 3.10.

    python3 -m venv gdal
    gdal/bin/pip install rasterio==1.4.4
    gdal/bin/python tests/data/make_gdal.py

Beside each array NAME stands NAME.npy: what was written. Not for `fsbridge`'s own code.
"""

import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy as np
import rasterio
from rasterio.transform import from_origin

RESULT = Path(__file__).parent / "gdal.zip"
HERE = Path(tempfile.mkdtemp())


def write(name, dtype, **options):
    data = (np.arange(2 * 7 * 9) % 120).astype(dtype).reshape(2, 7, 9)
    profile = {"driver": "Zarr", "width": 9, "height": 7, "count": 2, "dtype": dtype, "FORMAT": "ZARR_V3", **options}
    with rasterio.open(HERE / name, "w", transform=from_origin(0, 0, 1, 1), **profile) as file:
        file.write(data)
    # GDAL makes a group with the array, and its coordinates, in it.
    np.save(HERE / name / f"{name}.npy", data)


def main():
    for dtype in ("uint8", "int16", "float32", "float64", "complex64"):
        for compress in ("NONE", "GZIP", "BLOSC"):
            write(f"{dtype}_{compress}", dtype, COMPRESS=compress, BLOCKSIZE="1,4,4")
    with zipfile.ZipFile(RESULT, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(HERE.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(HERE))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
