"""The README is short enough to be read, and states each promise. Not here: what is true of all pages (`test_docs.py`)."""

from __future__ import annotations

import re

from documents import PAGES, section

README = PAGES["README.md"]


def test_it_is_short() -> None:
    lines = README.splitlines()
    assert len(lines) <= 200
    assert [line for line in lines if len(line) > 110] == []


def test_it_states_each_promise() -> None:
    stated = dict(re.findall(r"^\| (P\d+) \| (.*?): ", section(README, "What you can rely on"), re.MULTILINE))
    promised = dict(
        re.findall(r"^\| (P\d+) \| \[\*\*(.*?)\.\*\*\]", section(PAGES["docs/semantics.md"], "The promises"), re.MULTILINE)
    )
    assert stated == promised
    assert len(stated) == 12
