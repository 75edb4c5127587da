"""How old the answers to each kind of request may be (P9): the one place that applies `--metadata-ttl`.

Not here: what remembers answers (`store/remembered.py`), how a question carries its age to the code that answers it
(`asking.py`).
"""

from __future__ import annotations

import math
import time

from fsbridge.asking import as_of
from fsbridge.config import Config, listed_again


class Ages:
    """Contexts that say how old answers may be. Each question of a mount is asked in one of them.

    Opening a file of a local store accepts no remembered answer, because it compares versions in an order that only fresh
    answers keep. With a remote store each question costs a request, so even an open accepts answers as old as attributes.
    """

    def __init__(self, config: Config) -> None:
        self.ttl = math.inf if config.immutable else config.metadata_ttl
        self._listed = max(self.ttl, config.remote.listing_ttl) if config.is_remote else None
        self._doubted = -math.inf

    def told(self) -> as_of:
        """Return the context for attributes and look-ups."""
        return self._since(self.ttl)

    def opened(self) -> as_of:
        """Return the context for opening a file."""
        if self._listed is not None or self.ttl == math.inf:
            return self._since(self.ttl)
        return as_of(math.inf, max(time.monotonic() - self.ttl, self._doubted))

    def listed(self, extent: int) -> as_of:
        """Return the context for listing a directory of about `extent` members.

        It asks for the present state, but accepts an older listing if a new one would take long.
        """
        if self._listed is not None or self.ttl == math.inf:
            return self._since(self.ttl)
        now = time.monotonic()
        return as_of(now, max(now - listed_again(self.ttl, extent), self._doubted))

    def left(self, asked: float) -> float:
        """Return for how many seconds attributes stay valid; `asked`: when the oldest answer behind them was requested."""
        return self.ttl - (time.monotonic() - asked)

    def is_outdated(self, asked: float, begun: float) -> bool:
        """True if a failed question must be asked again, because it used an answer older than the question itself.

        `asked`: the time of its oldest answer; `begun`: when the question began.

        So a local store that may change gives no outdated errors.
        """
        return asked < begun and self._listed is None and self.ttl < math.inf

    def doubt(self) -> None:
        """Accept only answers that are asked for from now on, because a remembered one has turned out to be outdated."""
        self._doubted = time.monotonic()

    def _since(self, ttl: float) -> as_of:
        now = time.monotonic()
        listed = ttl if self._listed is None else self._listed
        return as_of(max(now - ttl, self._doubted), max(now - listed, self._doubted))
