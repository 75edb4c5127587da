"""Hung jobs: while one has passed its deadline and still hangs, further jobs are refused at once, or soon.

Without this each new reader of a hung store would wait for a deadline of its own and take another thread with it. Not here:
threads and deadlines (`jobs.py`). The event loop's thread owns everything.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import NamedTuple

from fsbridge.errors import TimedOut

HUNG_MEMBERS = 8
"""Members of one directory that may hang before the whole directory is answered at once: each costs a thread, and only some
of several stores in one directory may hang.
"""


class Subject(NamedTuple):
    """The member of a directory that a job is about: both by inode, or the member by name if it has no inode yet."""

    directory: int
    member: Hashable


class Overdue:
    """The hung jobs of one lane. `suspected`: seconds that a job may take next to a hung one of the same directory."""

    def __init__(self, suspected: float) -> None:
        self._suspected = suspected
        self._hung: dict[int, dict[Hashable, int]] = {}

    def __len__(self) -> int:
        return len(self._hung)

    def patience(self, subject: Subject | None) -> float:
        """Seconds that a job for `subject` may take beside its deadline; TimedOut while an earlier one there still hangs."""
        if not self._hung or subject is None:
            return math.inf
        members = self._hung.get(subject.directory)
        if members is None:
            return math.inf
        if subject.member in members or len(members) >= HUNG_MEMBERS:
            raise TimedOut("an earlier request for the same has passed its deadline and still hangs")
        return self._suspected

    def begins(self, subject: Subject) -> None:
        """A job for `subject` hangs beyond its deadline."""
        members = self._hung.setdefault(subject.directory, {})
        members[subject.member] = members.get(subject.member, 0) + 1

    def ends(self, subject: Subject) -> None:
        """The job for `subject` that hung is over."""
        members = self._hung[subject.directory]
        members[subject.member] -= 1
        if not members[subject.member]:
            del members[subject.member]
            if not members:
                del self._hung[subject.directory]
