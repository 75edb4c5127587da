"""Arrays of one byte in three formats, with attributes of any size: for tests of metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ZARR3 = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [1],
    "data_type": "uint8",
    "fill_value": 0,
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
    "chunk_key_encoding": {"name": "default"},
    "codecs": [{"name": "bytes"}],
}


ZARR2 = {
    "zarr_format": 2,
    "shape": [1],
    "chunks": [1],
    "dtype": "|u1",
    "fill_value": 0,
    "compressor": None,
    "filters": None,
    "order": "C",
}


N5 = {"dimensions": [1], "blockSize": [1], "dataType": "uint8", "compression": {"type": "raw"}}


def write(path: Path, form: str, names: list[str], attributes: Mapping[str, Any]) -> None:
    """Arrays of equal attributes; their documents are one file of many names."""
    forms: dict[str, dict[str, Any]] = {
        "zarr3": {"zarr.json": {**ZARR3, "attributes": attributes}},
        "zarr2": {".zarray": ZARR2, ".zattrs": attributes},
        "n5": {"attributes.json": {**N5, **attributes}},
    }
    documents = forms[form]
    for name in names:
        (path / name).mkdir(parents=True)
        for file, values in documents.items():
            if name == names[0]:
                (path / name / file).write_text(json.dumps(values))
            else:
                os.link(path / names[0] / file, path / name / file)
