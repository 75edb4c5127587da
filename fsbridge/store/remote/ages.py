"""How old a remote store's answers may be: as the question says (`asking`), else as two settings say.

Not here: how the kernel's requests say it (`kernel/ages.py`), what remembers answers (`answers.py`, `listing_cache.py`).
"""

from __future__ import annotations

import math
import time

from fsbridge.asking import context
from fsbridge.config import Config

DOUBTED_SECONDS = 0.2
"""Seconds for which an answer is believed if its version is unsettled: a reader may wait for a settled one."""


class Ages:
    """The earliest time (`time.monotonic`) at which answers, and listings, must have been requested to be believed.

    Reads of open files, and reads without a mount, do not say how old answers may be. Each question is a request to the
    server, so their answers may be as old as attributes.
    """

    def __init__(self, ttl: float, listing_ttl: float) -> None:
        self._ttl = ttl
        self._listing_ttl = max(ttl, listing_ttl)

    @classmethod
    def of(cls, config: Config) -> Ages:
        """Return the ages of one mount."""
        return cls(math.inf if config.immutable else config.metadata_ttl, config.remote.listing_ttl)

    def since(self, settled: bool = True) -> float:
        """Return that time for answers about an object. `settled`: any change shows in its version."""
        moment = context.as_of if context.as_of < math.inf else time.monotonic() - self._ttl
        return moment if settled or moment == -math.inf else max(moment, time.monotonic() - DOUBTED_SECONDS)

    def listed(self) -> float:
        """Return that time for listings that serve as evidence of what exists."""
        if context.as_of < math.inf:
            return min(context.as_of, context.listed)
        return time.monotonic() - self._listing_ttl
