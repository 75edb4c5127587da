"""File names of arrays: `NAME.suffix`, `NAME[region].suffix` and `NAME@region.suffix`.

The last form is for programs that treat brackets specially, and for Windows and SMB: `_` may stand for the `:` that no name
has there. In brackets it may not, because `1_0` is a number in Python. If a name can be read in two ways, the longer array
name wins.

Pure. Not here: which arrays there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fsbridge.layouts.files.filetypes import ALIASES, SUFFIXES

SLICES = "slices"
"""Suffix of the directory of an array's planes."""

ENDINGS = (*sorted((*SUFFIXES, SLICES), key=len),)
"""All that can follow an array's name and a dot, the shortest first."""


class ParsedName(NamedTuple):
    """One way to read a file name. `suffix`: the real one if the name ends with an alias."""

    array: str
    region: str | None
    suffix: str


def parse_name(name: str, endings: Sequence[str] = ENDINGS) -> Iterator[ParsedName]:
    """Yield all ways to read a file name, the longest array name first.

    Of equal names, the one without a region comes first.
    """
    bases = [(name[: -len(suffix) - 1], ALIASES.get(suffix, suffix)) for suffix in endings if name.endswith(f".{suffix}")]
    ways = [ParsedName(base, None, suffix) for base, suffix in bases if base]
    for base, suffix in bases:
        if base.endswith("]"):
            cuts = [i for i, char in enumerate(base) if char == "["]
            ways += [ParsedName(base[:cut], base[cut + 1 : -1], suffix) for cut in cuts if cut]
        cuts = [i for i, char in enumerate(base) if char == "@"]
        ways += [ParsedName(base[:cut], base[cut + 1 :], suffix) for cut in cuts if cut]
    yield from sorted(ways, key=lambda reading: -len(reading.array))


def restore_colons(region: str) -> str:
    """Return the region of a file name `NAME@region.suffix` in numpy's slice syntax: `0_5` becomes `0:5`."""
    return region.replace("_", ":")


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The members of a group with names that could also be names of an array's files.

    `claims`: by array, the members with names that can be read as names of its files.
    """

    names: frozenset[str] = frozenset()
    claims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def find_among(cls, members: Iterable[str]) -> Neighbours:
        """Find the neighbours among a group's members."""
        odd = sorted(name for name in members if "[" in name or "." in name)
        claims: dict[str, list[str]] = {}
        for name in odd:
            for array in {reading.array for reading in parse_name(name)}:
                claims.setdefault(array, []).append(name)
        return cls(frozenset(odd), {array: tuple(claimants) for array, claimants in claims.items()})

    def allow(self, name: str, suffix: str) -> bool:
        """True if `name.suffix` is a file of the array `name`, not a member, nor a file of an array with a longer name."""
        if not self.names:
            return True
        full, names = f"{name}.{suffix}", self.names
        taken = any(reading.array in names for reading in parse_name(full) if len(reading.array) > len(name))
        return not (full in names or taken)

    def find_collisions(self, name: str) -> tuple[str, ...]:
        """Return a sentence for `NAME.json` about each member that has taken the name of one of the array's files."""
        claimed = self.claims.get(name, ())
        return tuple(f"{other} is a member of this group, so {name} has no file of that name" for other in claimed)


NO_NEIGHBOURS = Neighbours()


def find_full_store_name(source: str) -> str:
    """Return the store's name with its suffix. `source`: its path or URL."""
    return source.rstrip("/").rpartition("/")[2] or "root"


def find_store_name(source: str) -> str:
    """Return the store's name without its suffix, which is the name of the root's files. `source`: its path or URL.

    `brain.n5`, `brain.zarr.zip` and `brain.ome.zarr` are `brain`, so that files of an image are not called `.ome.ome.tif`.
    """
    name = find_full_store_name(source)
    stem = name[:-4] if name.lower().endswith((".zip", ".ozx")) else name
    stem = stem.rpartition(".")[0] or stem
    return stem[:-4] if stem.lower().endswith(".ome") and len(stem) > 4 else stem
