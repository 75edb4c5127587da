"""`fsbridge digest`: equal for equal data from any writer, and as a second implementation of `docs/digest.md` has it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import h5py
import hangar_data
import icechunk_data
import numpy as np
import pytest
import zarr
from fake_s3 import FakeS3
from in_process import fsbridge
from source_places import config, upload, write_all, write_each
from stores import CASES

from fsbridge.unmounted.digest import Digest
from fsbridge.unmounted.units import Threads, WorkSources, perform


def specified(data: Any, kind: str | None = None) -> str:
    """The digest of an array of numbers or texts, after `docs/digest.md`."""
    flat = np.ascontiguousarray(data).reshape(-1)
    text = flat.dtype.kind in "OT"
    shape = ",".join(map(str, data.shape))
    found = hashlib.sha256(f"fsbridge-digest-1\n{kind or flat.dtype.name}\n{shape}\n".encode())
    for start in range(0, flat.size, 65536):
        block = flat[start : start + 65536]
        if text:
            items = [str(item).encode() for item in block]
            packed = b"".join(len(item).to_bytes(8, "little") + item for item in items)
        else:
            packed = block.astype(flat.dtype.newbyteorder("<")).tobytes()
        found.update(hashlib.sha256(packed).digest())
    return found.hexdigest()


def digests(path: str | os.PathLike[str], reversed_axes: bool = False) -> dict[str, str]:
    sources, found = WorkSources([config(path)]), dict[str, str]()
    threads = Threads(sources, 3)
    try:
        work = Digest(sources, [(0, "")], _fail, found.__setitem__, reversed_axes=reversed_axes)
        perform(work, threads, lambda path, count: None)
    finally:
        threads.close()
        sources.close()
    return found


def _fail(path: str, error: Exception) -> None:
    raise error


def printed(*words: str | os.PathLike[str]) -> list[str]:
    done = fsbridge("digest", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def each(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_each(tmp_path_factory.mktemp("each"))


def test_p12_formats_written_by_independent_writers_have_one_digest(each: dict[str, Path], server: FakeS3) -> None:
    second = specified(zarr.open_array(each["zarr3"], path="a/b", mode="r")[...])
    for name, path in each.items():
        assert digests(path) == {"/a/b": second}, name
    for url in upload(server, each).values():
        assert printed(url, *server.options) == [f"{second}  /a/b"]


def test_p12_hangar_and_icechunk_are_digested_as_specified(tmp_path: Path) -> None:
    icechunk_data.write(tmp_path / "icechunk")
    found = digests(tmp_path / "icechunk")
    assert found["/branches/main/a"] == specified(icechunk_data.CHANGED)
    assert found["/tags/v1/a"] == specified(icechunk_data.VALUES)
    assert found["/tags/v1/sub/deep"] == specified(icechunk_data.DEEP)
    found, expected = digests(hangar_data.unpack("crashed", tmp_path / "hangar")), hangar_data.Expected.load("crashed")
    for commit, column, *sample in expected.values:
        value = expected.values[commit, column, *sample]
        if isinstance(value, np.ndarray):
            assert found["/".join(["/commits", commit, column, *sample])] == specified(value)


@pytest.mark.parametrize("case", CASES, ids=[case.path for case in CASES])
def test_p12_every_writers_arrays_of_numbers_are_digested_as_specified(case: Any, tmp_path: Path) -> None:
    case.write(tmp_path / case.path)
    data = np.asarray(case.read(tmp_path / case.path))
    if data.dtype.kind not in "biufc" or type(data.dtype).__module__ != "numpy.dtypes":
        return
    assert set(digests(tmp_path / case.path).values()) == {specified(data)}


def test_blocks_texts_and_odd_numbers(tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=3)
    rng = np.random.default_rng(1)
    many = rng.integers(0, 1 << 60, (3, 65536), dtype=np.int64)
    strange = np.array([0.0, -0.0, np.nan, np.inf, np.uint32(0x7FC12345).view(np.float32)], ">f4")
    texts = np.array(["", "a", "naïve", "z" * 70000], dtype=object)
    for name, data, chunks in [("many", many, (1, 10000)), ("strange", strange, (2,)), ("none", many[:0], (1, 4)),
                               ("scalar", many[0, 0], ())]:  # fmt: skip
        root.create_array(name, shape=data.shape, dtype=data.dtype, chunks=chunks)[...] = data
    root.create_array("texts", shape=(4,), dtype="string", chunks=(3,))[...] = texts
    found = digests(tmp_path / "a.zarr")
    assert found["/many"] == specified(many)
    assert found["/strange"] == specified(strange)
    assert found["/none"] == specified(many[:0])
    assert found["/scalar"] == specified(many[0, 0])
    assert found["/texts"] == specified(texts, "string")


def test_one_flipped_element_type_or_shape_is_another_digest(tmp_path: Path) -> None:
    data = np.arange(100_000, dtype=np.int32)
    changed = data.copy()
    changed[77_777] ^= 1
    found = set()
    for number, one in enumerate([data, changed, data.astype(np.uint32), data.reshape(10, -1), data[:-1]]):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file.create_dataset("a", data=one, chunks=True)
        found |= set(digests(tmp_path / f"{number}.h5").values())
    assert len(found) == 5


def test_holes_are_the_fill_value_and_reversed_axes_are_the_transpose(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a.zarr", shape=(5, 7), chunks=(2, 3), dtype="<i2", fill_value=-3)
    array[1, 1] = 4
    whole = np.asarray(array[...])
    assert digests(tmp_path / "a.zarr") == {"/": specified(whole)}
    assert digests(tmp_path / "a.zarr", reversed_axes=True) == {"/": specified(whole.T)}


def test_check_is_as_sha256sum_does_it(each: dict[str, Path], tmp_path: Path) -> None:
    lines = printed(each["hdf5"])
    listed = tmp_path / "list"
    listed.write_text("\n".join(lines) + "\n")
    assert printed("--check", listed, each["sharded"]) == ["/a/b: OK"]
    listed.write_text(f"{'0' * 64}  /a/b\n{'1' * 64}  /gone\n")
    done = fsbridge("digest", "--check", listed, each["n5"])
    assert (done.returncode, done.stdout) == (1, "/a/b: FAILED\n/gone: MISSING\n")
    listed.write_text("nonsense\n")
    done = fsbridge("digest", "--check", listed, each["n5"])
    assert (done.returncode, done.stdout) == (1, "")
    assert "line 1: not a digest and a path" in done.stderr


def test_damage_is_reported_and_hides_nothing_else(tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "a.zarr", mode="w")
    for name in "abc":
        root.create_array(name, shape=(4,), chunks=(2,), dtype="i4")[...] = 1
    (tmp_path / "a.zarr/b/c/1").write_bytes(b"damage")
    done = fsbridge("digest", tmp_path / "a.zarr")
    assert done.returncode == 1
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["/a", "/c"]
    assert "/b" in done.stderr
    assert len(printed(f"{tmp_path}/a.zarr//a", f"{tmp_path}/a.zarr//c")) == 2
    assert len(printed(f"{tmp_path}/a.zarr//a", f"{tmp_path}/a.zarr//c", "--part", "1/2")) == 1


def test_p6_an_array_much_larger_than_the_cache(tmp_path: Path) -> None:
    data = np.arange(1 << 23, dtype="<i4").reshape(64, 256, 512)
    zarr.create_array(tmp_path / "a.zarr", data=data, chunks=(64, 64, 64))
    assert printed(tmp_path / "a.zarr", "--cache-size", "4M") == [f"{specified(data)}  /"]


def test_every_writers_store_is_digested_without_errors(tmp_path: Path) -> None:
    store = write_all(tmp_path / "stores")
    done = fsbridge("digest", store, timeout=300)
    problems = [line for line in done.stderr.splitlines() if "differ in size" not in line]
    assert problems == []
    assert len(done.stdout.splitlines()) > 100


@pytest.mark.parametrize(
    "name", ["next\x85line", "line\u2028separator", "paragraph\u2029separator", "form\x0cfeed", "a\rb", "a\nb", "\\"]
)
def test_names_with_any_line_separator_are_read_back(name: str, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", name=name, shape=(2,), chunks=(2,), dtype="i4")
    (tmp_path / "list").write_bytes("".join(f"{line}\n" for line in printed_lines(tmp_path / "a.zarr")).encode())
    assert fsbridge("digest", "--check", tmp_path / "list", tmp_path / "a.zarr").returncode == 0


def printed_lines(path: Path) -> list[str]:
    return fsbridge("digest", path).stdout.removesuffix("\n").split("\n")


@pytest.mark.parametrize("charset", ["ascii", "utf-8"])
def test_texts_that_are_not_utf8_are_digested_as_they_are_stored(charset: str, tmp_path: Path) -> None:
    """Old writers stored Latin-1."""
    for name, word in {"one": b"caf\xe9", "two": b"caf\xe8"}.items():
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            texts = file.create_dataset("station", (2,), dtype=h5py.string_dtype(charset))
            texts[0], texts[1] = word, b"ok"
    block = b"".join(len(item).to_bytes(8, "little") + item for item in (b"caf\xe9", b"ok"))
    found = hashlib.sha256(b"fsbridge-digest-1\nvariable_length_bytes\n2\n" + hashlib.sha256(block).digest())
    assert printed(tmp_path / "one.h5") == [f"{found.hexdigest()}  /station"]
    assert fsbridge("diff", tmp_path / "one.h5", tmp_path / "one.h5").returncode == 0
    differing = fsbridge("diff", tmp_path / "one.h5", tmp_path / "two.h5")
    assert (differing.returncode, differing.stdout) == (1, "/station: 1 of 2 elements differ, the first at [0]\n")


def test_half_a_surrogate_pair_as_fill_value_is_one_line(tmp_path: Path) -> None:
    """JSON can spell it, and no bytes decode to it."""
    zarr.create_array(tmp_path / "a.zarr", shape=(2,), chunks=(2,), dtype="string")
    document = tmp_path / "a.zarr/zarr.json"
    document.write_text(document.read_text().replace('"fill_value": ""', '"fill_value": "\\ud800"'))
    done = fsbridge("digest", tmp_path / "a.zarr")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert fsbridge("diff", tmp_path / "a.zarr", tmp_path / "a.zarr").returncode == 2
