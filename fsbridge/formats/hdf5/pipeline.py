"""The filter pipeline of a dataset as codec chains, one per filter mask. Not here: any decoder (`codecs/hdf5.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from fsbridge.codecs import CodecChain, Decoder, hdf5
from fsbridge.errors import Unsupported
from fsbridge.formats.hdf5.answers import Filter

INSTALL = "pip install hdf5plugin, beside fsbridge"
_REGISTERED = {
    32013: "ZFP",
    32014: "FPZip",
    32017: "SZ",
    32018: "FCIDECOMP",
    32019: "JPEG",
    32024: "SZ3",
    32026: "Blosc2",
    32028: "SPERR",
    32040: "HTJ2K",
}
"""Registered filters (HDF Group's list) that are not decoded here, by the name that people know."""
_IN_HDF5PLUGIN = frozenset({32013, 32017, 32018, 32024, 32026, 32028, 32040})


class FilterPipeline:
    """Filters in encoding order, decoded backwards; filter i is skipped for chunks whose mask has bit i set."""

    def __init__(self, filters: Sequence[Filter], normaliser: Decoder | None) -> None:
        self._filters = filters
        self._last = () if normaliser is None else (normaliser,)
        self._chains: dict[int, CodecChain | None] = {}

    def chain(self, mask: int) -> CodecChain | None:
        """The chain for a chunk's mask; None where HDF5 itself must decode. Unsupported where not even HDF5 here can."""
        mask &= (1 << len(self._filters)) - 1
        if mask not in self._chains:
            self._chains[mask] = self._build(mask)
        return self._chains[mask]

    def _build(self, mask: int) -> CodecChain | None:
        used = [entry for i, entry in enumerate(self._filters) if not mask >> i & 1]
        steps: list[Decoder] = []
        for entry in reversed(used):
            step = hdf5.decoder(entry.number, entry.values)
            if step is not None:
                steps.append(step)
            elif all(other.available for other in used):
                return None
            else:
                raise Unsupported(_refusal(entry))
        return CodecChain((*steps, *self._last))


def _refusal(entry: Filter) -> str:
    """Which filter is missing, and the command that helps."""
    name = _REGISTERED.get(entry.number, entry.name[:60])
    what = f"HDF5 filter {name} ({entry.number})" if name else f"HDF5 filter {entry.number}"
    if entry.number in _IN_HDF5PLUGIN:
        return f"{what} needs a plug-in: {INSTALL}"
    return f"{what} is decoded neither here nor by the installed HDF5: --hdf5-plugins DIR names a folder with its plug-in"
