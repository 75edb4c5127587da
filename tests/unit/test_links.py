"""Where links of a source lead, and those that lead nowhere: in listings, and to programs that open them."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from fake_model import FakeGroup, fake_array, tree
from tree_walker import walk

from fsbridge.commands.contents import walk as rows_of
from fsbridge.errors import CorruptData, NotFound, TooDeep
from fsbridge.links import dead_end, follow
from fsbridge.model import Link

ARRAY = fake_array(np.ones(2, "u1"), (2,))


class Damaged(FakeGroup):
    def child(self, name: str) -> Any:
        if name == "bad":
            raise CorruptData("bad document")
        return super().child(name)


DEAD = {
    "itself": "itself",
    "one": "other",
    "other": "./one",
    "below itself": "below itself/x",
    "nowhere": "../x/nothing",
    "out": "../../../x",
    "below an array": "x/y",
    "to one of these": "../g/one",
}
LEADING = {"up": "..", "near": "x", "over a link": "../h/x", "over links": "near", "damaged": "bad/x"}


def root_with_links() -> FakeGroup:
    links = {name: Link(target) for name, target in (DEAD | LEADING).items()}
    return FakeGroup({"g": Damaged({"x": ARRAY, **links, "bad": FakeGroup({})}), "h": Link("g")})


@pytest.mark.parametrize(("name", "names"), [("up", []), ("near", ["g", "x"]), ("over a link", ["g", "x"])])
def test_links_are_followed_over_links(name: str, names: list[str]) -> None:
    root = root_with_links()
    target = follow(root, ("g",), LEADING[name])
    assert [part for part, _ in target.trail] == names
    assert target.node is (ARRAY if names else root)


@pytest.mark.parametrize("name", DEAD)
def test_p8_a_link_that_leads_nowhere_says_so(name: str) -> None:
    root = root_with_links()
    with pytest.raises((NotFound, TooDeep)):
        follow(root, ("g",), DEAD[name])
    assert str(dead_end(root, ("g",), Link(DEAD[name]))).startswith(f"a link to {DEAD[name]}")


def test_a_link_to_something_damaged_leads_there() -> None:
    assert dead_end(root_with_links(), ("g",), Link("bad/x")) is None


@pytest.mark.parametrize("layout", ["zarr3", "zarr2", "n5", "files"])
def test_p8_links_that_lead_nowhere_are_not_listed_but_found(layout: str, caplog: pytest.LogCaptureFixture) -> None:
    """zarr-python opens all that is listed, and fails on the whole group at the first ELOOP."""
    with caplog.at_level(logging.WARNING):
        directory: Any = tree(root_with_links(), layout=layout).lookup(b"g")
        listed = {entry.name.decode().partition(".")[0] for batch in directory.entries() for entry in batch}
        walk(directory)
    assert not listed & DEAD.keys()
    assert listed >= LEADING.keys()
    assert [
        sum(f"/g/{name} is left out of the layout {layout}: a link to" in line for line in caplog.messages) for name in DEAD
    ] == [1] * len(DEAD)
    assert directory.lookup(b"itself").target == b"itself"  # so the kernel answers ELOOP, or ENOENT


def test_info_names_links_that_lead_nowhere() -> None:
    rows = {row.path: row for row in rows_of(root_with_links(), 5)}
    for name, target in DEAD.items():
        assert str(rows[f"/g/{name}"].note).startswith(f"a link to {target}")
    assert {rows[f"/g/{name}"].note for name in LEADING} == {None}
