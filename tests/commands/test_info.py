"""`fsbridge info`: the rows it makes of a hierarchy, and what the command prints for a real store."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import forking
import h5py
import in_process
import numpy as np
import pytest
import tensorstore
import zarr
from fake_model import FakeChunks, FakeGroup, fake_array
from forking import environment
from mounting import command, fsbridge

from fsbridge.commands.contents import Row, walk
from fsbridge.commands.info import run
from fsbridge.commands.member_table import format_size, format_table, shorten
from fsbridge.errors import CorruptData, SetupError, Unsupported
from fsbridge.metadata import DataType
from fsbridge.model import Child, Link, Node


class Broken(FakeGroup):
    """A group with one member that cannot be opened."""

    def children(self) -> Iterator[Child]:
        yield from super().children()
        yield Child("bad", 0)

    def child(self, name: str) -> Node:
        if name == "bad":
            raise CorruptData("bad/attributes.json: not JSON at byte 3")
        return super().child(name)


def test_rows_in_tree_order() -> None:
    array = fake_array(np.zeros((5, 4), np.uint16), (3, 4))
    del array.chunks.stored[(1, 0)]
    root = FakeGroup({"g": FakeGroup({"a": array}), "z": Link("g/a")})
    assert list(walk(root, 64)) == [
        Row("/", "group", attributes={}),
        Row("/g", "group", attributes={}),
        Row("/g/a", "array", [5, 4], [3, 4], "uint16", "none", 1, 2, 24, 40, attributes={}),
        Row("/z", "link", target="g/a"),
    ]


@pytest.mark.parametrize(
    ("dtype", "shown"),
    [
        (DataType("int16", 2, "little", "H5T_STD_I16LE", np.dtype("<i2")), "int16"),
        (DataType("float64", 8, "big", ">f8", np.dtype(">f8")), "float64"),
        (DataType("int8", 1, None, "int4", np.dtype("i1")), "int4"),
        (DataType("r16", 2, None, "bfloat16"), "bfloat16"),
        (DataType("numpy.datetime64", 8, "little", "<M8[ns]", np.dtype("<M8[ns]")), "<M8[ns]"),
        (DataType("string", 0, None, "H5T_STRING(variable)", serializer="vlen-utf8"), "string"),
    ],
)
def test_types_in_a_word(dtype: DataType, shown: str) -> None:
    array = fake_array(np.zeros(3), (3,))
    (row,) = walk(replace(array, metadata=replace(array.metadata, dtype=dtype)), 64)
    assert row.dtype == shown


def test_a_broken_member_is_listed_and_hides_nothing() -> None:
    rows = list(walk(Broken({"a": fake_array(np.zeros(3), (3,))}), 64))
    assert [row.path for row in rows] == ["/", "/a", "/bad"]
    assert rows[2] == Row("/bad", "unreadable", reason="bad/attributes.json: not JSON at byte 3")
    assert format_table(rows).splitlines()[-1] == "    bad/attributes.json: not JSON at byte 3"


def test_chunks_that_cannot_be_counted() -> None:
    class Uncountable(FakeChunks):
        def count(self) -> int:
            raise Unsupported("codec 'lossless_audio' is not in the table")

    array = fake_array(np.zeros(3), (3,))
    (row,) = walk(replace(array, chunks=Uncountable(array.chunks.stored)), 64)
    assert row.stored is None
    assert row.reason == "codec 'lossless_audio' is not in the table"
    assert row.shape == [3]
    assert format_table([row]).splitlines()[1].endswith("?/1           ?/24B")


def test_names_are_those_of_the_mount() -> None:
    rows = list(walk(FakeGroup({"a/b": FakeGroup({}), "x" * 300: FakeGroup({}), "\ud800": FakeGroup({})}), 64))
    assert [row.path[:6] for row in rows] == ["/", "/a%2Fb", "/'xxxx", "/'\\ud8"]
    assert [row.kind for row in rows[2:]] == ["unreadable", "unreadable"]


def test_a_walk_through_a_cycle_ends() -> None:
    group = FakeGroup({})
    group.members["self"] = group
    rows = list(walk(group, 5))
    assert len(rows) == 7
    assert rows[-1].reason == "groups are nested too deeply"


def test_table_is_aligned_and_says_scalar() -> None:
    rows = list(walk(FakeGroup({"s": fake_array(np.array(3.0), ()), "long-name": FakeGroup({})}), 64))
    lines = format_table(rows).splitlines()
    assert lines[0].split() == ["path", "kind", "shape", "chunks", "dtype", "codec", "stored/total", "bytes"]
    assert lines[3].split()[:4] == ["/s", "array", "scalar", "scalar"]
    assert len({line.index(kind) for line, kind in zip(lines, ["kind", "group", "group", "array"], strict=True)}) == 1


def test_wide_cells_are_cut_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compound type of many fields does not spread over the whole screen; `--json` has it in full."""
    monkeypatch.setenv("COLUMNS", "120")  # pytest-xdist sets another
    fields = [(f"field{number}", "<f8") for number in range(40)]
    with h5py.File(tmp_path / "wide.h5", "w") as file:
        file.create_dataset("a/compound", (3,), fields, chunks=(2,), compression="gzip")
        file["a/plain"] = np.arange(3)
    short = fsbridge("info", tmp_path / "wide.h5")
    assert (short.returncode, short.stderr) == (0, "")
    heading, *lines = short.stdout.splitlines()[1:]
    assert max(map(len, lines)) <= 120
    (line,) = (line for line in lines if line.startswith("/a/compound"))
    assert "  H5T_COMPOUND{field0: H5T" in line
    assert "..." in line
    assert "field39: H5T_IEEE_F64LE}" in line
    assert line.index("0/2") == heading.index("stored/total")
    members = json.loads(fsbridge("info", "--json", tmp_path / "wide.h5").stdout)["members"]
    (dtype,) = (member["dtype"] for member in members if member["path"] == "/a/compound")
    assert dtype.count("H5T_IEEE_F64LE") == 40
    assert "..." not in dtype


def test_axes_are_those_that_an_image_says_of_its_levels(tmp_path: Path) -> None:
    axes = [{"name": "t", "type": "time", "unit": "second"}, {"name": "x", "type": "space", "unit": "micrometer"}]
    transform = [{"type": "scale", "scale": [1.0, 0.5]}]
    scales: dict[str, Any] = {"axes": axes, "datasets": [{"path": "a/0", "coordinateTransformations": transform}]}
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=2, attributes={"multiscales": [scales]})
    root.create_array("a/0", shape=(2, 2), dtype="u1")
    root.create_array("other", shape=(2, 2), dtype="u1")
    members = json.loads(fsbridge("info", "--json", tmp_path / "s.zarr").stdout)["members"]
    told = {member["path"]: member.get("axes") for member in members}
    assert told["/a/0"] == [
        {"name": "t", "unit": "second", "scale": 1.0, "first": 0.0, "last": 1.0},
        {"name": "x", "unit": "micrometer", "scale": 0.5, "first": 0.0, "last": 0.5},
    ]
    assert told["/other"] is None


def test_the_files_of_the_store_and_of_groups_are_named_and_open(tmp_path: Path) -> None:
    """Each named file opens, and a listing shows those that `info` says it does."""
    root = zarr.open_group(tmp_path / "brain.zarr", mode="w")
    for levels in (root.create_group("image"), root.create_group("brain/image")):
        for number in range(2):
            levels.create_array(f"s{number}", data=np.zeros((64 >> number, 64 >> number), "u1"))
        scales = [{"path": f"s{number}"} for number in range(2)]
        levels.attrs["multiscales"] = [{"version": "0.4", "name": "i", "axes": ["y", "x"], "datasets": scales}]
    table = root.create_group("table", attributes={"column-order": ["a"], "_index": "i"})
    for name in "ai":
        table.create_array(name, data=np.arange(3))
    expected = {
        "/": (["index.html", "store.json"], ["brain.zarr.h5", "brain.zarr.nc"]),
        "/brain": (["brain/index.html", "brain.json"], ["brain.h5", "brain.nc"]),
        "/image": (
            ["image/index.html", "image.json"],
            ["image.h5", "image.nc", "image.preview.png", "image.ome.tif"],
        ),
        "/table": (["table/index.html", "table.json"], ["table.h5", "table.nc", "table.csv"]),
    }
    done = in_process.fsbridge("info", "--layout", "files", "--json", tmp_path / "brain.zarr")
    rows = {row["path"]: row.get("files") for row in json.loads(done.stdout)["members"]}
    for path, (shown, opening) in expected.items():
        assert rows[path] == {"files": shown, "by name": opening}
        for file in [*shown, *opening]:
            done = in_process.fsbridge("ls", "--layout", "files", f"{tmp_path}/brain.zarr//{file}")
            assert done.returncode == 0, done.stderr
    assert "brain.h5" not in rows["/"]["by name"]
    done = in_process.fsbridge("info", "--layout", "files", tmp_path / "brain.zarr")
    assert "    by name: table.h5 table.nc table.csv\n" in done.stdout
    done = in_process.fsbridge("info", "--layout", "files", "--json", tmp_path / "brain.zarr/table")
    (row, *_) = json.loads(done.stdout)["members"]
    assert row["files"]["by name"] == ["table.h5", "table.nc", "table.csv"]


def test_a_reason_says_the_name_of_a_file_once(tmp_path: Path) -> None:
    zarr.open_group(tmp_path / "s.zarr", mode="w").create_array("a", shape=(2, 2, 2), dtype="u1")
    found = fsbridge("ls", "--layout", "files", f"{tmp_path}/s.zarr//a.png")
    assert (found.returncode, found.stderr.count("a.png")) == (1, 1)
    assert "the format needs 2 dimensions, and the array has 3" in found.stderr


def test_a_long_text_is_shortened_in_the_middle() -> None:
    assert [shorten(text, 10) for text in ("abcdefghij", "abcdefghijk")] == ["abcdefghij", "abcd...ijk"]


def test_a_table_that_cannot_fit_is_as_narrow_as_it_may_be() -> None:
    rows = [Row("/a", "array", [1], [[1] * 90], "x" * 300, "y" * 200, 1, 1)]
    lines = format_table(rows, 20).splitlines()
    assert len(lines[1]) == len("/a    array  1      ") + 3 * (12 + 2) + len("1/1           ?/?")
    assert format_table(rows).splitlines()[1].count("x") == 300


def test_info_that_met_damage_exits_with_1(tmp_path: Path) -> None:
    """A shard with a damaged index, or an impossible entry in it, is named with the reason."""
    zarr = tmp_path / "s.zarr"
    shape = {"name": "regular", "configuration": {"chunk_shape": [4]}}
    index = {"chunk_shape": [2], "codecs": ["bytes"], "index_codecs": ["bytes"]}
    codecs = [{"name": "sharding_indexed", "configuration": index}]
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [8],
        "data_type": "int8",
        "chunk_grid": shape,
        "fill_value": 0,
        "chunk_key_encoding": {"name": "default"},
        "codecs": codecs,
    }
    (zarr / "c").mkdir(parents=True)
    (zarr / "zarr.json").write_text(json.dumps(document))
    (zarr / "c/1").write_bytes(b"abcd" + np.array([0, 2, 90, 2], "<u8").tobytes())
    result = fsbridge("info", zarr)
    assert result.returncode == 1
    assert "c/1, entry [1]: this is a damaged entry of the shard index: offset 90" in result.stdout
    assert "1 of 1 members have metadata that cannot be read" in result.stderr


@pytest.mark.parametrize(("magic", "kind"), [(b"CDF\x01", "a netCDF-3 file"), (b"CDF\x05", "a netCDF-3 file (CDF-5)")])
def test_a_netcdf_3_file_is_called_what_it_is(tmp_path: Path, magic: bytes, kind: str) -> None:
    (tmp_path / "old.nc").write_bytes(magic + bytes(28))
    result = fsbridge("info", tmp_path / "old.nc")
    assert result.returncode == 1
    assert f"old.nc: {kind}, which fsbridge does not read\n  convert it to HDF5: nccopy" in result.stderr


def n5_store(path: Path) -> Path:
    store = tensorstore.open(
        {
            "driver": "n5",
            "kvstore": {"driver": "file", "path": str(path / "vol/raw/")},
            "metadata": {
                "dimensions": [5, 4],
                "blockSize": [3, 4],
                "dataType": "int16",
                "compression": {"type": "gzip"},
            },
        },
        create=True,
    ).result()
    store[:3].write(np.ones((3, 4), np.int16)).result()
    (path / "attributes.json").write_text('{"n5": "2.0.0"}')
    return path


def test_command_prints_a_table(tmp_path: Path) -> None:
    result = fsbridge("info", n5_store(tmp_path / "a.n5"))
    assert (result.returncode, result.stderr) == (0, "")
    first, *lines = result.stdout.splitlines()
    assert first == f"{tmp_path / 'a.n5'}: n5"
    assert [line.split() for line in lines[1:]] == [
        ["/", "group"],
        ["/vol", "group"],
        ["/vol/raw", "array", "5x4", "3x4", "int16", "gzip", "1/2", "36B/40B"],
    ]


def test_command_prints_json(tmp_path: Path) -> None:
    result = fsbridge("info", "--json", n5_store(tmp_path / "a.n5"))
    document = json.loads(result.stdout)
    assert document["format"] == "n5"
    assert document["members"][2] == {
        "path": "/vol/raw",
        "kind": "array",
        "shape": [5, 4],
        "chunks": [3, 4],
        "dtype": "int16",
        "codec": "gzip",
        "stored": 1,
        "total": 2,
        "stored_bytes": 36,
        "decoded_bytes": 40,
        "attributes": {},
    }


def test_command_exits_1_for_a_broken_member(tmp_path: Path) -> None:
    store = n5_store(tmp_path / "a.n5")
    (store / "vol/raw/attributes.json").write_text("{")
    result = fsbridge("info", store)
    assert result.returncode == 1
    assert "/vol/raw" in result.stdout
    assert result.stderr == "fsbridge: 1 of 3 members have metadata that cannot be read\n"


@pytest.mark.parametrize("form", ["n5", "zarr2", "zarr3", "hdf5"])
def test_info_names_an_array_with_an_unknown_codec(tmp_path: Path, form: str) -> None:
    document = {
        "n5": {"dimensions": [4], "blockSize": [2], "dataType": "uint8", "compression": {"type": "lossless_audio"}},
        "zarr2": {
            "zarr_format": 2,
            "shape": [4],
            "chunks": [2],
            "dtype": "|u1",
            "fill_value": 0,
            "order": "C",
            "filters": None,
            "compressor": {"id": "lossless_audio"},
        },
        "zarr3": {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [4],
            "data_type": "uint8",
            "fill_value": 0,
            "attributes": {},
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
            "chunk_key_encoding": {"name": "default"},
            "codecs": ["bytes", "lossless_audio"],
        },
    }
    name = {"n5": "attributes.json", "zarr2": ".zarray", "zarr3": "zarr.json"}
    if form == "hdf5":
        store = tmp_path / "a.h5"
        with h5py.File(store, "w") as file:  # optional, so that it may be absent here
            space, kind = h5py.h5s.create_simple((4,)), h5py.h5t.NATIVE_UINT8
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_chunk((2,))
            properties.set_filter(39999, h5py.h5z.FLAG_OPTIONAL, ())
            h5py.h5d.create(file.id, b"x", kind, space, properties)
    else:
        store = tmp_path / "a"
        (store / "x").mkdir(parents=True)
        (store / "x" / name[form]).write_text(json.dumps(document[form]))
    result = fsbridge("info", store)
    assert result.returncode == 1
    assert ("39999" if form == "hdf5" else "lossless_audio") in result.stdout.splitlines()[-1]
    assert result.stdout.splitlines()[-1].startswith("    ")
    assert result.stderr == "fsbridge: 1 of 2 members have metadata that cannot be read\n"


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as output:
        result = forking.run("info", n5_store(tmp_path / "a.n5"), stdout=output)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("words", [[], ["--json"]])
@pytest.mark.parametrize("where", ["> /dev/full", ">&-"])
def test_where_nothing_can_be_printed_is_one_line(tmp_path: Path, where: str, words: list[str]) -> None:
    zarr.create_array(tmp_path, shape=(1,), dtype="i1")
    line = f'exec "$@" {where}'
    done = subprocess.run(
        ["sh", "-c", line, "sh", *command(), "info", *words, str(tmp_path)],
        capture_output=True, text=True, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("fsbridge: standard output")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["mount", "a", "/not/there"], ["umount", "a"], ["mount", "/a", "/b", "--log-file", "c"]])
def test_a_working_directory_that_is_gone_is_one_line(tmp_path: Path, words: list[str]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f'rmdir {gone} && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", line, "sh", *command(), *words],
        cwd=gone,
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert done.returncode == 1
    assert "the working directory no longer exists" in done.stderr
    assert done.stderr.startswith("fsbridge: ")


def test_names_are_printed_whatever_the_locale(tmp_path: Path) -> None:
    store = n5_store(tmp_path / "a.n5")
    (store / "größe 量").mkdir()
    (store / os.fsdecode(b"bad\xff")).mkdir()
    result = subprocess.run(command("info", store), capture_output=True, env={**environment(), "PYTHONIOENCODING": "ascii"})
    assert (result.returncode, result.stderr) == (0, b"")
    groups = {line[1:].rpartition(b" group")[0].rstrip() for line in result.stdout.splitlines()}
    assert {rb"bad\xff", "größe 量".encode()} <= groups


def test_p8_what_a_store_says_forges_no_rows_and_commands_no_terminal(tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    evil = "\x1b]0;PWNED\x07\x1b[2J\n/forged  array  1x1  1x1  uint8  none  1/1\u202e"
    zarr.create_array(store / "a", shape=(4,), chunks=(4,), dtype="u1", zarr_format=3)
    document = json.loads((store / "a/zarr.json").read_text())
    document["codecs"] = [{"name": evil}]
    (store / "a/zarr.json").write_text(json.dumps(document))
    (store / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    (store / f"{evil.replace('/', '-')}").mkdir()
    (store / f"link{evil.replace('/', '-')}").symlink_to("/etc/passwd")
    result = fsbridge("info", store)
    assert all(char.isprintable() or char == "\n" for char in result.stderr)
    warning, summary = result.stderr.splitlines()
    assert re.fullmatch(r"fsbridge: \S.*/s\.zarr/link.*: a link out of the store, to /etc/passwd; .*permits it", warning)
    assert summary == "fsbridge: 2 of 4 members have metadata that cannot be read"
    assert all(char.isprintable() or char == "\n" for char in result.stdout)
    assert not [line for line in result.stdout.splitlines() if line.startswith("/forged")]
    assert r"\x1b]0;PWNED\x07\x1b[2J\n/forged" in result.stdout


def test_command_on_nothing(tmp_path: Path) -> None:
    result = fsbridge("info", tmp_path / "none")
    assert result.returncode == 1
    assert "none" in result.stderr
    assert "Traceback" not in result.stderr


def test_arrays_that_a_layout_leaves_out_are_named_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w", zarr_format=3)
    group.create_array("flags", shape=(4,), dtype="bool")
    group.create_array("numbers", shape=(4,), dtype="<u2")
    assert run("fsbridge info", [str(tmp_path / "a.zarr"), "--layout", "zarr2,n5"]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert printed.count("not in the layout") == 1
    assert "/flags" in lines[lines.index("    not in the layout n5: N5 has no data type bool") - 1]
    assert run("fsbridge info", [str(tmp_path / "a.zarr"), "--json", "--layout", "n5"]) == 0
    members = {row["path"]: row for row in json.loads(capsys.readouterr().out)["members"]}
    assert members["/flags"]["left_out"] == {"n5": "N5 has no data type bool"}
    assert "left_out" not in members["/numbers"]
    with pytest.raises(SetupError, match="unknown layout"):
        run("fsbridge info", [str(tmp_path / "a.zarr"), "--layout", "n6"])


def test_sizes_of_any_magnitude() -> None:
    sizes = 999, 1e6, 8e12, 8e15, 8e18, 2e21
    assert list(map(format_size, sizes)) == ["999B", "1MB", "8TB", "8PB", "8EB", "2e+03EB"]
