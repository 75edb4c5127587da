"""A store that fails by a seeded plan: it fails, is slow, hangs, cuts short, flips bits and changes under its reader.

For tests of whatever reads stores. The plan depends on the seed and on the order of calls alone. Not here: damaged files.
"""

from __future__ import annotations

import errno
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from fsbridge.store import Key, Member, Range, Stat, Store

FAULTS = ("fail", "delay", "hang", "truncate", "flip", "change")


@dataclass
class Plan:
    """How often, of all calls, each fault happens; `only`: the operations that are hit."""

    seed: int = 0
    share: dict[str, float] = field(default_factory=dict)
    only: frozenset[str] = frozenset(("stat", "read", "read_range", "list", "names", "mtimes"))
    on: bool = True
    told: Counter[str] = field(default_factory=Counter)
    """Faults that have happened."""

    def __post_init__(self) -> None:
        assert set(self.share) <= set(FAULTS)
        self.random = random.Random(self.seed)
        self.released = threading.Event()
        self._lock = threading.Lock()

    def next(self, operation: str) -> str | None:
        """The fault of this call."""
        with self._lock:
            if not self.on or operation not in self.only:
                return None
            dice = self.random.random()
            for fault, share in self.share.items():
                if dice < share:
                    self.told[fault] += 1
                    return fault
                dice -= share
            return None

    def release(self) -> None:
        """Let nothing go wrong from now on, and let go on what hangs."""
        self.on = False
        self.released.set()


class FaultyStore(Store):
    """`store.Store` over a good one, by a plan."""

    def __init__(self, store: Store, plan: Plan) -> None:
        self.store = store
        self.plan = plan

    def open_object(self, key: Key) -> None:
        """Behave like a store that does not hold objects open, so that every call goes by the plan."""

    def stat(self, key: Key, read: Range | None = None) -> Stat:
        return self._changed(self._begin("stat"), self.store.stat(key, read))

    def read(self, key: Key, limit: int) -> tuple[bytes, Stat]:
        fault = self._begin("read")
        data, stat = self.store.read(key, limit)
        return self._damaged(fault, bytes(data)), self._changed(fault, stat)

    def read_range(self, key: Key, start: int, length: int) -> tuple[bytes, Stat]:
        fault = self._begin("read_range")
        data, stat = self.store.read_range(key, start, length)
        return self._damaged(fault, bytes(data)), self._changed(fault, stat)

    def list(self, key: Key, stats: bool = False) -> Iterator[Member]:
        fault = self._begin("list")
        for number, member in enumerate(self.store.list(key, stats)):
            if fault == "truncate" and number == 1:
                raise OSError(errno.EIO, "the listing broke off")
            yield member

    def names(self, key: Key, cuts: Sequence[str] = ()) -> Iterator[Sequence[str]]:
        fault = self._begin("names")
        for names in self.store.names(key):
            if fault == "truncate":
                yield names[: len(names) // 2]
                raise OSError(errno.EIO, "the listing broke off")
            yield names

    def mtimes(self, key: Key, names: Sequence[str]) -> Sequence[int | None]:
        self._begin("mtimes")
        return self.store.mtimes(key, names)

    def describe(self, key: Key) -> str:
        return self.store.describe(key)

    def _begin(self, operation: str) -> str | None:
        fault = self.plan.next(operation)
        if fault == "fail":
            raise OSError(errno.EIO, "Input/output error")
        if fault == "delay":
            time.sleep(0.001)
        if fault == "hang":
            self.plan.released.wait()
        return fault

    def _damaged(self, fault: str | None, data: bytes) -> bytes:
        if fault == "truncate" and data:
            return data[: self.plan.random.randrange(len(data))]
        if fault == "flip" and data:
            position = self.plan.random.randrange(len(data))
            return data[:position] + bytes((data[position] ^ 1 << self.plan.random.randrange(8),)) + data[position + 1 :]
        return data

    def _changed(self, fault: str | None, stat: Stat) -> Stat:
        changed: Any = ("changed", self.plan.told["change"])
        return stat._replace(version=changed) if fault == "change" else stat


for name in {name for name in vars(Store) if not name.startswith("_")} - vars(FaultyStore).keys():
    setattr(FaultyStore, name, property(attrgetter(f"store.{name}")))  # the plan does not concern it
