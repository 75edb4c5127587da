"""What is remembered of objects far away while several threads use it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from fsbridge.store import Key, Stat
from fsbridge.store.remote.answers import Ages, Answers, KnownObject

OBJECT = bytes(range(200))


def meanwhile(act: Callable[[], object], line: int, call: Callable[[], bytes | None]) -> bytes | None:
    """`call()`, and what another thread does before the `line`th line of it."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if frame.f_code is not KnownObject.part.__code__:
            return None
        lines += event == "line"
        if event == "line" and lines == line:
            act()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("line", range(1, 6))
@pytest.mark.parametrize("comes", [True, False])
def test_bytes_that_come_or_go_during_a_look_are_the_right_ones_or_none(line: int, comes: bool) -> None:
    answers, key = Answers(Ages(10.0, 10.0)), Key("shard")
    known = KnownObject(Stat(False, len(OBJECT), 0, 1), "etag")
    answers.put(key, known)
    if not comes:
        answers.keep(key, known, (0, OBJECT[:100]))

    def act() -> None:
        if comes:
            answers.keep(key, known, (100, OBJECT[100:]))
        else:
            answers._release(key)

    found = meanwhile(act, line, lambda: known.part(10, 20))
    assert found in (None, OBJECT[10:30])
