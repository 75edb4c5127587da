"""Places whose jobs have passed their deadline and still hang: whoever asks there again is answered at once, or soon.

Without this each new reader of a hung store would wait for a deadline of its own and take another thread with it. Not
here: threads and deadlines (`jobs.py`). The event loop's thread owns everything.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import NamedTuple

from fsbridge.errors import TimedOut

HUNG_MEMBERS = 8
"""Members of one directory that may hang before the whole directory is answered at once: each costs a thread, and several
stores may live in one directory, of which only some hang."""


class Place(NamedTuple):
    """What a job is about: a member of a directory, both by inode (or name, where there is no inode yet)."""

    directory: int
    member: Hashable


class Overdue:
    """The hung jobs of one lane. `suspected`: seconds that a job may take next to a hung one of the same directory."""

    def __init__(self, suspected: float) -> None:
        self._suspected = suspected
        self._hung: dict[int, dict[Hashable, int]] = {}

    def __len__(self) -> int:
        return len(self._hung)

    def patience(self, place: Place | None) -> float:
        """Seconds that a job for `place` may take beside its deadline; TimedOut while an earlier one there still hangs."""
        if not self._hung or place is None:
            return math.inf
        members = self._hung.get(place.directory)
        if members is None:
            return math.inf
        if place.member in members or len(members) >= HUNG_MEMBERS:
            raise TimedOut("an earlier request for the same has passed its deadline and still hangs")
        return self._suspected

    def begins(self, place: Place) -> None:
        """A job for `place` hangs beyond its deadline."""
        members = self._hung.setdefault(place.directory, {})
        members[place.member] = members.get(place.member, 0) + 1

    def ends(self, place: Place) -> None:
        """It is over."""
        members = self._hung[place.directory]
        members[place.member] -= 1
        if not members[place.member]:
            del members[place.member]
            if not members:
                del self._hung[place.directory]
