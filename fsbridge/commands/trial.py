"""A trial of a source for `fsbridge doctor`: it is opened, and one chunk of each codec in it is decoded and timed.

Not here: reading all of it (`fsbridge verify`), what is found elsewhere (`diagnosis.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import cast

from fsbridge.cache import ChunkCache
from fsbridge.commands.diagnosis import Diagnosis
from fsbridge.config import Config
from fsbridge.deadlines import Stopwatch
from fsbridge.decoded.chunks import DecodedChunks
from fsbridge.errors import FsbridgeError, NotFound
from fsbridge.formats.open import open_source
from fsbridge.metadata import Index
from fsbridge.model import Array, Group, Link, Node, as_array

MEMBERS, SECONDS = 10_000, 30.0
"""Most members of a hierarchy that are looked at, and seconds after which no further array is tried."""


def trial(config: Config) -> Iterator[Diagnosis]:
    """Open the source of `config`. Yields one finding for that, and one for each codec."""
    begun = Stopwatch()
    source = open_source(config.source, config)
    try:
        yield Diagnosis(config.source, "ok", f"{source.format.name}, opened in {begun.seconds * 1000:.0f} ms")
        tried = set[str]()
        cache = ChunkCache(config.cache_size)
        for path, array in islice(_arrays("", source.root, config.limits.depth), MEMBERS):
            codec = array.metadata.codec or "none"
            if codec in tried or begun.seconds > SECONDS:
                continue
            finding = _one_chunk(path or "/", array, codec, cache, config)
            if finding is not None:
                tried.add(codec)
                yield finding
    finally:
        source.close()


def _arrays(path: str, node: Node, depth: int) -> Iterator[tuple[str, Array]]:
    if isinstance(node, Link):
        return
    array = as_array(node)
    if array is not None:
        yield path, array
    elif depth >= 0:
        for child in sorted(cast(Group, node).children(), key=lambda child: child.name):
            try:
                found = cast(Group, node).child(child.name)
            except (FsbridgeError, OSError):
                continue  # `fsbridge info` names those that cannot be read
            yield from _arrays(f"{path}/{child.name}", found, depth - 1)


def _one_chunk(path: str, array: Array, codec: str, cache: ChunkCache, config: Config) -> Diagnosis | None:
    """How the first stored chunk of `array` decodes; None if nothing is stored."""
    subject = f"codec {codec}"
    if array.metadata.refused is not None:
        return Diagnosis(subject, "bad", f"{path}: {array.metadata.refused}")
    try:
        index = _first(array)
        if index is None:
            return None
        begun = Stopwatch()
        data = DecodedChunks(array, cache, config.max_chunk).open(index)
        size = len(data.read(0, data.size))
    except NotFound:
        return None
    except (FsbridgeError, OSError) as error:
        return Diagnosis(subject, "bad", f"{path}: {error}", "restore it from a copy; fsbridge info lists the others")
    milliseconds = begun.seconds * 1000
    return Diagnosis(subject, "ok", f"{path}: a chunk of {size:,} bytes read and decoded in {milliseconds:.1f} ms")


def _first(array: Array) -> Index | None:
    """The index of the first chunk that a listing names."""
    index: Index = ()
    for _ in array.metadata.grid.counts:
        found = next((pairs[0][0] for pairs in array.chunks.scan(index) if pairs), None)
        if found is None:
            return None
        index = (*index, found)
    return index
