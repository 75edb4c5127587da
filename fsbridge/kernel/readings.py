"""Reading whole directories before a program enters them, with the directories below them if those are few.

Not here: which ones (`readahead/directories.py`), for how long they are remembered (`directories.py`), open listings
(`handles.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import cast

from fsbridge.errors import FsbridgeError
from fsbridge.kernel.ages import Ages
from fsbridge.kernel.handles import Reading, all_batches
from fsbridge.kernel.records import Record
from fsbridge.tree import Attrs, Directory, Entry, Numbered, Space

BELOW_DIRECTORIES = 16
"""Most directories below one that are read with it: an array's chunk directories, or a chain of nested groups."""


def read_directory(ages: Ages, node: Directory, attrs: Attrs | None = None, asked: float = math.inf) -> Reading | None:
    """Read all of a directory; None if it is too large or takes long. Blocks; raises what the listing raises.

    `attrs`: its attributes, if the listing of the directory above gave them at the time `asked`.
    """
    with ages.listed(node.extent) as answers:
        shown = node.present()  # which asks what there is now, so that the attributes need not
        attrs = attrs or node.attrs()
        batches = all_batches(shown)
    if batches is None:
        return None
    reading = Reading(node, shown, batches, min(asked, answers.oldest))
    reading.attrs = attrs
    return reading


def read_tree(ages: Ages, node: Directory) -> Reading | None:
    """Read all of a directory, and the directories below it if they are few; see `read_directory`."""
    reading = read_directory(ages, node)
    if reading is not None:
        _read_below(ages, reading, reading, iter(range(BELOW_DIRECTORIES)))
    return reading


def _read_below(ages: Ages, top: Reading, reading: Reading, room: Iterator[int]) -> None:
    """Read the directories below `reading`. Chunk directories are kept in `top`: the array's directory, or `reading`."""
    found = list(islice(_directories(reading), BELOW_DIRECTORIES + 1))
    for entry in found[:BELOW_DIRECTORIES]:
        numbered = isinstance(entry.node, int)
        if not numbered and len(found) > BELOW_DIRECTORIES:
            continue  # their visitor is followed
        if next(room, None) is None:
            return
        try:
            below = _read_member(ages, reading, entry)
        except (FsbridgeError, OSError):
            continue  # the program that enters it meets the error
        if below is None:
            return
        if isinstance(entry.node, int):
            top.below[entry.node] = below
            top.nbytes += below.nbytes
            _read_below(ages, top, below, room)
        else:
            _read_below(ages, below, below, room)
            reading.named[entry.name] = below
            reading.nbytes += below.nbytes


def _read_member(ages: Ages, reading: Reading, entry: Entry) -> Reading | None:
    if isinstance(entry.node, int):
        assert reading.shown.space is not None
        return read_directory(ages, cast(Directory, reading.shown.space.node(entry.node)), entry.attrs, reading.asked)
    assert entry.node is not None
    return read_directory(ages, cast(Directory, entry.node()))


def _directories(reading: Reading) -> Iterator[Entry]:
    for batch in reading.batches:
        if not isinstance(batch, Numbered) or batch.kind == "directory":
            yield from (entry for entry in batch if entry.attrs.kind == "directory")


def read_record(record: Record, read: Callable[[Directory], Reading | None]) -> Reading | None:
    """Open the directory of an ordinary inode and return what `read` makes of it. Blocks."""
    node = record.open()
    with node.together():
        return read(cast(Directory, node))


def read_numbered(ages: Ages, space: Space, position: int) -> Reading | None:
    """Read all of a numbered directory; None also if it is empty, because it may not exist. Blocks."""
    reading = read_directory(ages, cast(Directory, space.node(position)))
    return reading if reading is not None and reading.batches else None
