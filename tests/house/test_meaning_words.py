"""What arrays mean is read in one place: no module outside of `fsbridge/meaning` knows a word of a convention."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from fsbridge.meaning.reading import CONVENTIONS

PACKAGE = Path(__file__).resolve().parents[2] / "fsbridge"

WORDS = {
    "CF and netCDF": "_FillValue missing_value valid_min valid_max valid_range scale_factor add_offset _Unsigned "
    "standard_name long_name grid_mapping grid_mapping_name crs_wkt spatial_ref coordinates climatology formula_terms "
    "cell_measures ancillary_variables flag_values flag_masks flag_meanings calendar actual_range "
    "_Netcdf4Coordinates _Netcdf4Dimid _nc3_strict _NCProperties",
    "xarray": "_ARRAY_DIMENSIONS",
    "OME-NGFF": "multiscales omero datasets coordinateTransformations coordinateSystems image-label bioformats2raw.layout "
    "plate well rowIndex columnIndex",
    "N5": "resolution pixelResolution downsamplingFactors units multiScale maxId voxel_size translation",
    "COSEM": "transform translate",
    "ilastik": "element_size_um",
    "Imaris": "DataSetInfo ImageSizeX ExtMin ExtMax ColorRange ColorMode",
    "NWB": "neurodata_type .specloc colnames conversion starting_time timestamps rate",
    "NIfTI-Zarr": "nifti",
    "NeXus": "NX_class signal",
    "AnnData": "encoding-type column-order codes categories",
    "SpatialData": "spatialdata_attrs spatialdata-encoding-type",
    "GDAL": "_CRS GeoTransform",
    "GeoZarr": "proj:code proj:wkt2 proj:projjson proj:epsg spatial:transform spatial:dimensions",
}
"""Attributes and members of conventions. Words of formats are not among them, even where conventions use them, too."""

ALLOWED = {
    ("codecs/numeric.py", "rate"),  # of zfp
    ("commands/member_table.py", "calendar"),  # of an axis in the JSON of `fsbridge info`
    ("formats/zarr3/array_codecs.py", "rate"),
    ("formats/dtypes.py", "scale_factor"),  # of a data type of Zarr v3
    ("formats/zarr3/types.py", "scale_factor"),
    ("formats/hdmf/__init__.py", ".specloc"),  # which recognises the format
    ("layouts/files/filetypes/tiff.py", "resolution"),  # of a TIFF
    ("store/remote/odd_keys.py", "encoding-type"),  # of S3
}


@pytest.mark.parametrize("convention", WORDS)
def test_words_of_a_convention_stand_only_where_meaning_is_read(convention: str) -> None:
    words = set(WORDS[convention].split())
    found = [
        f"fsbridge/{name}:{line}: {word!r}"
        for module in sorted(PACKAGE.rglob("*.py"))
        if (name := str(module.relative_to(PACKAGE))).partition("/")[0] != "meaning"
        for word, line in texts(module)
        if word in words and (name, word) not in ALLOWED
    ]
    assert found == [], "read it in fsbridge/meaning/conventions, and look at `Meaning`"


def test_the_page_names_all_conventions_in_their_order() -> None:
    page = (PACKAGE.parent / "docs" / "meaning.md").read_text().partition("## What is read")[2].partition("\n## ")[0]
    named = re.findall(r"^\| (\w[^|]*) \|", page, re.MULTILINE)
    assert named == ["convention", *(convention.name for convention in CONVENTIONS)]


@cache
def texts(module: Path) -> list[tuple[str, int]]:
    """Return all texts in a module that are exactly a word, with their lines."""
    tree = ast.parse(module.read_text())
    return [
        (node.value, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
