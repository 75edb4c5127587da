"""Files that are made as a whole: what is open of them leaves room in the cache for whoever reads anything else."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import zarr

from fsbridge.config import MIB, Config
from fsbridge.errors import OutOfBudget
from fsbridge.mount.lifecycle import Tree, open_tree
from fsbridge.tree import File, Handle


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Three tables whose texts have 0.8 MiB each, in a cache of 4 MiB."""
    group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=2)
    for number, name in enumerate("abc"):
        group.create_array(name, shape=(50_000, 2), chunks=(10_000, 2), dtype="<i8")[...] = np.full(
            (50_000, 2), 10**7 + number
        )
    return open_tree(Config(str(tmp_path / "s"), "/nowhere", layout="files", cache_size=4 * MIB))


def file(tree: Tree, name: str) -> Handle:
    return cast(File, tree.root.lookup(name.encode())).open()


def test_p7_files_that_are_made_leave_room_and_one_too_many_is_refused_at_once(tree: Tree) -> None:
    first, again, second = file(tree, "a.csv"), file(tree, "a.csv"), file(tree, "b.csv")
    with pytest.raises(OutOfBudget, match=r"close some, or --cache-size 6M permits it"):
        file(tree, "c.csv")
    whole = file(tree, "c.npy")
    assert bytes(whole.read(0, whole.size)).endswith(np.int64(10**7 + 2).tobytes())
    first.close()
    with pytest.raises(OutOfBudget):  # somebody else still has it open
        file(tree, "c.csv")
    again.close()
    third = file(tree, "c.csv")
    assert bytes(third.read(0, 18)) == b"10000002,10000002\n"
    assert bytes(second.read(0, 18)) == b"10000001,10000001\n"
