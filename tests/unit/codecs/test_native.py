"""The native libraries that decoders share: what glibc's malloc is told."""

from __future__ import annotations

from types import SimpleNamespace

from fsbridge.codecs import native
from fsbridge.codecs.native import HEAPS, keep_freed_memory


def test_p6_freed_memory_is_kept_within_bounds_or_nothing_happens() -> None:
    options: dict[int, int] = {}
    keep_freed_memory(SimpleNamespace(mallopt=options.__setitem__))
    assert len(options) == 3
    assert options[native._M_ARENA_MAX] == HEAPS, "on any number of processors"
    kept = options[native._M_ARENA_MAX] * options[native._M_TRIM_THRESHOLD]
    assert kept <= 64 << 20, "with 64 processors it was 4 GiB, which no budget counted (P6)"
    keep_freed_memory(SimpleNamespace())
