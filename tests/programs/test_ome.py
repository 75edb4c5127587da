"""OME-Zarr's metadata have the version that belongs to the layout's format, where the source's format is another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zarr
from in_process import fsbridge
from mounting import MountFunction
from zarr.core.metadata.v3 import ArrayV3Metadata

from fsbridge.meaning.conventions.ome_versions import in_zarr2, in_zarr3
from fsbridge.metadata import JSON

SCALES = {"axes": [{"name": "x", "type": "space"}], "datasets": [{"path": "0"}]}
NEW = {
    "k": 1,
    "ome": {
        "version": "0.5",
        "multiscales": [SCALES],
        "image-label": {"colors": []},
        "omero": {"channels": []},
    },
}
OLD = {
    "k": 1,
    "multiscales": [{**SCALES, "version": "0.4"}],
    "image-label": {"colors": [], "version": "0.4"},
    "omero": {"channels": []},
}


def test_attributes_of_ome_zarr_get_the_version_of_the_layout() -> None:
    assert in_zarr2(NEW) == OLD
    assert in_zarr3(OLD, ()) == NEW
    plate, well = {"plate": {"version": "0.4", "rows": []}}, {"well": {"version": "0.4", "images": []}}
    assert in_zarr3(plate, ()) == {"ome": {"version": "0.5", "plate": {"rows": []}}}
    assert in_zarr3(well, ("A", "1")) == {"ome": {"version": "0.5", "well": {"images": []}}}
    assert in_zarr3({"labels": ["a"]}, ("labels",)) == {"ome": {"version": "0.5", "labels": ["a"]}}
    assert in_zarr3({"labels": ["a"]}, ("other",)) == {"labels": ["a"]}, "an attribute of the user"


@pytest.mark.parametrize(
    "attributes",
    [{"ome": 1}, {"ome": {"version": "0.6"}}, {**NEW, "omero": "mine"}, {"ome": {"version": 5}}, {"ome": []}],
)
def test_attributes_that_are_not_ome_zarr_0_5_are_unchanged(attributes: dict[str, Any]) -> None:
    assert in_zarr2(attributes) == attributes


@pytest.mark.parametrize(
    "attributes",
    [{**OLD, "ome": 1}, {"multiscales": [{"version": "0.3"}]}, {"multiscales": []}, {"omero": {}}, {"plate": [1]}],
)
def test_attributes_that_are_not_ome_zarr_0_4_are_unchanged(attributes: dict[str, Any]) -> None:
    assert in_zarr3(attributes, ()) == attributes


def read_names(store: Path, path: str) -> Any:
    done = fsbridge("cat", f"{store}//{path}/zarr.json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout).get("dimension_names")


def test_levels_have_the_names_of_dimensions_that_0_5_demands(tmp_path: Path) -> None:
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "yx"]
    paths = ["0", "below/1"]
    scales: list[dict[str, Any]] = [{"version": "0.4", "axes": axes, "datasets": [{"path": path} for path in paths]}]
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=2)
    image = root.create_group("image", attributes={"multiscales": scales})
    image.create_group("below")
    for path in [*paths, "other"]:
        image.create_array(path, shape=(4, 6), chunks=(2, 2), dtype="u1")
    image.create_array("below/named", shape=(4, 6), dtype="u1", attributes={"_ARRAY_DIMENSIONS": ["a", "b"]})
    scales[0]["datasets"] += [{"path": "below/named"}, {"path": "cube"}]
    image.create_array("cube", shape=(2, 2, 2), dtype="u1")
    image.attrs["multiscales"] = scales
    for path, names in {
        "0": ["y", "x"],
        "below/1": ["y", "x"],
        "other": None,
        "below/named": ["a", "b"],
        "cube": None,
    }.items():
        assert read_names(tmp_path / "s.zarr", f"image/{path}") == names, path
    for kept in ({**scales[0], "version": "0.3"}, {**scales[0], "axes": ["y", "x"]}, {**scales[0], "axes": [{}, {}]}):
        image.attrs["multiscales"] = [kept]
        assert read_names(tmp_path / "s.zarr", "image/0") is None
    image.attrs.put({"multiscales": scales, "ome": "mine"})
    assert read_names(tmp_path / "s.zarr", "image/0") is None, "nothing is translated"


def test_p9_names_of_dimensions_follow_the_image(tmp_path: Path, mount: MountFunction) -> None:
    image = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=2)
    image.create_array("0", shape=(4, 6), chunks=(2, 2), dtype="u1")
    point = mount(tmp_path / "s.zarr").path
    for names in (None, ("y", "x"), ("a", "b"), None):
        axes: list[JSON] = [{"name": name, "type": "space"} for name in names or ()]
        image.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": [{"path": "0"}]}]
        array = zarr.open_group(point, mode="r")["0"]
        assert isinstance(array.metadata, ArrayV3Metadata)
        assert array.metadata.dimension_names == names


def test_a_mount_shows_ome_zarr_in_the_version_of_the_layout(tmp_path: Path, mount: MountFunction) -> None:
    """Only where the layout's format is not the source's."""
    zarr.create_group(tmp_path / "three.zarr", zarr_format=3, attributes=NEW)
    zarr.create_group(tmp_path / "two.zarr", zarr_format=2, attributes=OLD)
    mounted = mount(tmp_path, "--layout", "zarr3,zarr2").path
    for name in ("two", "three"):
        assert zarr.open_group(mounted / f"zarr3/{name}.zarr", mode="r").attrs.asdict() == NEW
        assert zarr.open_group(mounted / f"zarr2/{name}.zarr", mode="r", zarr_format=2).attrs.asdict() == OLD
