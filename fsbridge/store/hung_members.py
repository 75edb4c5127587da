"""Questions about all members of a directory, some of which may hang: those that do not answer in time are skipped (P7).

Not here: what is asked: where a link leads (`local/files.py`), what a member of a collection is (formats). Thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from fsbridge import confinement
from fsbridge.asking import before_waiting
from fsbridge.store import Key

R = TypeVar("R")

PATIENCE_SECONDS = 2.0
"""Seconds to wait for a member that is not known yet: far more than it takes on a busy machine."""

KNOWN_SECONDS = 0.25
"""Seconds to wait for a member known from an earlier listing: too few to make the listing overdue."""

IMPATIENCE = 5
"""After one member has hung, the next ones of the listing get a fifth of the time: if one hangs, several often do."""

HANGING = 16
"""Most members that may hang at a time, each holding a thread. While so many hang, listings ask about no others."""


class _Round(Generic[R]):
    """The members of one listing, asked in their order by a thread. `ask` raises nothing."""

    def __init__(self, keys: Sequence[Key], ask: Callable[[Key], R]) -> None:
        self.keys = keys
        self.ask = ask
        self.changed = threading.Condition()
        self.answers: list[R] = []
        self.begun = time.monotonic()
        self.given_up = False
        self.ended = False


class HungMembers(Generic[R]):
    """The members of one store that hang now: no listing asks one of them again until it answers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hanging: set[Key] = set()

    def hangs(self, key: Key) -> bool:
        """True if the member at `key` did not answer in time, and a thread still waits for it."""
        return key in self._hanging

    def answers(self, keys: Sequence[Key], ask: Callable[[Key], R], known: Callable[[Key], bool]) -> Iterator[R | None]:
        """Yield what `ask` returns for each key, in order; None for a member that hangs. `ask` must raise nothing.

        It waits a little for each member, less for those that are `known`.
        """
        before_waiting()
        haste, left = 1, list(keys)
        while left:
            if left[0] in self._hanging or len(self._hanging) >= HANGING:
                yield None
                del left[0]
                continue
            asked = left[: next((number for number, key in enumerate(left) if key in self._hanging), len(left))]
            current = _Round(asked, ask)
            confinement.start(lambda current=current: self._run(current), "fsbridge-members")  # type: ignore[misc]
            for number, key in enumerate(asked):
                patience = KNOWN_SECONDS if known(key) else PATIENCE_SECONDS
                answer = self._wait(current, number, key, patience / haste)
                yield answer
                del left[0]
                if answer is None:
                    haste = IMPATIENCE
                    break

    def _wait(self, current: _Round[R], number: int, key: Key, patience: float) -> R | None:
        with current.changed:
            while len(current.answers) <= number:
                if current.ended:  # the asking thread failed, not the member: the next listing asks again
                    return None
                waited = time.monotonic() - current.begun
                if waited >= patience:
                    current.given_up = True
                    with self._lock:
                        self._hanging.add(key)
                    return None
                current.changed.wait(patience - waited)
            return current.answers[number]

    def _run(self, current: _Round[R]) -> None:
        try:
            for key in current.keys:
                answer = current.ask(key)
                with current.changed:
                    if current.given_up:
                        return
                    current.answers.append(answer)
                    current.begun = time.monotonic()
                    current.changed.notify_all()
        finally:  # also after a MemoryError
            with current.changed:
                current.ended = True
                current.changed.notify_all()
                if current.given_up:
                    with self._lock:
                        self._hanging.discard(key)
