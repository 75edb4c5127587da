"""The files of groups, from the table of their kinds: what is listed, what opens by name, and what a new kind takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import zarr
from files_layout import open_files

from fsbridge.config import Config
from fsbridge.errors import NotFound
from fsbridge.layouts.directories import PathDirectory
from fsbridge.layouts.files.filetypes import CHOICES
from fsbridge.layouts.files.group_files import GROUP_FILES
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.groups.surroundings import OpenGroup
from fsbridge.layouts.nodes import DocumentFile
from fsbridge.model import Group
from fsbridge.tree import AnyNode

ALL = tuple(CHOICES)


def root_of(store: Path, files: tuple[str, ...] = ALL, kinds: Sequence[GroupFile] = GROUP_FILES) -> PathDirectory:
    return cast(PathDirectory, open_files(Config(str(store), "/nowhere", layout="files", files=files), kinds).root)


def list_names(directory: Any) -> list[str]:
    return [entry.name.decode() for batch in directory.entries() for entry in batch]


def find(root: Any, path: str) -> AnyNode:
    for name in path.split("/"):
        root = root.lookup(name.encode())
    return cast(AnyNode, root)


def add_image(group: zarr.Group) -> None:
    for number in range(2):
        group.create_array(f"s{number}", data=np.zeros((64 >> number, 64 >> number), "u1"), chunks=(32, 32))
    scales = [{"path": f"s{number}"} for number in range(2)]
    group.attrs["multiscales"] = [{"version": "0.4", "name": "i", "axes": ["y", "x"], "datasets": scales}]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A root that is an image and a table, above another image, other tables, a matrix, and a plate of one well."""
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=2)
    for group in (root, root.create_group("image")):
        add_image(group)
    matrix = root.create_group("matrix", attributes={"encoding-type": "csr_matrix", "shape": [3, 3]})
    for name, values in {"data": [5, 6], "indices": [0, 1], "indptr": [0, 1, 2, 2]}.items():
        matrix.create_array(name, data=np.array(values))
    for group in (root, *(root.create_group(name) for name in ("table", "obs", "var"))):
        group.attrs.update({"column-order": ["a"], "_index": "i"})
        for name in "ai":
            group.create_array(name, data=np.arange(3), chunks=(3,))
    well = {"path": "A/1", "rowIndex": 0, "columnIndex": 0}
    sides = {"rows": [{"name": "A"}], "columns": [{"name": "1"}]}
    plate = root.create_group("plate", attributes={"plate": {"version": "0.4", "wells": [well], **sides}})
    plate.create_group("A/1", attributes={"well": {"images": [{"path": "0"}]}})
    add_image(plate.create_group("A/1/0"))
    return tmp_path / "s.zarr"


@pytest.mark.parametrize("files", [ALL, ("npy",), ("html", "csv"), ("preview", "h5"), ("ome.tif",)], ids=str)
@pytest.mark.parametrize("name", ["", "image", "table", "matrix", "plate"])
def test_a_listing_shows_what_is_named_as_listed_and_all_others_open(store: Path, name: str, files: tuple[str, ...]) -> None:
    root = root_of(store, files)
    group = cast(Group, zarr_group(root, name))
    named = cast(Any, root.layout).group_file_names(name, group)
    shown = list_names(root)
    shown += [f"{name}/{file}" for file in list_names(root.lookup(name.encode()))] if name else []
    assert {*named["files"]} <= {*shown}
    assert not {*named["by name"]} & {*shown}
    assert len(shown) == len({*shown})
    for file in (*named["files"], *named["by name"]):
        assert find(root, file).attrs().kind == "file"


def zarr_group(root: PathDirectory, name: str) -> object:
    node = root.member.refresh_node()
    return cast(Group, node).child(name) if name else node


def test_each_kind_is_a_file_of_some_group_here(store: Path) -> None:
    root, names = root_of(store), list[str]()
    for name in ("", "image", "table", "matrix", "plate"):
        found = cast(Any, root.layout).group_file_names(name, zarr_group(root, name))
        names += [*found["files"], *found["by name"]]
    assert [one.suffix for one in GROUP_FILES if not any(name.endswith(one.suffix) for name in names)] == []


def test_a_member_keeps_its_name(tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "s.zarr", mode="w")
    root.create_group("g", attributes={"column-order": ["a"]}).create_array("a", data=np.arange(3))
    for name in ("index.html", "store", "g.csv"):
        root.create_group(name)
    shown = list_names(root_of(tmp_path / "s.zarr", ("html", "csv")))
    assert sorted(shown) == ["g", "g.csv", "g.csv.json", "g.json", "index.html", "index.html.json", "store", "store.json"]


def test_a_new_kind_of_file_is_one_record_and_one_line(store: Path) -> None:
    def node(shown: OpenGroup) -> AnyNode:
        names = "\n".join(sorted(child.name for child in shown.group.children())).encode()
        return DocumentFile(lambda: names, names, 0)

    def is_table(group: Group) -> bool:
        return "column-order" in group.attributes()

    beside = GroupFile("names.txt", node, is_table, wanted="csv", aliases=("names",))
    inside = GroupFile("NAMES", node, named=False, inside=True)
    root = root_of(store, ("csv",), (*GROUP_FILES, beside, inside))
    assert {"table.names.txt", "s.names.txt"} <= {*list_names(root)}
    assert {"image.names.txt", "table.names", "NAMES"}.isdisjoint(list_names(root))
    for path in ("table.names.txt", "table.names", "table/NAMES"):
        assert bytes(cast(Any, find(root, path)).open().read(0, 100)) == b"a\ni"
    assert b"image" in bytes(cast(Any, find(root, "NAMES")).open().read(0, 100))
    assert find(root, "s.zarr.names.txt").attrs().size == find(root, "s.names").attrs().size
    page = cast(Any, find(root, "index.html")).open()
    shown = bytes(page.read(0, page.size))
    assert all(f'href="./{name}"'.encode() in shown for name in ("s.names.txt", "table.names.txt", "NAMES"))
    with pytest.raises(NotFound):
        find(root, "table/a.names.txt")
    named = cast(Any, root.layout).group_file_names("table", zarr_group(root, "table"))
    assert "table.names.txt" in named["files"]
    assert {"table/NAMES", "table.names"} <= {*named["by name"]}


@pytest.mark.parametrize("store_name", ["cells.ome.zarr", "cells.zarr"])
def test_files_of_an_image_at_the_root_have_the_store_s_name_without_suffixes(tmp_path: Path, store_name: str) -> None:
    add_image(zarr.open_group(tmp_path / store_name, mode="w", zarr_format=2))
    root = root_of(tmp_path / store_name)
    named = cast(Any, root.layout).group_file_names("", zarr_group(root, ""))
    made = {"cells.ome.tif", "cells.h5", "cells.preview.png"}
    assert made <= {*list_names(root)}
    assert made <= {*named["files"]}
    assert not [name for name in list_names(root) if ".ome.ome." in name or ".zarr." in name]
    for name in (*made, "cells.nc", f"{store_name}.ome.tif"):
        assert find(root, name).attrs().kind == "file"


def test_the_picture_of_an_image_is_listed_with_the_previews(store: Path) -> None:
    assert {"s.preview.png", "image.preview.png"} <= {*list_names(root_of(store, ("preview",)))}
    assert not [name for name in list_names(root_of(store, ("npy",))) if "preview" in name]
