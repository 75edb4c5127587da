"""Decoding by imagecodecs."""

from __future__ import annotations

import numpy as np

from fsbridge.codecs.images import Image, library


def test_lzw_data_without_their_last_byte_are_refused_or_complete() -> None:
    """The library makes up the last numbers of some. The length is right then."""
    rng = np.random.default_rng(5)
    decoder = Image("imagecodecs_lzw", "lzw", "{}")
    outcomes: set[bool | str] = set()
    for length in range(600, 700):
        numbers = rng.bytes(length)
        stored = bytes(library().Lzw().encode(numbers))
        assert decoder.decode(stored, length, length, None) == numbers
        assert decoder.decode(stored + b"more", length, length, None) == numbers
        try:
            outcomes.add(decoder.decode(stored[:-1], length, length, None) == numbers)
        except Exception as error:  # the worker tells whatever the library raises as damage
            outcomes.add(type(error).__name__)
    assert False not in outcomes, outcomes
    assert outcomes - {True}, "no data were refused"
