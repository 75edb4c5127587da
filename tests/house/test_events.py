"""Unit tests wait for events and conditions, and let a clock go on; what waits for a time is slow, or fails now and then."""

from __future__ import annotations

import re

from paths import TESTS

SLEEP = re.compile(r"\bsleep\(")


def test_no_unit_test_sleeps() -> None:
    """What there is instead: `until`, `eventually` and `Clock` of tests/support/waiting.py, and trio's testing clock."""
    asleep = [
        f"{path.relative_to(TESTS)}:{number}: {line.strip()}"
        for path in sorted((TESTS / "unit").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if SLEEP.search(line)
    ]
    assert not asleep, "\n".join(asleep)
