"""P12: what independent writers wrote, read through a real mount by independent readers, equals the source read directly.

One mount of a collection shows every store of `stores.py`; zarr-python and TensorStore open it in processes of their own.
The same collection is read from a local disk and from an object store.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from mounting import Mount, MountFunction
from readers import Member, assert_same, read
from remote_mounts import mount_uploaded
from stores import ATTRIBUTES, CASES, FILL, SHAPE, Case, write_collection

IDS = [case.path for case in CASES]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_collection(tmp_path_factory.mktemp("stores") / "all")


@pytest.fixture(scope="module", params=["disk", "object store"])
def mounted(request: pytest.FixtureRequest, sources: Path, module_mount: MountFunction) -> Iterator[Mount]:
    if request.param == "disk":
        yield module_mount(sources)
    else:
        yield from mount_uploaded(sources, module_mount)


@pytest.fixture(scope="module")
def by_zarr(mounted: Mount) -> dict[str, Member]:
    return read(mounted, "zarr")


@pytest.fixture(scope="module")
def by_tensorstore(mounted: Mount) -> dict[str, Member]:
    return read(mounted, "tensorstore")


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_p12_zarr_python_sees_the_source(case: Case, sources: Path, by_zarr: dict[str, Member]) -> None:
    member = by_zarr[case.path]
    assert member.error is None
    assert_same(member.values, case.read(sources / case.path))
    assert member.attributes == case.attributes


@pytest.mark.parametrize("case", [c for c in CASES if c.tensorstore], ids=[c.path for c in CASES if c.tensorstore])
def test_p12_tensorstore_sees_the_source(case: Case, sources: Path, by_tensorstore: dict[str, Member]) -> None:
    member = by_tensorstore[case.path]
    assert member.error is None
    assert_same(member.values, case.read(sources / case.path))


def test_the_layout_has_all_arrays_and_groups_and_nothing_else(
    by_zarr: dict[str, Member], by_tensorstore: dict[str, Member]
) -> None:
    stores = {case.store for case in CASES}
    assert set(by_zarr) == {"", *stores, *IDS}
    assert set(by_tensorstore) == set(by_zarr)


def test_groups_have_the_attributes_of_the_source(by_zarr: dict[str, Member]) -> None:
    assert by_zarr["zarr-python-v2"].attributes == ATTRIBUTES
    assert by_zarr["zarr-python-v3"].attributes == ATTRIBUTES
    assert by_zarr["z5py-n5"].attributes == {"made by": "z5py"}


def test_names_fill_values_and_chunk_shapes_are_those_of_the_source(
    by_zarr: dict[str, Member], by_tensorstore: dict[str, Member]
) -> None:
    """Dimension names, fill values and chunk shapes survive; inner chunks are the chunks of a sharded array."""
    assert by_zarr["zarr-python-v3/names"].dimension_names == ("z", None, "x")
    assert by_tensorstore["tensorstore-zarr3/names"].dimension_names == ("z", "y", "x")
    for path in ["tensorstore-zarr/fill", "zarr-python-v2/fill", "zarr-python-v3/fill", "tensorstore-zarr3/fill"]:
        assert by_zarr[path].fill == FILL
        assert by_tensorstore[path].fill == FILL
    assert np.isnan(by_zarr["zarr-python-v2/fill-nan"].fill)
    assert by_zarr["zarr-python-v3/shard"].chunks == (2, 2, 4)
    assert by_zarr["tensorstore-n5/compression-raw"].chunks == (3, 2, 4)


def test_only_stored_chunks_are_listed_and_all_have_full_size(mounted: Mount) -> None:
    for store in ["tensorstore-n5", "z5py-n5", "tensorstore-zarr", "tensorstore-zarr3"]:
        name = {"z5py-n5": "compression-raw", "tensorstore-n5": "compression-raw", "tensorstore-zarr3": "gzip"}.get(
            store, "compressor-none"
        )
        files = [path for path in (mounted / f"{store}/{name}/c").rglob("*") if path.is_file()]
        assert len(files) == 8, store  # 3 x 3 x 1 chunks, one of them a hole
        assert len({path.stat().st_size for path in files}) == 1, store
    assert SHAPE == (7, 5, 4)
