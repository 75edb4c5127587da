"""Write `spatialdata.zip`: one SpatialData object in both of its versions, `v2.zarr` in Zarr v2 and `v3.zarr` in Zarr v3.

    python3.11 -m venv spatialdata
    spatialdata/bin/pip install spatialdata==0.7.3
    spatialdata/bin/python tests/data/make_spatialdata.py

Not for `fsbridge`'s own code.
"""

import tempfile
import zipfile
from pathlib import Path

import anndata
import geopandas
import numpy as np
import pandas as pd
import spatialdata
from shapely import Point
from spatialdata._io.format import SpatialDataContainerFormatV01, SpatialDataContainerFormatV02
from spatialdata.models import Image2DModel, Labels2DModel, PointsModel, ShapesModel, TableModel

RESULT = Path(__file__).parent / "spatialdata.zip"
HERE = Path(tempfile.mkdtemp())


def data():
    image = np.random.default_rng(0).integers(0, 255, (3, 16, 16), dtype="uint8")
    labels = np.arange(256, dtype="int32").reshape(16, 16) // 100
    points = pd.DataFrame({"x": np.arange(100.0), "y": np.arange(100.0) * 2, "gene": ["a", "b"] * 50})
    shapes = geopandas.GeoDataFrame({"geometry": [Point(i, i) for i in range(10)], "radius": np.ones(10)})
    rows = pd.DataFrame({"region": pd.Categorical(["cells"] * 10), "id": range(10)}, index=[str(i) for i in range(10)])
    table = anndata.AnnData(np.arange(30, dtype="float32").reshape(10, 3), obs=rows)
    return spatialdata.SpatialData(
        images={"img": Image2DModel.parse(image, dims=("c", "y", "x"), scale_factors=[2])},
        labels={"lab": Labels2DModel.parse(labels, dims=("y", "x"))},
        points={"pts": PointsModel.parse(points, coordinates={"x": "x", "y": "y"}, feature_key="gene")},
        shapes={"cells": ShapesModel.parse(shapes)},
        tables={"table": TableModel.parse(table, region="cells", region_key="region", instance_key="id")},
    )


data().write(HERE / "v2.zarr", sdata_formats=SpatialDataContainerFormatV01())
data().write(HERE / "v3.zarr", sdata_formats=SpatialDataContainerFormatV02())
with zipfile.ZipFile(RESULT, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    for path in sorted(HERE.rglob("*")):
        if path.is_file():
            archive.write(path, path.relative_to(HERE))
