"""P12 and P3 on the layouts `zarr2` and `n5`: what independent writers wrote, read by independent readers of real mounts.

Also several layouts at once, and copies of them.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
import zarr
from mounting import Mount, MountFunction
from observing import errno_of
from promised_store import VALUES, promised_store
from promised_views import N5, ZARR2, ZARR3
from readers import Member, assert_same, read
from stores import CASES, Case, kvstore, write_collection

FORTRAN = {"tensorstore-n5", "z5py-n5"}
"""Stores with the first dimension fastest: the layout `n5` does not reverse their axes."""

NO_N5 = re.compile(r"bool|b1|complex|c8|c16|f2|float16|dtype-other|text")
"""Cases with data types that N5 lacks."""

NO_READER = {
    "zarr-zarr2": None,
    "tensorstore-zarr2": re.compile(r'Error parsing object member "dtype"|Must specify a "field"|"filters"'),
    "z5py-zarr2": re.compile(r"Unsupported zarr dtype|only supports C order|zero-dim|support filters|json.exception|''"),
    "tensorstore-n5": None,
    "z5py-n5": re.compile(r"zero-dimensional"),
}
"""What a reader itself says of arrays that it cannot read."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return promised_store(tmp_path / "store.zarr")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_collection(tmp_path_factory.mktemp("stores") / "all")


@pytest.fixture(scope="module")
def mounted(sources: Path, module_mount: MountFunction) -> Mount:
    mount = module_mount(sources, "--layout", "zarr2,n5", "--cache-size", "8M")
    mount.allow(r"is left out of the layout n5: N5 has no data type")
    return mount


@pytest.fixture(scope="module")
def seen_by(mounted: Mount) -> Callable[[str], dict[str, Member]]:
    """All that a reader sees; each reads once."""
    return functools.cache(lambda reader: read(mounted / reader.rpartition("-")[2], reader))


@pytest.fixture(scope="module", params=list(NO_READER))
def seen(request: pytest.FixtureRequest, seen_by: Callable[[str], dict[str, Member]]) -> tuple[str, dict[str, Member]]:
    return request.param, seen_by(request.param)


def expected(case: Case, source: Any, reader: str) -> Any:
    """The source's values in the reader's order of dimensions."""
    if not reader.endswith("n5"):
        return source
    turned = case.store not in FORTRAN and "order-F" not in case.name and np.ndim(source) > 1
    in_n5 = np.asarray(source).T if turned else np.asarray(source)
    return in_n5.T if reader.startswith("z5py") else in_n5


def test_p12_every_element_equals_the_source(sources: Path, seen: tuple[str, dict[str, Member]]) -> None:
    reader, members = seen
    refused = NO_READER[reader]
    compared = 0
    for case in CASES:
        if reader.endswith("n5") and NO_N5.search(case.name):
            assert case.path not in members
            continue
        member = members[case.path]
        if member.error is not None and refused is not None and refused.search(member.error):
            continue
        assert member.error is None, case.path
        if reader == "tensorstore-zarr2" and re.search(r"dtype-other-[03]", case.name):
            continue  # TensorStore shows bytes of fixed length as one more dimension
        if reader == "z5py-zarr2" and case.store == "tensorstore-zarr":
            continue  # z5 shows missing chunks of an array without fill value as whatever is in memory
        assert_same(member.values, expected(case, case.read(sources / case.path), reader))
        compared += 1
    assert compared >= {"z5py-zarr2": 60}.get(reader, 110)


def test_the_root_shows_a_directory_for_each_layout_and_nothing_else(mounted: Mount) -> None:
    assert sorted(os.listdir(mounted)) == ["n5", "zarr2"]
    assert not (mounted / "zarr.json").exists()


def test_attributes_are_the_same_in_other_layouts(seen_by: Callable[[str], dict[str, Member]]) -> None:
    case = next(case for case in CASES if case.path == "zarr-python-v3/names")
    assert seen_by("zarr-zarr2")[case.path].attributes == case.attributes
    in_n5 = seen_by("z5py-n5")[case.path].attributes
    assert {name: in_n5[name] for name in case.attributes} == case.attributes
    assert seen_by("tensorstore-n5")[case.path].dimension_names == ("x", None, "z")


def test_p12_what_is_read_ahead_is_converted_too(tmp_path: Path, mount: MountFunction) -> None:
    """Chunks of more than 1 MiB, read one after the other."""
    shape, chunks = (12, 1000, 1300), (1, 1024, 700)  # every block is cropped
    data = np.arange(np.prod(shape), dtype="<u4").astype("<u2").reshape(shape)
    zarr.create_array(tmp_path / "a.zarr", shape=shape, chunks=chunks, dtype="<u2", zarr_format=2)[...] = data
    order = {"name": "transpose", "configuration": {"order": [1, 2, 0]}}
    spec: dict[str, Any] = {
        "driver": "zarr3",
        "kvstore": kvstore(tmp_path / "t.zarr"),
        "metadata": {
            "shape": [8, 700, 600],
            "data_type": "uint16",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 700, 600]}},
            "codecs": [order, {"name": "bytes", "configuration": {"endian": "little"}}, {"name": "gzip"}],
        },
    }
    turned = data[:8, :700, :600]
    tensorstore.open(spec, create=True).result()[...] = turned
    tree = mount(tmp_path, "--layout", "zarr2,n5")
    for x in range(2):
        for z in range(12):
            part = data[z : z + 1, :, 700 * x : 700 * x + 700]
            block = (tree / f"n5/a.zarr/{x}/0/{z}").read_bytes()
            assert block[16:] == part.astype(">u2").tobytes(), (x, z)
    for z in range(4):
        assert (tree / f"zarr2/t.zarr/{z}.0.0").read_bytes() == turned[2 * z : 2 * z + 2].tobytes(), z
        assert (tree / f"n5/t.zarr/0/0/{z}").read_bytes()[16:] == turned[2 * z : 2 * z + 2].astype(">u2").tobytes()


@pytest.mark.parametrize("edges", [[2**62, 4], [2**62, 2**62]])
def test_p8_an_array_with_chunks_too_large_for_any_file_is_listed(
    tmp_path: Path, mount: MountFunction, edges: list[int]
) -> None:
    """The size was an error of the program: not even the documents of such an array were listed."""
    vast = tmp_path / "vast.zarr"
    zarr.create_array(vast, shape=edges, chunks=tuple(edges), dtype="u2", compressors=None, zarr_format=2)
    (vast / "0.0").write_bytes(bytes(100))
    mounted = mount(tmp_path / "vast.zarr", "--layout", "zarr2,zarr3")
    mounted.allow(r"limit|0\.0")
    assert sorted(os.listdir(mounted / "zarr2")) == [".zarray", ".zattrs", "0.0"]
    for chunk in (mounted / "zarr2" / "0.0", mounted / "zarr3" / "c" / "0" / "0"):
        assert chunk.stat().st_size == 2**63 - 1
        with pytest.raises(OSError, match=r"Input/output|too large"):
            chunk.read_bytes()
    assert os.listdir(mounted / "zarr3" / "c" / "0") == ["0"]


def test_every_layout_at_once(store: Path, mount: MountFunction) -> None:
    """One directory each, and one decoding of a chunk for all."""
    tree = mount(store, "--layout", "files,n5,zarr3,zarr2")
    assert sorted(os.listdir(tree)) == ["files", "n5", "zarr2", "zarr3"]
    assert errno_of((tree / "a").stat) == errno.ENOENT
    assert errno_of((tree / "zarr.json").stat) == errno.ENOENT
    np.testing.assert_array_equal(np.load(tree / "files/a.npy"), VALUES)
    for view in (ZARR3, ZARR2, N5):
        assert (tree / view.layout / view.chunk("a", 3, 2)).read_bytes() == view.content(VALUES, 3, 2)


def test_p12_netcdf_c_reads_the_layout_zarr2(store: Path, mount: MountFunction) -> None:
    """A reader that stopped at Zarr v2; what else there is of them is in scripts/legacy-check."""
    tree = mount(store, "--layout", "zarr2")
    url = f"file://{tree.path}#mode=zarr,file"
    text = subprocess.run(["ncdump", "-v", "a", url], check=True, capture_output=True, text=True).stdout
    numbers = text.partition("data:")[2].partition("=")[2].replace(";", " ").replace("}", " ").replace(",", " ").split()
    assert [int(number) for number in numbers] == VALUES.ravel().tolist()


@pytest.mark.parametrize("tool", ["cp", "rsync", "tar"])
def test_copies_of_all_layouts_at_once_are_the_stores_themselves(
    tmp_path: Path, store: Path, mount: MountFunction, tool: str
) -> None:
    tree = mount(store, "--layout", "zarr3,zarr2,n5,files", "--files", "all")
    copy = tmp_path / "copy"
    copy.mkdir()
    words = {
        "cp": ["cp", "-r", f"{tree.path}/.", str(copy)],
        "rsync": ["rsync", "-a", f"{tree.path}/", str(copy)],
        "tar": ["sh", "-c", f"tar -C '{tree.path}' -cS . | tar -C '{copy}' -x"],
    }
    subprocess.run(words[tool], check=True)
    subprocess.run(["diff", "-r", str(tree.path), str(copy)], check=True)
    for layout in ("zarr2", "zarr3"):
        np.testing.assert_array_equal(zarr.open_array(copy / layout / "a", mode="r")[...], VALUES)
    assert all(stat.S_ISREG(path.stat().st_mode) or path.is_dir() for path in copy.rglob("*"))
