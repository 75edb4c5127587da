"""`index.html` of groups: a browser's parser sees what the group holds, and nothing that a stranger's name could add."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote_to_bytes, urlsplit

import h5py
import html5lib
import numpy as np
import pytest
import xarray
import zarr
from fake_model import FakeGroup, fake_array
from fake_model import tree as fake_tree
from tree_walker import read_file

from fsbridge.config import Config
from fsbridge.errors import NotFound, Stale
from fsbridge.layouts.files.looks.page import MemberRow, WebPage, make_link, make_page
from fsbridge.metadata import JSON
from fsbridge.mount.lifecycle import Tree, open_tree
from fsbridge.tree import Directory, File

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "https:evil.example",
    "\u202egnp.exe",
    "\u2066\u2069a\u200f",
    "a\nb\x1b[31m",
    "&lt;&amp;&#x3c;script&#x3e;",
    "</title></style></table><script>",
    "-->",
    "]]>",
    "name'); system('true'); %",
    "%2e%2e%2f",
    "?query#fragment",
    "\udcff\udcfe",
    "\u0645\u0631\u062d\u0628\u0627",
    "..index.html",
]


def html(content: bytes) -> Any:
    """The document as a browser parses it."""
    return html5lib.parse(content, namespaceHTMLElements=False, transport_encoding="utf-8")


def links(document: Any) -> list[str]:
    return [element.attrib[name] for element in document.iter() for name in ("href", "src") if name in element.attrib]


def is_harmless(document: Any) -> bool:
    """Tell if nothing runs, nothing is loaded from elsewhere, and every link is relative and leads to no directory above."""
    tags = {element.tag for element in document.iter() if isinstance(element.tag, str)}
    handlers = [name for element in document.iter() for name in element.attrib if name.startswith("on")]
    relative = [one for one in links(document) if not urlsplit(one).scheme and not urlsplit(one).netloc]
    below = all(one.startswith("./") and ".." not in one.split("/") for one in links(document) if not is_above(one))
    unknown = tags & {
        "script",
        "iframe",
        "object",
        "embed",
        "form",
        "base",
        "link",
        "svg",
        "math",
        "input",
        "button",
        "video",
    }
    return not unknown and not handlers and len(relative) == len(links(document)) and below


def is_above(target: str) -> bool:
    """Tell if it is the page of a group above, as the navigation has it, or a file of the group, which lies beside it."""
    beside = target.startswith("../") and target.count("/") == 1 and target[3:] not in ("", ".", "..")
    return beside or (target.endswith("/index.html") and set(target.removesuffix("index.html").split("/")) <= {"..", ""})


def text(element: Any) -> str:
    return "".join(element.itertext())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = zarr.open_group(
        tmp_path / "s.zarr", mode="w", zarr_format=3, attributes={"title": "A <b>sample</b>", "n": [1, 2]}
    )
    root.create_array(
        "a",
        shape=(30, 40),
        chunks=(16, 16),
        dtype="u2",
        dimension_names=["y", "x"],
        attributes={"resolution": [4.0, 2.0], "units": ["um", "um"]},
    )
    below = root.create_group("g")
    below.create_array("b", shape=(10,), chunks=(10,), dtype="f4")
    below.create_group("h")
    return tmp_path / "s.zarr"


def tree_of(store: Path, **options: Any) -> Tree:
    return open_tree(Config(str(store), "/nowhere", layout="files", **options))


def test_a_page_links_its_members_to_their_files(store: Path) -> None:
    tree = tree_of(store)
    document = html(read_file(tree.root, "index.html"))
    assert is_harmless(document)
    assert document.findtext(".//h1") == "s.zarr"
    rows = document.findall(".//tbody/tr")
    assert [text(row.find(".//a[@class='main']")) for row in rows] == ["a", "g/"]
    facts = {cell.attrib["data-is"]: text(cell) for cell in rows[0].findall("td[@class]") if "data-is" in cell.attrib}
    assert facts["Shape"] == "30 \u00d7 40"
    assert facts["Axes"] == "y: step 4 \u00b5m; x: step 2 \u00b5m"
    assert facts["Type"] == "uint16"
    assert facts["Chunks"].startswith("16 \u00d7 16")
    assert facts["Size"] == "2.34 KiB"
    code = text(rows[0].find(".//pre"))
    assert all(
        language in code for language in ("python: np.memmap('a.raw'", "matlab: ", "r: a <- array(readBin(", "imagej: ")
    )
    for target in links(document):
        found: Any = tree.root
        for part in target.removeprefix("./").split("/"):
            found = cast(Directory, found).lookup(unquote_to_bytes(part))
    images = document.findall(".//img")
    assert [image.attrib["src"] for image in images] == ["./a.preview.png"]
    assert all(image.attrib["loading"] == "lazy" for image in images)


def test_a_page_names_the_fields_of_a_compound_but_not_its_padding(tmp_path: Path) -> None:
    padded = np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8], "itemsize": 16})
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["p"] = np.zeros(3, padded)
    document = html(read_file(tree_of(tmp_path / "s.h5").root, "index.html"))
    assert [text(cell) for cell in document.findall(".//td[@data-is='Type']")] == ["2 fields: a, b"]


def test_the_line_of_python_reads_an_empty_array_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = zarr.create_group(tmp_path / "s.zarr")
    for name, shape in (("empty", (0, 3)), ("full", (2, 3))):
        root.create_array(name, shape=shape, chunks=(2, 3), dtype="<f4")[...] = 1
    tree = tree_of(tmp_path / "s.zarr")
    monkeypatch.chdir(tmp_path)
    for name, shape in (("empty", (0, 3)), ("full", (2, 3))):
        line = json.loads(read_file(tree.root, f"{name}.json"))["raw"]["python"]
        (tmp_path / f"{name}.raw").write_bytes(read_file(tree.root, f"{name}.raw"))
        found = eval(line, {"np": np})
        assert (found.shape, found.dtype, bool((found == 1).all())) == (shape, np.dtype("<f4"), True)


def test_pages_of_groups_below_lead_up_and_no_further_than_the_root(store: Path) -> None:
    tree = tree_of(store)
    for names, above in (((), []), (("g",), ["../index.html"]), (("g", "h"), ["../../index.html", "../index.html"])):
        document = html(read_file(tree.root, "/".join((*names, "index.html"))))
        pages = [one for one in links(document) if one.endswith("index.html") and ".." in one]
        assert pages == above
        assert is_harmless(document)
    below = links(html(read_file(tree.root, "g/index.html")))
    assert {"./b.preview.svg", "./b.preview.svg#small"} <= {*below}


def test_a_store_that_is_one_array_has_a_page(store: Path) -> None:
    tree = tree_of(store / "a")
    document = html(read_file(tree.root, "index.html"))
    assert is_harmless(document)
    (row,) = document.findall(".//tbody/tr")
    assert (document.findtext(".//h1"), text(row.find(".//a[@class='main']"))) == ("a", "a")
    assert "./a.preview.png" in links(document)
    for target in links(document):
        cast(File, tree.root.lookup(unquote_to_bytes(target.removeprefix("./")))).measure()
    names = [entry.name for entries in tree.root.entries() for entry in entries]
    assert b"index.html" in names
    assert b"index.html" not in [
        entry.name for entries in tree_of(store / "a", files=("npy",)).root.entries() for entry in entries
    ]


def test_p2_a_listing_has_the_size_of_the_page_that_is_read(store: Path) -> None:
    """It makes rows of arrays that are alike once; a look at the page alone asks for each."""
    root = zarr.open_group(store, mode="a")
    for number in range(8):
        root.create_array(f"n{number:04d}", shape=(30, 40 + number % 3), chunks=(16, 16), dtype="u2")
    root.create_array("odd <name>", shape=(3,), chunks=(3,), dtype="f4")
    root.create_array("x" * 240, shape=(3,), chunks=(3,), dtype="f4")
    root.create_array("labels", shape=(4, 4), chunks=(4, 4), dtype="u8", attributes={"maxId": 9})
    (store / "n0003/zarr.json").write_text("{")
    for more in (False, True):
        if more:
            root.create_array("a.tif", shape=(3,), chunks=(3,), dtype="f4")
        listed = [entry for entries in tree_of(store).root.entries() for entry in entries if entry.name == b"index.html"]
        found = read_file(tree_of(store).root, "index.html")
        assert [entry.attrs.size for entry in listed] == [len(found)]
        assert listed[0].version == cast(Any, tree_of(store).root.lookup(b"index.html")).version


def test_attributes_are_shown_as_text_and_collapsed_where_they_are_long(store: Path) -> None:
    document = html(read_file(tree_of(store).root, "index.html"))
    details = document.find(".//details")
    assert "open" in details.attrib
    assert json.loads(text(details.find("pre"))) == {"title": "A <b>sample</b>", "n": [1, 2]}
    zarr.open_group(store, mode="a").attrs["long"] = ["</pre><script>\u202e"] * 100_000
    longer = html(read_file(tree_of(store).root, "index.html"))
    details = longer.find(".//details")
    assert "open" not in details.attrib
    assert is_harmless(longer)
    assert len(text(details)) < 100_000
    assert "\\u202e" in text(details)


@pytest.mark.parametrize("kind", ["array", "group", "attributes"])
def test_hostile_names_are_text_and_nothing_else(kind: str) -> None:
    values = np.zeros((4, 4), "u1")
    if kind == "attributes":
        group = FakeGroup(
            {},
            attrs={name.encode("utf-8", "replace").decode(): name.encode("utf-8", "replace").decode() for name in HOSTILE},
        )
    else:
        group = FakeGroup({name: fake_array(values, (4, 4)) if kind == "array" else FakeGroup({}) for name in HOSTILE})
    root = fake_tree(group, layout="files")
    document = html(read_file(root, "index.html"))
    assert is_harmless(document)
    shown = text(document.find("body"))
    assert not {"\u202e", "\u2066", "\u200f", "\x1b"} & set(shown)
    if kind == "attributes":
        return
    assert len(document.findall(".//tbody/tr")) == len(HOSTILE)
    assert "<script>alert(1)</script>" in shown
    for target in links(document):
        found: Any = root
        for part in target.removeprefix("./").split("/"):
            found = cast(Directory, found).lookup(unquote_to_bytes(part))
    assert "\nmatlab: a = reshape(fread(fopen('name')" not in shown


def test_names_that_no_file_can_have_are_reported_and_lead_nowhere() -> None:
    long = "x" * 65536
    document = html(read_file(fake_tree(FakeGroup({long: FakeGroup({}), "b": FakeGroup({})}), layout="files"), "index.html"))
    assert is_harmless(document)
    assert all(len(unquote_to_bytes(part)) <= 255 for target in links(document) for part in target.split("/"))
    assert len(text(document)) < 20_000


def test_every_link_of_a_row_is_below_the_page_whatever_the_row_says() -> None:
    for name in HOSTILE:
        path = name.encode("utf-8", "surrogateescape").replace(b"/", b"%2F")
        rows = [
            MemberRow(name, "error", remark=name),
            MemberRow(name, "link", remark=name),
            MemberRow(name, "group", path, ["h5"], "preview.png"),
        ]
        document = html(make_page(WebPage(name, name, name, [name], {}, rows)))
        assert is_harmless(document)
        assert unquote_to_bytes(make_link(path)) == b"./" + path


def test_the_policy_forbids_all_but_pictures_and_the_page_s_own_style(store: Path) -> None:
    document = html(read_file(tree_of(store).root, "index.html"))
    policy = document.find(".//meta[@http-equiv='Content-Security-Policy']").attrib["content"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("default-src") == "'none'"
    assert set(rules) == {"img-src", "base-uri", "form-action", "style-src"}
    assert "unsafe" not in policy


def test_pages_are_listed_unless_files_are_chosen_without_them(store: Path) -> None:
    def list_names(**options: Any) -> set[bytes]:
        return {entry.name for batch in tree_of(store, **options).root.entries() for entry in batch}

    assert b"index.html" in list_names()
    assert list_names(files=("npy",)) == {b"a.json", b"a.npy", b"g", b"g.json", b"store.json"}
    assert list_names(files=("preview", "html")) == {
        *(b"a.json", b"a.preview.png", b"g", b"g.json", b"index.html", b"store.json")
    }
    assert read_file(tree_of(store, files=("npy",)).root, "index.html").startswith(b"<!DOCTYPE html>")


def test_a_member_of_that_name_is_shown_and_the_page_is_not() -> None:
    root = fake_tree(FakeGroup({"index.html": FakeGroup({}), "a": FakeGroup({})}), layout="files")
    assert sorted(entry.name for batch in root.entries() for entry in batch) == [
        *(b"a", b"a.json", b"index.html", b"index.html.json", b"store.json")
    ]
    assert root.lookup(b"index.html").attrs().kind == "directory"


def test_p9_a_page_of_a_changed_group_is_stale_and_the_next_look_is_another(store: Path) -> None:
    tree = tree_of(store, metadata_ttl=0.0)
    before = cast(File, tree.root.lookup(b"index.html"))
    zarr.open_group(store, mode="a").create_array("c", shape=(3,), chunks=(3,), dtype="u1")
    with pytest.raises(Stale):
        before.open()
    after = tree.root.lookup(b"index.html")
    assert after.version != before.version
    assert b">c</a>" in read_file(tree.root, "index.html")


def test_p8_a_damaged_member_is_a_row_that_says_so(store: Path) -> None:
    (store / "a/zarr.json").write_text("{")
    document = html(read_file(tree_of(store).root, "index.html"))
    (row,) = [row for row in document.findall(".//tbody/tr") if "cannot be read" in text(row)]
    assert "a" in text(row)
    assert len(document.findall(".//tbody/tr")) == 2


def test_a_page_needs_no_chunk(store: Path) -> None:
    zarr.open_array(store / "a", mode="r+")[...] = 7
    for chunk in (store / "a/c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"damaged")
    assert b"./a.preview.png" in read_file(tree_of(store).root, "index.html")


def test_p6_the_page_of_a_large_group_shows_its_first_members() -> None:
    root = fake_tree(FakeGroup({f"g{number}": FakeGroup({}) for number in range(2001)}), layout="files")
    shown = read_file(root, "index.html")
    assert b"this page shows the first 2,000" in shown
    assert shown.count(b"<tr>") == 2000


def test_pyramids_are_shown_in_the_row_of_their_group(tmp_path: Path) -> None:
    ome = {"version": "0.5", "multiscales": [{"axes": [], "datasets": [{"path": "0"}]}]}
    root = zarr.open_group(tmp_path / "s", mode="w", zarr_format=3)
    root.create_group("i", attributes={"ome": ome}).create_array("0", shape=(20, 20), chunks=(20, 20), dtype="u1")
    assert "./i.preview.png" in links(html(read_file(tree_of(tmp_path / "s").root, "index.html")))
    with pytest.raises(NotFound):
        tree_of(tmp_path / "s").root.lookup(b"none.preview.png")


def test_links_of_the_source_are_shown_with_their_targets(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["g/a"] = np.zeros(5)
        file["soft"] = h5py.SoftLink("/g/a")
        file["nowhere"] = h5py.SoftLink("/none")
    document = html(read_file(tree_of(tmp_path / "s.h5").root, "index.html"))
    rows = {text(row.findall("td")[1]).split("link to")[0]: text(row) for row in document.findall(".//tbody/tr")}
    assert "which leads nowhere" in rows["nowhere"]
    assert "link to g/a" in rows["soft"]
    assert "float64" in rows["soft"]


def test_p3_each_of_two_listings_at_a_time_has_the_page(store: Path) -> None:
    """A listing for the page is its own: shared, one lists no page, and the other has members twice."""
    tree = tree_of(store)
    root = tree.root
    alone = [entry.name for batch in root.refresh().entries() for entry in batch]
    first, second = iter(root.refresh().entries()), iter(root.refresh().entries())
    both: list[list[bytes]] = [[], []]
    while batches := [next(one, None) for one in (first, second)]:
        if not any(batches):
            break
        for names, batch in zip(both, batches, strict=True):
            names += [entry.name for entry in batch or ()]
    assert both == [alone, alone]
    assert b"index.html" in alone
    tree.close()


def rows_of(document: Any) -> dict[str, Any]:
    """The rows by the names of their members."""
    return {text(row.find("td[@class='name']/a")).rstrip("/"): row for row in document.findall(".//tbody/tr")}


def facts_of(row: Any) -> dict[str, str]:
    return {cell.attrib["data-is"]: text(cell) for cell in row.findall("td") if "data-is" in cell.attrib}


def described(row: Any) -> list[str]:
    """What a row says beside its name, and not in links."""
    return [text(small) for small in row.findall("td[@class='name']/small") if small.find("a") is None]


def first_files(row: Any) -> list[str]:
    """The files that are not folded."""
    return [text(one) for small in row.findall("td[@class='name']/small") for one in small.findall("a")]


@pytest.fixture
def climate(tmp_path: Path) -> Path:
    """As xarray writes it."""
    lat, field = np.arange(-87.5, 90, 5), {"units": "K", "long_name": "Air Temperature", "standard_name": "air_temperature"}
    xarray.Dataset(
        {
            "tas": (("time", "lat", "lon"), np.zeros((4, 36, 3), "f4"), field),
            "orog": (("lat", "lon"), np.zeros((36, 3), "f4"), {"standard_name": "surface_altitude", "units": "m"}),
            "crs": ((), np.int32(0), {"grid_mapping_name": "latitude_longitude"}),
            "height": ((), 2.0, {"units": "m"}),
            "packed": ((), np.int16(5), {"units": "m", "scale_factor": 0.5, "add_offset": 10.0}),
            "gone": ((), -9.0, {"units": "m", "missing_value": -9.0}),
            "station": (("station",), np.array(["Jena", "<b>Halle</b>", "Köln"])),
            "rank": (("lat",), np.arange(36)),
        },
        coords={
            "lat": ("lat", lat, {"units": "degrees_north"}),
            "lon": ("lon", np.array([1.0, 2.0, 4.0]), {"units": "degrees_east"}),
            "time": ("time", [0, 1, 2, 3], {"units": "hours"}),
        },
    ).to_zarr(tmp_path / "cmip.zarr", zarr_format=2, consolidated=False)
    return tmp_path / "cmip.zarr"


def test_a_row_says_what_an_array_is_in_which_unit_and_where_its_elements_lie(climate: Path) -> None:
    document = html(read_file(tree_of(climate).root, "index.html"))
    assert is_harmless(document)
    rows = rows_of(document)
    assert described(rows["tas"]) == ["Air Temperature (K)"]
    assert described(rows["orog"]) == ["surface_altitude (m)"]
    assert described(rows["lat"]) == ["in degrees_north"]
    assert described(rows["rank"]) == []
    assert facts_of(rows["tas"])["Axes"] == (
        "time: 0 \u2026 3 h, step 1; lat: -87.5 \u2026 87.5 degrees_north, step 5; lon: 1 \u2026 4 degrees_east"
    )
    assert facts_of(rows["lat"])["Axes"] == "lat: -87.5 \u2026 87.5 degrees_north, step 5"


def test_a_row_shows_the_value_of_a_scalar_and_of_a_few_texts_instead_of_a_plot(climate: Path) -> None:
    tree = tree_of(climate)
    rows = rows_of(html(read_file(tree.root, "index.html")))
    looks = {name: text(row.find("td[@class='look']")) for name, row in rows.items()}
    assert {name: look for name, look in looks.items() if look} == {
        "crs": "0",
        "height": "2.0 m",
        "packed": "12.5 m",
        "gone": "missing",
        "station": "Jena, <b>Halle</b>, K\u00f6ln",
    }
    assert not [name for name in looks if looks[name] and rows[name].find(".//img") is not None]
    assert rows["rank"].find(".//img") is not None
    with pytest.raises(NotFound, match="a single element is no curve"):
        tree.root.lookup(b"height.preview.svg")


def test_p8_p9_a_value_is_the_present_one_and_a_damaged_one_says_so(climate: Path) -> None:
    tree = tree_of(climate, metadata_ttl=0.0)
    before = cast(File, tree.root.lookup(b"index.html"))
    zarr.open_array(climate / "height", mode="r+")[...] = 10.0
    with pytest.raises(Stale):
        before.open()
    assert text(rows_of(html(read_file(tree.root, "index.html")))["height"].find("td[@class='look']")) == "10.0 m"
    (climate / "height/0").write_bytes(b"damaged")
    rows = rows_of(html(read_file(tree.root, "index.html")))
    assert text(rows["height"].find("td[@class='look']")) == "cannot be read"
    assert text(rows["crs"].find("td[@class='look']")) == "0"


@pytest.mark.parametrize("is_listed", [False, True])
def test_p6_a_page_reads_no_more_than_a_hundred_values(is_listed: bool) -> None:
    root = fake_tree(FakeGroup({f"n{number}": fake_array(np.array(number), ()) for number in range(103)}), layout="files")
    if is_listed:
        assert [entry for batch in root.entries() for entry in batch]
    rows = rows_of(html(read_file(root, "index.html")))
    assert [text(row.find("td[@class='look']")) for row in rows.values()] == [*map(str, range(100)), "", "", ""]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (np.array(["a"] * 25), None),  # too many texts for a cell
        (np.zeros((1, 1), "f4"), "0.0"),
        (np.array([[1, 2]]), None),
        (np.array(True), "TRUE"),
        (np.array(0.1, "f4"), "0.1"),
        (np.array(b"ab"), "ab"),
        (np.zeros((0,), "U3"), None),
        (np.array("2026-01-01", "M8[D]"), "2026-01-01"),
    ],
)
def test_single_elements_are_shown_as_values_and_longer_arrays_are_not(values: Any, shown: str | None) -> None:
    root = fake_tree(FakeGroup({"a": fake_array(values, tuple(max(1, extent) for extent in values.shape))}), layout="files")
    look = text(rows_of(html(read_file(root, "index.html")))["a"].find("td[@class='look']"))
    assert look == (shown or "")


def test_the_files_that_matter_are_in_the_row_and_all_others_are_folded(climate: Path) -> None:
    tree = tree_of(climate)
    rows = rows_of(html(read_file(tree.root, "index.html")))
    assert first_files(rows["tas"]) == ["nc", "npy", "preview.png"]
    assert first_files(rows["lat"]) == ["csv", "npy", "preview.svg"]
    assert first_files(rows["station"]) == ["csv", "npy"]
    for name, row in rows.items():
        folded = [text(one) for one in row.findall(".//details/small/a")]
        assert {"json", "h5"} <= {*folded} | {*first_files(row)}
        assert not {*folded} & {*first_files(row)}
        for suffix in (*folded, *first_files(row)):
            tree.root.lookup(f"{name}.{suffix}".encode())
    folded = [text(one) for one in rows["lat"].findall(".//details/small/a")]
    assert not {"nii", "mha", "raw.mhd", "envi", "envi.hdr", "mrc"} & {*folded}
    assert {"nii", "mha", "raw.mhd", "envi", "mrc"} <= {text(one) for one in rows["orog"].findall(".//details/small/a")}


def test_the_page_of_an_image_shows_it_and_links_the_files_with_all_of_it(tmp_path: Path) -> None:
    ome: dict[str, JSON] = {"version": "0.5", "multiscales": [{"axes": [], "datasets": [{"path": "0"}]}]}
    root = zarr.open_group(tmp_path / "cells.ome.zarr", mode="w", attributes={"ome": ome})
    root.create_array("0", data=np.arange(400, dtype="u1").reshape(20, 20), chunks=(20, 20))
    below = root.create_group("labels").create_group("nuclei", attributes={"ome": ome})
    below.create_array("0", data=np.zeros((20, 20), "u4"), chunks=(20, 20))
    tree = tree_of(tmp_path / "cells.ome.zarr")
    document = html(read_file(tree.root, "index.html"))
    assert is_harmless(document)
    made = ["./cells.preview.png", "./cells.ome.tif", "./cells.h5", "./cells.nc", "./store.json"]
    assert [link for link in links(document) if "cells" in link or "store" in link] == [*made, *made[:1] * 2]
    assert document.find(".//img[@class='all']").attrib["src"] == made[0]
    for name in made:
        assert cast(File, tree.root.lookup(name[2:].encode())).measure().size
    nuclei = html(read_file(tree.root, "labels/nuclei/index.html"))
    assert is_harmless(nuclei)
    assert nuclei.find(".//img[@class='all']").attrib["src"] == "../nuclei.preview.png"
    labels = cast(Directory, tree.root.lookup(b"labels"))
    beside = [link for link in links(nuclei) if link.startswith("../nuclei")]
    assert {link[3:] for link in beside} == {f"nuclei.{end}" for end in ("preview.png", "ome.tif", "h5", "nc", "json")}
    for name in beside:
        assert cast(File, labels.lookup(name[3:].encode())).measure().size
    row = rows_of(html(read_file(tree.root, "labels/index.html")))["nuclei"]
    assert first_files(row) == ["preview.png", "ome.tif", "h5", "nc"]


def test_groups_alone_have_no_columns_of_arrays(tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "s.zarr", mode="w")
    root.create_group("g").create_array("a", shape=(3,), chunks=(3,), dtype="u1")
    tree = tree_of(tmp_path / "s.zarr")
    assert html(read_file(tree.root, "index.html")).find(".//th") is None
    assert html(read_file(tree.root, "g/index.html")).find(".//th") is not None


def test_the_page_of_a_store_never_links_a_member_that_is_called_like_a_file(tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "s.zarr", mode="w")
    for name in ("g", "g.h5", "s.nc"):
        root.create_group(name)
    root.create_array("store", shape=(3, 3), chunks=(3, 3), dtype="u1")  # store.json is of this array
    tree = tree_of(tmp_path / "s.zarr")
    assert "../g.nc" in links(html(read_file(tree.root, "g/index.html")))
    shown = links(html(read_file(tree.root, "index.html")))
    assert "./s.h5" in shown
    assert shown.count("./store.json") == 2  # in its row: its name, and among its files
    assert "./s.nc" not in shown
