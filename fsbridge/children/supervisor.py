"""A child process that starts when needed and again after a crash. A question that ended it is not asked again for a while.

For anything that needs one: an HDF5 file, the databases of a Hangar repository. Not here: one process (`client.py`), the
questions.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from fsbridge.asking import before_waiting
from fsbridge.children.client import ChildDied, ChildEndless, ChildGone, ChildProcess, ChildTooSlow, Supply
from fsbridge.lru import Recent
from fsbridge.threads.deadlines import Deadline, Stopwatch

log = logging.getLogger(__name__)

AVOIDED_SECONDS = 60.0
"""Seconds for which a question that ended a child is answered with an error at once. It would end the next child, too.

The time doubles each time that this happens.
"""
AVOIDED_MOST_SECONDS = 3600.0
AVOIDED_SUBJECTS = 10_000
"""How many such questions are remembered, the latest ones."""
AVOIDED_PARTS = 4
"""Once so many parts of a subject are avoided, all of it is."""
CALL_ATTEMPTS = 2
"""Most children that one question may end. The first may have been damaged by an earlier question."""

HALVINGS = 3
"""Most halvings of a question's CPU time: one for each question of the last `AVOIDED_SECONDS` that computed without end."""


class _Avoided(NamedTuple):
    """A question that ended a child and is not asked again before `until`: for `seconds`."""

    until: Deadline
    seconds: float
    message: str


Answer: TypeAlias = tuple[dict[str, Any], list[bytearray]]


class Supervisor:
    """Runs at most one child at a time, made by `start`. Thread-safe. Every error message begins with `place`."""

    def __init__(self, place: str, start: Callable[[], ChildProcess], avoided_seconds: float = AVOIDED_SECONDS) -> None:
        self._avoided_seconds = avoided_seconds
        self._place = place
        self._start = start
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        self._avoided = Recent[tuple[str, str], _Avoided](AVOIDED_SUBJECTS)
        self._endless: deque[Stopwatch] = deque(maxlen=HALVINGS)

    @property
    def child(self) -> ChildProcess | None:
        """The child that would be asked now, or None."""
        return self._child

    def ask(
        self,
        question: dict[str, Any],
        subject: str,
        limit: int,
        seconds: float,
        prepare: Callable[[ChildProcess], None] = lambda child: None,
        supply: Supply | None = None,
        part: str = "",
        attachments: Sequence[bytes | memoryview] = (),
    ) -> Answer:
        """Return the child's answer and its attachments. `attachments` go with the question.

        `subject` names the question in messages and in the list of avoided questions.

        `part`: the part of the subject that is asked about. If the question ends children, only this part is avoided. The
        whole subject is avoided if the child was too slow, or if several other parts of it are avoided already.

        A question with `computing` goes to children that end themselves after that many CPU seconds. The number is
        reduced if other questions have just computed without end, so that a walk of a damaged file comes to its end.
        `prepare` is called first, with the child that will be asked, by one thread at a time. `supply` answers a child that
        asks back. Raises what `ChildProcess.ask` does, and ChildDied at once for a subject that has just ended a child. If
        the child has gone for another reason than the question (another thread sees a newer file, or needs the room),
        another child is asked.
        """
        before_waiting()
        deadline = Deadline(seconds)
        died = 0
        while True:
            self._check(subject, "")
            self._check(subject, part)
            try:
                child = self._ready(prepare)
                return child.ask(self._shorten(question), limit, seconds, attachments, supply)
            except ChildGone:
                self._forget_dead()
                if deadline.passed:
                    raise
            except ChildDied as error:
                self._forget_dead()
                died += 1
                if isinstance(error, ChildEndless):
                    with self._lock:  # other threads count them
                        self._endless.append(Stopwatch())
                last = died == CALL_ATTEMPTS or isinstance(error, ChildTooSlow)
                message = f"{self._place}: {subject}{part}: {error}"
                log.log(logging.WARNING if last else logging.INFO, "%s", message)
                if last:
                    alone = part and not isinstance(error, ChildTooSlow) and self._avoided_parts(subject) < AVOIDED_PARTS
                    self._avoid(subject, part if alone else "", message)
                    raise type(error)(message) from None

    def forgive(self) -> None:
        """Forget which questions ended a child, so that they are asked again: the data that they are about has changed."""
        with self._lock:
            self._avoided.clear()
            self._endless.clear()

    def rest(self) -> bool:
        """End the child unless it is answering a question."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._child is not None and self._child.busy:
                return False
            self._end()
            return True
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the child, whatever it does. The next question starts another."""
        with self._lock:
            self._end()

    def _ready(self, prepare: Callable[[ChildProcess], None]) -> ChildProcess:
        with self._lock:
            if self._child is not None and not self._child.alive:
                self._end()
            if self._child is None:
                self._child = self._start()
            prepare(self._child)
            return self._child

    def _end(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def _forget_dead(self) -> None:
        with self._lock:
            if self._child is not None and not self._child.alive:
                self._end()

    def _shorten(self, question: dict[str, Any]) -> dict[str, Any]:
        if "computing" not in question or not self._endless:
            return question
        with self._lock:
            lately = sum(watch.seconds < self._avoided_seconds for watch in self._endless)
        return {**question, "computing": question["computing"] / 2**lately}

    def _check(self, subject: str, part: str) -> None:
        with self._lock:
            avoided = self._avoided.peek((subject, part))
        if avoided is not None and not avoided.until.passed:
            raise ChildDied(f"{avoided.message}; it is asked again after {avoided.seconds:g} s")

    def _avoided_parts(self, subject: str) -> int:
        with self._lock:
            return sum(of == subject for of, _ in self._avoided)

    def _avoid(self, subject: str, part: str, message: str) -> None:
        with self._lock:
            before = self._avoided.peek((subject, part))
            seconds = self._avoided_seconds if before is None else min(2 * before.seconds, AVOIDED_MOST_SECONDS)
            self._avoided.put((subject, part), _Avoided(Deadline(seconds), seconds, message))
