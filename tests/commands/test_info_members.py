"""`fsbridge info` of one group or array, of several sources, and what it says of axes, elements and stored bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import forking
import h5py
import in_process
import numpy as np
import pytest
import xarray
import zarr
from fake_s3 import BUCKET, FakeS3
from forking import environment

TIME = "time: 2000-01-01 ... 2000-12-31, daily, noleap"
AXES = f"    axes: {TIME}; lat: -87.5 ... 87.5 degrees_north, step 5; lon: 2.5 ... 357.5 degrees_east, step 5\n"


@pytest.fixture(scope="module")
def climate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One year of a model, with a group, as xarray writes it in each format."""
    folder = tmp_path_factory.mktemp("climate")
    days = {"units": "days since 2000-01-01", "calendar": "noleap"}
    variables = {
        "tas": (("time", "lat", "lon"), np.zeros((365, 36, 72), "f4"), {"units": "K", "long_name": "temperature"}),
        "pr": (("time",), np.zeros(365, "i2"), {"_FillValue": np.int16(-9999), "scale_factor": 0.01, "add_offset": 3.0}),
    }
    places = {
        "time": ("time", np.arange(365), days),
        "lat": ("lat", np.arange(-87.5, 90, 5), {"units": "degrees_north"}),
        "lon": ("lon", np.arange(2.5, 360, 5), {"units": "degrees_east"}),
    }
    year = xarray.Dataset(variables, places, {"title": "a year"})
    month = xarray.Dataset({"m": ("time", np.zeros(3))}, {"time": ("time", [0, 31, 59], days)}, {"title": "months"})
    tree = xarray.DataTree.from_dict({"/": xarray.Dataset(attrs={"title": "all"}), "/year": year, "/month": month})
    made = {name: folder / name for name in ("two.zarr", "three.zarr", "one.nc")}
    for name, version in (("two.zarr", 2), ("three.zarr", 3)):
        tree.to_zarr(made[name], zarr_format=version, consolidated=False)
    tree.to_netcdf(made["one.nc"])
    return made


def info(*words: str | Path) -> str:
    done = in_process.fsbridge("info", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("name", ["two.zarr", "three.zarr", "one.nc"])
@pytest.mark.parametrize("slash", ["//", "/"])
def test_one_array_is_shown_with_all_that_is_known_of_it(climate: dict[str, Path], name: str, slash: str) -> None:
    """However its path is written, it is that member of the store."""
    printed = info(f"{climate[name]}{slash}year/tas")
    first, _, row, *below = printed.splitlines(keepends=True)
    assert first.startswith(f"{climate[name]}: ")
    assert row.split()[:3] == ["/year/tas", "array", "365x36x72"]
    assert below[0] == AXES
    assert below[1].startswith("    values: in K")
    assert "    long_name = temperature\n" in below
    assert any(line.startswith("    --layout files: tas.json tas.npy") for line in below)
    assert "array" not in "".join(below)


def test_one_group_is_shown_with_its_attributes_and_what_is_below(climate: dict[str, Path]) -> None:
    printed = info(f"{climate['one.nc']}//year")
    assert [line.split()[0] for line in printed.splitlines()[2:] if line[0] == "/"] == [
        "/year", "/year/lat", "/year/lon", "/year/pr", "/year/tas", "/year/time",
    ]  # fmt: skip
    assert "    title = a year\n" in printed
    assert "long_name" not in printed
    printed = info(f"{climate['one.nc']}/year", "-a")
    assert "    long_name = temperature\n" in printed


def test_packed_and_missing_elements_are_told(climate: dict[str, Path]) -> None:
    for name in ("one.nc", "three.zarr"):
        assert "    values: missing -9999, stored * 0.01 + 3" in info(f"{climate[name]}//year/pr")
        (row,) = json.loads(info("--json", f"{climate[name]}//year/pr"))["members"]
        assert row["missing"] == [-9999]
        assert row["packing"] == {"factor": 0.01, "offset": 3.0}
        assert row["axes"][0]["first"] == "2000-01-01"


def test_months_are_monthly(climate: dict[str, Path]) -> None:
    assert "    axes: time: 2000-01-01 ... 2000-03-01, monthly, noleap\n" in info(f"{climate['three.zarr']}//month/m")


def test_a_member_that_is_not_there_is_one_line(climate: dict[str, Path]) -> None:
    for place in ("one.nc//year/none", "one.nc/year/none", "three.zarr//year/none", "one.nc//year/tas/deeper"):
        done = in_process.fsbridge("info", f"{climate['one.nc'].parent}/{place}")
        assert done.returncode == 1
        assert "  see what is there: fsbridge info " in done.stderr


def test_several_sources_are_shown_one_after_the_other(climate: dict[str, Path]) -> None:
    done = in_process.fsbridge("info", climate["one.nc"], "/no/such/store", f"{climate['two.zarr']}//year/lat")
    assert done.returncode == 1
    assert done.stderr.startswith("fsbridge: /no/such/store: no such file or directory")
    first, second = done.stdout.split("\n\n")
    assert first.startswith(f"{climate['one.nc']}: hdf5\n")
    assert second.startswith(f"{climate['two.zarr']}: zarr2\n")
    documents = json.loads(info("--json", *climate.values()))
    assert [document["source"] for document in documents] == list(map(str, climate.values()))


def test_an_array_of_n5_below_groups_without_documents_belongs_to_the_store(tmp_path: Path) -> None:
    (tmp_path / "a.n5/volumes/raw").mkdir(parents=True)
    (tmp_path / "a.n5/attributes.json").write_text('{"n5": "2.0.0"}')
    document = {"dimensions": [4], "blockSize": [2], "dataType": "uint8", "compression": {"type": "raw"}}
    (tmp_path / "a.n5/volumes/raw/attributes.json").write_text(json.dumps(document))
    for place in ("a.n5/volumes/raw", "a.n5//volumes/raw"):
        first, _, row, *_ = info(f"{tmp_path}/{place}").splitlines()
        assert first == f"{tmp_path}/a.n5: n5"
        assert row.split()[0] == "/volumes/raw"


def test_levels_have_the_axes_of_their_image_when_they_are_named(tmp_path: Path) -> None:
    axes = [{"name": "y", "type": "space", "unit": "micrometer"}, {"name": "x", "type": "space", "unit": "micrometer"}]
    transform = [{"type": "scale", "scale": [0.25, 0.5]}]
    scales: dict[str, Any] = {
        "version": "0.4",
        "axes": axes,
        "datasets": [{"path": "0", "coordinateTransformations": transform}],
    }
    root = zarr.open_group(tmp_path / "i.zarr", mode="w", zarr_format=2, attributes={"multiscales": [scales]})
    root.create_array("0", shape=(4, 4), dtype="u1")
    assert "    axes: y: step 0.25 µm; x: step 0.5 µm\n" in info(f"{tmp_path}/i.zarr/0")


def test_members_and_stored_bytes_of_object_storage(climate: dict[str, Path], server: FakeS3) -> None:
    """The bytes are those of the listing that counted the chunks: no chunk is asked for, except those of coordinates."""
    server.put_tree(climate["three.zarr"], "three.zarr")
    chunks = [path for path in climate["three.zarr"].glob("year/tas/c/**/*") if path.is_file()]
    server.put("one.nc", climate["one.nc"].read_bytes())
    with server.counted() as requests:
        document = json.loads(info("--json", f"s3://{BUCKET}/three.zarr//year", *server.options))
    (tas,) = (row for row in document["members"] if row["path"] == "/year/tas")
    assert tas["stored"] == len(chunks) > 0
    assert tas["stored_bytes"] == sum(path.stat().st_size for path in chunks)
    assert not [request for request in requests if "/tas/c/" in request.key and request.kind != "LIST"]
    for place in ("three.zarr/year/tas", "one.nc/year/tas", "one.nc//year/tas"):
        printed = info(f"s3://{BUCKET}/{place}", *server.options)
        assert AXES in printed
        assert printed.splitlines()[2].split()[0] == "/year/tas"


def test_info_imports_only_what_it_needs(tmp_path: Path) -> None:
    """Every module costs time at each call, and a small store is shown in a quarter of a second."""
    zarr.open_group(tmp_path / "s.zarr", mode="w").create_array("a", data=np.arange(3))
    code = (
        "import sys\nfrom fsbridge.cli import main\n"
        f"assert main(['fsbridge', 'info', {str(tmp_path / 's.zarr')!r}]) == 0\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    needless = (
        *("fsbridge.commands.mount", "fsbridge.mount", "fsbridge.kernel", "fsbridge.unmounted", "fsbridge.children"),
        *("fsbridge.layouts.files.filetypes", "fsbridge.layouts.files.layout", "fsbridge.formats.hdf5.file"),
        *("fsbridge.store.remote.store", "tomllib", "numcodecs", "pickletools", "pyfuse3", "trio", "asyncio", "h5py"),
    )
    assert not set(needless) & set(done.stderr.split())


def test_the_command_shows_a_member_too(climate: dict[str, Path]) -> None:
    done = forking.run("info", f"{climate['three.zarr']}//year/tas")
    assert (done.returncode, done.stderr) == (0, "")
    assert AXES in done.stdout


def test_three_levels_of_a_directory_are_looked_through(tmp_path: Path) -> None:
    """A directory that has a store somewhere far below is no store, unless it is called a collection."""
    zarr.open_group(tmp_path / "d/1/2/3/4.zarr", mode="w").create_array("a", data=np.arange(3))
    done = in_process.fsbridge("info", tmp_path / "d")
    assert done.returncode == 1
    assert "and none in the 3 levels of directories below it\n" in done.stderr
    assert "--format collection looks deeper" in done.stderr
    assert "/1/2/3/4.zarr/a" in info("--format", "collection", tmp_path / "d")
    with h5py.File(tmp_path / "d/1/2/x.h5", "w") as file:
        file["b"] = np.arange(3)
    printed = info(tmp_path / "d")
    assert "/1/2/x.h5/b" in printed
    assert "4.zarr" not in printed
    assert "    only 3 levels of directories are looked through; --format collection looks deeper\n" in printed
    printed = info("--format", "collection", tmp_path / "d")
    assert "/1/2/3/4.zarr/a" in printed
    assert "levels of directories" not in printed


def test_mount_refuses_a_directory_with_a_store_far_below(tmp_path: Path) -> None:
    zarr.open_group(tmp_path / "d/1/2/3/4.zarr", mode="w")
    (tmp_path / "mnt").mkdir()
    done = forking.run("mount", tmp_path / "d", tmp_path / "mnt")
    assert done.returncode != 0
    assert "none in the 3 levels of directories below it" in done.stderr
