"""How old a remote store's answers may be: as the question says (`asking`), and by two settings where nobody says.

Not here: how the kernel's requests say it (`kernel/ages.py`), what remembers answers (`answers.py`, `listing_cache.py`).
"""

from __future__ import annotations

import math
import time

from fsbridge.asking import context
from fsbridge.config import Config

DOUBTED_SECONDS = 0.2
"""Seconds for which an answer is believed whose version may stand for two contents: a reader may wait for a settled one."""


class Ages:
    """Since when answers (and `listed`: listings) must have been asked for to be believed (`time.monotonic`).

    Who reads an open file, or without a mount, asks outside of a kernel's request. Each question is a request to the server,
    so answers may be as old as attributes there, too.
    """

    def __init__(self, ttl: float, listing_ttl: float) -> None:
        self._ttl = ttl
        self._listing_ttl = max(ttl, listing_ttl)

    @classmethod
    def of(cls, config: Config) -> Ages:
        """Return those of one mount."""
        return cls(math.inf if config.immutable else config.metadata_ttl, config.remote.listing_ttl)

    def since(self, settled: bool = True) -> float:
        """For an object; `settled`: a change would show in its version."""
        moment = context.as_of if context.as_of < math.inf else time.monotonic() - self._ttl
        return moment if settled or moment == -math.inf else max(moment, time.monotonic() - DOUBTED_SECONDS)

    def listed(self) -> float:
        """For a listing, as evidence of what there is."""
        if context.as_of < math.inf:
            return min(context.as_of, context.listed)
        return time.monotonic() - self._listing_ttl
