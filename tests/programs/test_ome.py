"""OME-Zarr's metadata have the version that belongs to the layout's format, where the source's format is another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zarr
from conftest import MountFunction

from fsbridge.layouts.conventions import in_zarr2, in_zarr3

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


def test_ome_zarr_in_the_version_of_the_layout() -> None:
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
def test_what_is_no_ome_zarr_0_5_stays(attributes: dict[str, Any]) -> None:
    assert in_zarr2(attributes) == attributes


@pytest.mark.parametrize(
    "attributes",
    [{**OLD, "ome": 1}, {"multiscales": [{"version": "0.3"}]}, {"multiscales": []}, {"omero": {}}, {"plate": [1]}],
)
def test_what_is_no_ome_zarr_0_4_stays(attributes: dict[str, Any]) -> None:
    assert in_zarr3(attributes, ()) == attributes


def test_ome_zarr_through_a_mount(tmp_path: Path, mount: MountFunction) -> None:
    """Only where the layout's format is not the source's."""
    zarr.create_group(tmp_path / "three.zarr", zarr_format=3, attributes=NEW)
    zarr.create_group(tmp_path / "two.zarr", zarr_format=2, attributes=OLD)
    mounted = mount(tmp_path, "--layout", "zarr3,zarr2").path
    for name in ("two", "three"):
        assert zarr.open_group(mounted / f"zarr3/{name}.zarr", mode="r").attrs.asdict() == NEW
        assert zarr.open_group(mounted / f"zarr2/{name}.zarr", mode="r", zarr_format=2).attrs.asdict() == OLD
