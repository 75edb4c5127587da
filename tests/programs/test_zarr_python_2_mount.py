"""P12 for zarr-python 2: zarr-python 3 and TensorStore read through a mount what zarr-python 2 read from its stores."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from mounting import Mount, MountFunction
from readers import Member, read
from zarr_python_2_data import ARCHIVE, FIXED, OBJECTS

NO_TENSORSTORE = "mMSUV"
"""Kinds of elements that TensorStore has no type for."""


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory, module_mount: MountFunction) -> Mount:
    root = tmp_path_factory.mktemp("zarr2") / "stores"
    shutil.unpack_archive(ARCHIVE, root)
    (root / "expected.npz").unlink()
    return module_mount(root)


@pytest.fixture(scope="module")
def by_zarr(mounted: Mount) -> dict[str, Member]:
    return read(mounted, "zarr")


@pytest.fixture(scope="module")
def by_tensorstore(mounted: Mount) -> dict[str, Member]:
    return read(mounted, "tensorstore")


def in_source_order(name: str, seen: Any) -> np.ndarray[Any, Any]:
    """N5 is shown in N5's own dimension order, which zarr-python 2 turns round."""
    return np.asarray(seen).transpose() if name.startswith("a.n5/") else np.asarray(seen)


def little(expected: np.ndarray[Any, Any]) -> bytes:
    """The bytes of values, with structs shown as little-endian."""
    order = "<" if expected.dtype.names else "="
    return np.ascontiguousarray(expected, expected.dtype.newbyteorder(order)).tobytes()


@pytest.mark.parametrize("name", sorted(FIXED))
def test_p12_zarr_python_3_reads_what_version_2_wrote(by_zarr: dict[str, Member], name: str) -> None:
    member = by_zarr[name]
    assert member.error is None
    seen, expected = in_source_order(name, member.values), FIXED[name]
    assert seen.shape == expected.shape
    if seen.dtype.names is None:
        seen = seen.astype(seen.dtype.newbyteorder("="))
    assert seen.tobytes() == little(expected)


@pytest.mark.parametrize("name", sorted(name for name in FIXED if FIXED[name].dtype.kind not in NO_TENSORSTORE))
def test_p12_tensorstore_reads_what_zarr_python_2_wrote(by_tensorstore: dict[str, Member], name: str) -> None:
    member = by_tensorstore[name]
    assert member.error is None
    seen = in_source_order(name, member.values)
    assert np.ascontiguousarray(seen, seen.dtype.newbyteorder("=")).tobytes() == little(FIXED[name])


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_strings_are_strings(by_zarr: dict[str, Member], name: str) -> None:
    member = by_zarr[name]
    assert member.error is None
    seen = [item.hex() if isinstance(item, bytes) else str(item) for item in member.values.ravel().tolist()]
    pairs = [(text, item) for text, item in zip(seen, OBJECTS[name], strict=True) if isinstance(item, str)]
    assert len(pairs) >= 7
    assert all(text == item for text, item in pairs)


def test_pickled_text_is_text(by_zarr: dict[str, Member]) -> None:
    member = by_zarr["a.zarr/o/pickle"]
    assert member.error is None
    written = slice(8)  # what fills the rest is the number 0, which is text in the other array only
    assert member.values[written].tolist() == by_zarr["a.zarr/o/vlen-utf8"].values[written].tolist()
