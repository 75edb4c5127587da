"""Chains that decode nothing: an array with a codec that is not in the table still shows its metadata. Not here: codecs."""

from __future__ import annotations

from dataclasses import dataclass

from fsbridge.codecs import Buffer, CodecChain
from fsbridge.codecs.chain import CodecAbilities
from fsbridge.errors import Unsupported


@dataclass(frozen=True, slots=True)
class RefusedStep(CodecAbilities):
    """A step that never decodes: Unsupported, with the reason."""

    name: str
    reason: str

    def encoded_size(self, decoded: int) -> int | None:
        return None

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        raise Unsupported(self.reason)


def refusal(*chains: CodecChain) -> str | None:
    """Why no chunk can be decoded, if one of the steps refuses them all."""
    return next((step.reason for chain in chains for step in chain.steps if isinstance(step, RefusedStep)), None)
