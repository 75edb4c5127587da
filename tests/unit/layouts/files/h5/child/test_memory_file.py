"""The file in memory into which h5py writes skeletons, against a plain buffer."""

from __future__ import annotations

import random

from fsbridge.layouts.files.h5.child.memory_file import PAGE, PagedFile


def test_pages_hold_what_was_written_and_not_discarded() -> None:
    chance, pages, expected = random.Random(1), PagedFile(), bytearray(64 * PAGE)
    for _ in range(300):
        start = chance.randrange(60 * PAGE)
        content = chance.randbytes(chance.randrange(3 * PAGE))
        if chance.random() < 0.8:
            pages.seek(start)
            assert pages.write(content) == len(content)
            expected[start : start + len(content)] = content
        else:
            stop = start + chance.choice((0, 1, PAGE, 5 * PAGE))
            pages.discard(start, stop)
            first, last = start // PAGE, -(-stop // PAGE)
            expected[first * PAGE : last * PAGE] = bytes((last - first) * PAGE)
        pages.seek(0)
        found = bytearray(64 * PAGE)
        pages.readinto(found)
        assert found == expected
        assert sum(len(piece) for _, piece in pages.list_pieces()) == len(pages.pages) * PAGE
    shown = bytearray(64 * PAGE)
    for offset, piece in pages.list_pieces():
        shown[offset : offset + len(piece)] = piece
    assert shown == expected


def test_many_large_ranges_are_discarded_quickly() -> None:
    """One per dataset of a group: each costs what it discards, not what there is."""
    pages = PagedFile()
    for number in range(20_000):
        pages.seek(number << 30)
        pages.write(b"x")
    for number in range(0, 20_000, 2):
        pages.discard(number << 30, (number + 1) << 30)
    assert len(pages.pages) == len(pages.list_pieces()) == 10_000
