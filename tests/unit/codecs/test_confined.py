"""Decoders in child processes: whatever a library does there, the answer is an error or the right number of bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path

import codec_writers
import pytest

from fsbridge.asking import WouldWait, without_waiting
from fsbridge.children import landlock
from fsbridge.codecs import CodecChain, confined, table
from fsbridge.errors import CorruptData, TooLarge

LIMITS = count(1 << 20)
"""A new limit makes new children."""


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[CodecChain, int]]:
    """FLAC's decoder with a library that does what the chunk says, and a limit for it."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "support"))
    limit = next(LIMITS)
    flac = table.decoder({"id": "flac"})
    assert isinstance(flac, confined.Confined)
    yield CodecChain((replace(flac, program="hostile_worker", computing=1.0),)), limit
    for supervisor in confined._pools.get().pop(("hostile_worker", "flac_numcodecs", limit)).queue:
        supervisor.close()


@pytest.mark.parametrize(
    ("chunk", "reason"),
    [
        ("crash", r"the child process ended \(SIGSEGV\)"),
        ("bomb", "takes more memory than the chunk's size explains"),
        ("unwritten", "left bytes unwritten"),
        ("beyond", "read beyond its data"),
        ("raise", "the library says no"),
        ("long", "4097 bytes where 4096 were expected"),
    ],
)
def test_p8_what_a_library_does_is_damage_of_one_chunk(hostile: tuple[CodecChain, int], chunk: str, reason: str) -> None:
    chain, limit = hostile
    with pytest.raises(CorruptData, match=f"^flac: .*{reason}"):
        chain.decode(chunk.encode(), 4096, limit)
    assert len(chain.decode(b"pid", 4096, limit)) == 4096


def test_p7_a_library_that_computes_without_end_is_ended(hostile: tuple[CodecChain, int]) -> None:
    chain, limit = hostile
    with pytest.raises(CorruptData, match="computed for too long"):
        chain.decode(b"loop", 8, limit)


def test_p4_a_decoder_can_open_nothing_but_its_library(hostile: tuple[CodecChain, int]) -> None:
    assert landlock.version(), "the tests need a kernel with Landlock"
    chain, limit = hostile
    for chunk in (b"open", b"write"):
        with pytest.raises(CorruptData, match="Permission denied"):
            chain.decode(chunk, 4, limit)
    assert not Path("/tmp/written-by-a-decoder").exists()


def test_children_are_shared_but_replaced_after_damage(hostile: tuple[CodecChain, int]) -> None:
    chain, limit = hostile
    first = bytes(chain.decode(b"pid", 9, limit))
    assert bytes(chain.decode(b"pid", 9, limit)) == first
    with pytest.raises(CorruptData):
        chain.decode(b"raise", 9, limit)
    assert bytes(chain.decode(b"pid", 9, limit)) != first


def test_several_threads_have_several_children(hostile: tuple[CodecChain, int]) -> None:
    chain, limit = hostile
    with ThreadPoolExecutor(8) as pool:
        pids = set(pool.map(lambda _: bytes(chain.decode(b"pid", 9, limit)), range(64)))
    assert 1 <= len(pids) <= confined.CHILDREN
    assert all(os.path.exists(f"/proc/{int(pid)}") for pid in pids)


def test_a_thread_that_may_not_wait_asks_no_child(hostile: tuple[CodecChain, int]) -> None:
    chain, limit = hostile
    chain.decode(b"pid", 9, limit)
    with pytest.raises(WouldWait), without_waiting():
        chain.decode(b"pid", 9, limit)


@pytest.mark.parametrize("name", ["blosc2", "wavpack", "imagecodecs_qoi"])
def test_an_intact_chunk_above_the_limit_is_too_large_not_corrupt(name: str) -> None:
    chunk = codec_writers.chunk(name)
    chain = CodecChain((table.decoder(chunk.config),))
    with pytest.raises(TooLarge, match=f"decodes to {len(chunk.decoded)} bytes"):
        chain.decode(chunk.stored, None, len(chunk.decoded) - 1)
    with pytest.raises(CorruptData):
        chain.decode(chunk.stored, len(chunk.decoded) - 1, len(chunk.decoded) - 1)
