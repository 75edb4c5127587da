"""Hung jobs: while one has passed its deadline and still hangs, further jobs are refused at once or get less time.

Without this each new reader of a hung store would wait for a deadline of its own and take another thread with it. Not here:
threads and deadlines (`jobs.py`). The event loop's thread owns everything.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import NamedTuple

from fsbridge.errors import TimedOut

HUNG_MEMBERS = 8
"""Number of hung members from which on all jobs in a directory are refused at once. Each hung member costs a thread.

It is more than one because only some of several stores in one directory may hang.
"""


class Subject(NamedTuple):
    """What a job is about: a directory, by inode, and a member of it, by inode or, if it has none yet, by name."""

    directory: int
    member: Hashable


class Overdue:
    """The hung jobs of one lane, that is, of one group of worker threads (`jobs.py`).

    `suspected`: seconds that a job may take while another in the same directory hangs.
    """

    def __init__(self, suspected: float) -> None:
        self._suspected = suspected
        self._hung: dict[int, dict[Hashable, int]] = {}

    def __len__(self) -> int:
        return len(self._hung)

    def patience(self, subject: Subject | None) -> float:
        """Most seconds for a job for `subject`, infinite if nothing hangs; TimedOut while an earlier job for it hangs."""
        if not self._hung or subject is None:
            return math.inf
        members = self._hung.get(subject.directory)
        if members is None:
            return math.inf
        if subject.member in members or len(members) >= HUNG_MEMBERS:
            raise TimedOut("an earlier request for the same has passed its deadline and still hangs")
        return self._suspected

    def begins(self, subject: Subject) -> None:
        """Note that a job for `subject` hangs beyond its deadline."""
        members = self._hung.setdefault(subject.directory, {})
        members[subject.member] = members.get(subject.member, 0) + 1

    def ends(self, subject: Subject) -> None:
        """Note that a hung job for `subject` is over."""
        members = self._hung[subject.directory]
        members[subject.member] -= 1
        if not members[subject.member]:
            del members[subject.member]
            if not members:
                del self._hung[subject.directory]
