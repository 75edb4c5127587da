"""The filter pipeline of a dataset as codec chains, one per filter mask. Not here: any decoder (`codecs/hdf5.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from fsbridge.codecs import CodecChain, Decoder, hdf5
from fsbridge.errors import Unsupported
from fsbridge.formats.hdf5.answers import Filter


class Pipeline:
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
                name = f"{entry.name} ({entry.number})" if entry.name else str(entry.number)
                raise Unsupported(f"HDF5 filter {name} can be decoded neither here nor by the installed HDF5")
        return CodecChain((*steps, *self._last))
