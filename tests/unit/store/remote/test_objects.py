"""One request tells many callers if a web server still has its store (P3). With real requests: `test_faults.py`."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest
from waiting import until

from fsbridge.errors import FsbridgeError, NotFound, Unreachable
from fsbridge.store import Key
from fsbridge.store.remote.client import Client
from fsbridge.store.remote.objects import Witness

READERS = 9


class Counted:
    """A lock that counts the threads that have come for it."""

    def __init__(self) -> None:
        self.lock, self.came = threading.Lock(), 0

    def __enter__(self) -> None:
        self.came += 1
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


class Server:
    """It answers when all readers have come."""

    def __init__(self, lock: Counted, error: FsbridgeError | None) -> None:
        self.lock, self.error = lock, error
        self.asked: list[str] = []

    def get(self, key: str, *, other_than: str | None) -> None:
        self.asked.append(key)
        until(lambda: self.lock.came >= READERS)
        if self.error is not None:
            raise self.error

    def place(self, key: Key) -> str:
        return "http://example"


@pytest.mark.parametrize("error", [None, NotFound("gone"), Unreachable("no server")], ids=lambda error: type(error).__name__)
def test_p3_answers_of_absence_before_the_store_was_asked_for_share_its_answer(error: FsbridgeError | None) -> None:
    lock = Counted()
    server = Server(lock, error)
    witness = Witness(cast(Client, server))
    witness.saw(Key("zarr.json"), "1")
    witness._asking = lock

    def confirm(number: int) -> type:
        try:
            witness.confirm(Key(f"c/{number}"))
        except FsbridgeError as error:
            return type(error)
        return type(None)

    with ThreadPoolExecutor(READERS) as pool:
        assert set(pool.map(confirm, range(READERS))) == {type(None) if error is None else Unreachable}
    assert server.asked == ["zarr.json"] * 2  # the second one is asked after all have been told, the first one is not
    assert confirm(READERS) == (type(None) if error is None else Unreachable)
    assert len(server.asked) == 3, "what was said before proves nothing"
