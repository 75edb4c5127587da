"""Stores that links of another one lead into: each opened once, none waiting for another."""

from __future__ import annotations

import threading
from typing import Any

from waiting import until

from fsbridge.formats.keyed.hierarchy import Externals


class Closing:
    closed = False

    def close(self) -> None:
        self.closed = True


def test_p8_a_store_that_hangs_while_it_is_opened_holds_up_no_other() -> None:
    externals, go_on, opened = Externals(), threading.Event(), list[str]()
    stores: dict[str, Any] = {path: Closing() for path in ("/hung", "/other")}

    def opener(path: str) -> Any:
        opened.append(path)
        if path == "/hung":
            go_on.wait(20)
        return stores[path]

    found: list[Any] = []
    waiting = [threading.Thread(target=lambda: found.append(externals.open("/hung", opener)), daemon=True) for _ in range(2)]
    for thread in waiting:
        thread.start()
    until(lambda: opened == ["/hung"])
    assert externals.open("/other", opener) is externals.open("/other", opener) is stores["/other"]
    assert not found
    go_on.set()
    for thread in waiting:
        thread.join(20)
    assert found == [stores["/hung"]] * 2
    assert sorted(opened) == ["/hung", "/other"]
    externals.close()
    assert all(store.closed for store in stores.values())
