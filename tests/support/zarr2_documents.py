"""Documents of Zarr v2 to be changed, and the arrays that they describe. Not here: what is changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fsbridge.config import Config
from fsbridge.formats.open import open_source
from fsbridge.model import Source

GOOD: dict[str, Any] = {
    "zarr_format": 2,
    "shape": [4],
    "chunks": [2],
    "dtype": "<i4",
    "compressor": None,
    "fill_value": 0,
    "order": "C",
    "filters": None,
}


def open_root(path: Path, opened: list[Source]) -> Any:
    source = open_source(str(path), Config(str(path), ""))
    opened.append(source)
    assert source.format.name == "zarr2"
    return source.root


def put(path: Path, changes: dict[str, Any], chunks: dict[str, bytes] | None = None) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    document = {name: value for name, value in {**GOOD, **changes}.items() if value is not ...}
    (path / ".zarray").write_text(json.dumps(document))
    for key, data in (chunks or {}).items():
        (path / key).parent.mkdir(parents=True, exist_ok=True)
        (path / key).write_bytes(data)
    return path
