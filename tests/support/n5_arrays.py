"""Arrays of N5 that TensorStore writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore


def write_n5(
    path: Path, values: np.ndarray[Any, Any], block: Sequence[int], compression: str | Mapping[str, Any] = "gzip"
) -> None:
    """Write an array whose first axis is the fastest one, in blocks of that shape."""
    metadata = {
        "dimensions": values.shape,
        "blockSize": block,
        "dataType": values.dtype.name,
        "compression": {"type": compression} if isinstance(compression, str) else compression,
    }
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(path)}, "metadata": metadata}
    tensorstore.open(spec, create=True).result()[...] = values
