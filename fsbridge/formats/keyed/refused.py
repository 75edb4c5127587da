"""A codec chain for unknown codecs: the array shows its metadata, its chunks raise Unsupported. Not here: codecs."""

from __future__ import annotations

from dataclasses import dataclass

from fsbridge.codecs import Buffer, CodecChain
from fsbridge.codecs.chain import CodecAbilities
from fsbridge.errors import Unsupported


@dataclass(frozen=True, slots=True)
class RefusedStep(CodecAbilities):
    """A decoding step that always raises Unsupported with its reason."""

    name: str
    reason: str

    def encoded_size(self, decoded: int) -> int | None:
        return None

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        raise Unsupported(self.reason)


def refusal(*chains: CodecChain) -> str | None:
    """Return the reason of the first RefusedStep in these chains, or None if there is none."""
    return next((step.reason for chain in chains for step in chain.steps if isinstance(step, RefusedStep)), None)
