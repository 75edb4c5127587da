"""The OME-XML of a plate: which fields belong to which acquisition."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
from fake_model import FakeGroup, fake_array, tree
from tree_walker import content

from fsbridge.tree import Directory

_OME = "{http://www.openmicroscopy.org/Schemas/OME/2016-06}"


def test_acquisitions_of_a_plate_name_their_fields() -> None:
    axes = [{"name": name, "type": "space"} for name in "yx"]
    scales = [{"version": "0.4", "axes": axes, "datasets": [{"path": "0"}]}]
    images: dict[str, Any] = {
        name: FakeGroup({"0": fake_array(np.zeros((4, 4), "u1"), (4, 4))}, {"multiscales": scales}) for name in "012"
    }
    taken = [{"path": "0", "acquisition": 7}, {"path": "1", "acquisition": 9}, {"path": "2"}]
    plate: dict[str, Any] = {
        "name": "p",
        "rows": [{"name": "A"}],
        "columns": [{"name": "1"}],
        "wells": [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}],
        "acquisitions": [{"id": 7, "name": "first"}, {"id": 9}, {"name": "without a number"}],
    }
    row = FakeGroup({"1": FakeGroup(images, {"well": {"images": taken}})})
    group = tree(FakeGroup({"p": FakeGroup({"A": row}, {"plate": plate})}), layout="files").lookup(b"p")
    assert isinstance(group, Directory)
    document = ET.fromstring(content(group.lookup(b"p.companion.ome")))
    samples = [sample.get("ID") for sample in document.iter(f"{_OME}WellSample")]
    assert len(samples) == 3
    found = [
        (one.get("Name"), [sample.get("ID") for sample in one.iter(f"{_OME}WellSampleRef")])
        for one in document.iter(f"{_OME}PlateAcquisition")
    ]
    assert found == [("first", samples[:1]), (None, samples[1:2])], "nothing says to which the third one belongs"
