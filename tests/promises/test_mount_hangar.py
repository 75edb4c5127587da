"""Hangar repositories and NWB files through real mounts: raw chunk files, and zarr-python and TensorStore as readers."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hangar_data import Expected
from hangar_data import unpack as unpack_hangar
from mounting import Mount
from nwb_data import expected_arrays, expected_facts
from nwb_data import unpack as unpack_nwb
from readers import read

MountFunction = Callable[..., Mount]


def sample_bytes(mount: Mount, place: tuple[str, ...], shape: tuple[int, ...]) -> bytes:
    """A sample's one chunk file."""
    return (mount.path / "commits" / Path(*place) / "c" / Path(*["0"] * len(shape))).read_bytes()


def test_every_sample_equals_the_checkout(tmp_path: Path, mount: MountFunction) -> None:
    expected = Expected.load("main")
    mounted = mount(unpack_hangar("main", tmp_path / "main"))
    seen: set[bytes] = set()
    for place, wanted in expected.values.items():
        if isinstance(wanted, np.ndarray):
            document = json.loads((mounted.path / "commits" / Path(*place) / "zarr.json").read_bytes())
            record = document["attributes"]["record"].encode()
            assert tuple(document["shape"]) == wanted.shape, place
            if record in seen and not record.startswith(b"10:"):
                continue  # equal samples share a record: each record is read once
            seen.add(record)
            assert sample_bytes(mounted, place, wanted.shape) == wanted.tobytes(), place
        else:
            raw = wanted.encode() if isinstance(wanted, str) else wanted
            encoded = (1).to_bytes(4, "little") + len(raw).to_bytes(4, "little") + raw
            assert sample_bytes(mounted, place, ()) == encoded, place


@pytest.mark.parametrize("reader", ["zarr", "tensorstore"])
def test_readers_see_the_checkout(tmp_path: Path, mount: MountFunction, reader: str) -> None:
    expected = Expected.load("crashed")
    mounted = mount(unpack_hangar("crashed", tmp_path / "crashed"))
    found = read(mounted / "branches/master", reader)
    for place, wanted in expected.values.items():
        if isinstance(wanted, np.ndarray):
            np.testing.assert_array_equal(found["/".join(place[1:])].values, wanted)
        elif reader == "zarr":  # TensorStore knows no strings
            assert str(found["/".join(place[1:])].values) == wanted
    if reader == "zarr":
        assert found[""].attributes["commit_message"] == "before the crash"
        assert found["array"].attributes["dtype"] == "int32"


def test_a_tree_lists_and_copies_like_files(tmp_path: Path, mount: MountFunction) -> None:
    mounted = mount(unpack_hangar("main", tmp_path / "main"))
    assert sorted(os.listdir(mounted)) == ["branches", "commits", "head", "staged", "zarr.json"]
    assert os.readlink(mounted / "head") == "branches/master"
    assert "#7" in os.listdir(mounted / "head/table10")
    listing = subprocess.run(["ls", "-lR", mounted / "staged/text"], capture_output=True, text=True, check=True).stdout
    assert "staged" in listing
    subprocess.run(["cp", "-r", mounted / "branches/experiment/table10", tmp_path / "copy"], check=True)
    wanted = Expected.load("main").values[Expected.load("main").branches["experiment"], "table10", "#7"]
    assert (tmp_path / "copy/#7/c/0").read_bytes() == wanted.tobytes()


def test_a_flipped_bit_is_eio_and_one_log_line(tmp_path: Path, mount: MountFunction) -> None:
    root = unpack_hangar("crashed", tmp_path / "crashed")
    mounted = mount(root)
    array = mounted / "branches/master/array"
    document = json.loads((array / "a/zarr.json").read_bytes())
    backend, uid, _, dataset, index, _ = document["attributes"]["record"].split(":")
    path = root / ".hangar/data" / backend / f"{uid}.hdf5"
    with h5py.File(path, "r", swmr=True) as file:
        offset = file[dataset].id.get_chunk_info_by_coord((int(index), 0)).byte_offset
    with open(path, "r+b") as raw:
        raw.seek(offset + 200)
        byte = raw.read(1)[0]
        raw.seek(offset + 200)
        raw.write(bytes([byte ^ 4]))
    mounted.allow(rf"sample array/a: .*{uid}\.hdf5")
    with pytest.raises(OSError, match="Input/output") as caught:
        (array / "a/c/0/0").read_bytes()
    assert caught.value.errno == errno.EIO
    wanted = next(v for p, v in Expected.load("crashed").values.items() if p[1:] == ("array", "b"))
    assert (array / "b/c/0/0").read_bytes() == wanted.tobytes()


def test_remote_samples_answer_eopnotsupp(tmp_path: Path, mount: MountFunction) -> None:
    mounted = mount(unpack_hangar("partial", tmp_path / "partial"))
    column = mounted / "branches/origin%2Fmaster/remote_variable"
    assert sorted(os.listdir(column)) == ["a", "b", "zarr.json"]
    mounted.allow("remote server")
    with pytest.raises(OSError, match="not supported") as caught:
        os.listdir(column / "a")
    assert caught.value.errno == errno.EOPNOTSUPP
    fixed = mounted / "branches/origin%2Fmaster/remote_fixed/a"
    document = json.loads((fixed / "zarr.json").read_bytes())
    chunk = fixed / Path("c", *["0"] * len(document["shape"]))
    assert document["attributes"]["record"].startswith("50:")
    assert chunk in fixed.rglob("0")
    with pytest.raises(OSError, match="not supported") as caught:
        chunk.read_bytes()
    assert caught.value.errno == errno.EOPNOTSUPP


@pytest.mark.parametrize("generation", ["zarr2", "zarr3"])
def test_nwb_links_are_symlinks_that_readers_follow(tmp_path: Path, mount: MountFunction, generation: str) -> None:
    mounted = mount(unpack_nwb(generation, tmp_path / "nwb") / "session.nwb.zarr")
    link = mounted / "acquisition/shares_timestamps/timestamps"
    assert os.readlink(link) == "../with_timestamps/timestamps"
    found: dict[str, Any] = read(mounted.path, "zarr")
    for path, wanted in expected_arrays(generation).items():
        np.testing.assert_array_equal(found[path].values, wanted, path)
    wanted = expected_arrays(generation)["acquisition/with_timestamps/timestamps"]
    np.testing.assert_array_equal(read(link, "zarr")[""].values, wanted)
    facts = expected_facts(generation)
    path = "intervals/trials/timeseries"
    assert [list(row) for row in found[path].values.tolist()] == facts[path]
    path = "general/extracellular_ephys/electrodes/group"
    assert found[path].values.tolist() == facts[path]


def test_nwb_links_to_other_files(tmp_path: Path, mount: MountFunction) -> None:
    files = unpack_nwb("zarr2", tmp_path / "nwb")
    closed = mount(files / "linking.nwb.zarr")
    closed.allow("is not followed")
    assert os.listdir(closed / "acquisition/shared") == ["zarr.json"]
    assert len(closed.told("'data'")) == 1
    followed = mount(files / "linking.nwb.zarr", "--allow-external", str(files))
    wanted = expected_arrays("zarr2")["acquisition/with_timestamps/data"]
    np.testing.assert_array_equal(read(followed / "acquisition/shared", "zarr")["data"].values, wanted)
