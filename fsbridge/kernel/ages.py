"""How old the answers to each kind of request may be (P9): the one place that applies `--metadata-ttl`.

Not here: what remembers answers (`store/remote/answers.py`, `directories.py`), how a question carries its age to the code
that answers it (`asking.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from fsbridge.asking import as_of
from fsbridge.config import Config, listed_again, listed_lifetime
from fsbridge.errors import FsbridgeError

T = TypeVar("T")


class Ages:
    """How old answers may be. It makes contexts (`asking.as_of`), and each question of a mount is asked in one of them.

    Opening a file of a local store accepts no remembered answer, because it compares versions in an order that only fresh
    answers keep. With a remote store each question costs a request, so even an open accepts answers as old as attributes.
    """

    def __init__(self, config: Config) -> None:
        self._ttl = math.inf if config.immutable else config.metadata_ttl
        self._listed = max(self._ttl, config.remote.listing_ttl) if config.is_remote else None
        self._doubted = -math.inf

    def begin_open(self) -> as_of:
        """Return the context in which a file is opened; the text of the class says how old its answers may be."""
        if self._listed is not None or self._ttl == math.inf:
            return self._since(self._ttl)
        return as_of(math.inf, max(time.monotonic() - self._ttl, self._doubted))

    def begin_listing(self, extent: int) -> as_of:
        """Return the context in which a directory of about `extent` members is listed.

        In it the present state is asked for, but an older listing is accepted if a new one would take long.
        """
        if self._listed is not None or self._ttl == math.inf:
            return self._since(self._ttl)
        now = time.monotonic()
        return as_of(now, max(now - listed_again(self._ttl, extent), self._doubted))

    def ask(self, question: Callable[[], T]) -> T:
        """Return `question()`, which is about attributes or a look-up.

        If it fails after it used a remembered answer, it is asked again, and only new answers count. So a local store that
        may change gives no outdated errors.
        """
        begun, answers = time.monotonic(), self._since(self._ttl)
        try:
            with answers:
                return question()
        except FsbridgeError:
            if answers.oldest >= begun or self._listed is not None or self._ttl == math.inf:
                raise
        return question()

    @property
    def lifetime(self) -> float:
        """Seconds for which an answer of now is believed; infinite for a source that never changes."""
        return self._ttl

    @property
    def remembers(self) -> bool:
        """True if one answer may serve several requests, because the TTL is not 0."""
        return self._ttl > 0

    def left(self, asked: float) -> float:
        """Return for how many seconds attributes stay valid; `asked`: when the oldest answer behind them was requested."""
        return self._ttl - (time.monotonic() - asked)

    def left_of_entries(self, asked: float, extent: int) -> float:
        """Return for how many seconds entries of a directory of about `extent` members stay valid."""
        return max(0.0, listed_lifetime(self._ttl, extent) - (time.monotonic() - asked))

    def may_show_again(self, asked: float, extent: int, least: float = 0.0) -> bool:
        """True if a listing that was asked for at the time `asked` may be shown to another reader.

        In any case it may be shown for `least` seconds.
        """
        return time.monotonic() - asked < max(least, listed_again(self._ttl, extent))

    def doubt(self) -> None:
        """Accept only answers that are asked for from now on, because a remembered one has turned out to be outdated."""
        self._doubted = time.monotonic()

    def _since(self, ttl: float) -> as_of:
        now = time.monotonic()
        listed = ttl if self._listed is None else self._listed
        return as_of(max(now - ttl, self._doubted), max(now - listed, self._doubted))
