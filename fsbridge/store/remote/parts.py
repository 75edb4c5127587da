"""A long listing as several LISTs in parallel, each of the keys between two names.

Not here: requests (`client.py`), what becomes of the listings (`listings.py`).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import queue
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial

from fsbridge import confinement
from fsbridge.errors import TooLarge, Unreachable
from fsbridge.store.remote.client import PAGE_KEYS, Client, Object

PARTS = 8
"""LISTs at a time. Each may ask for up to a page more than it needs."""
WAITING_PAGES = 16
"""Pages that wait for a slow reader of the listing. Then the parts wait."""
LOOK_SECONDS = 0.1
"""Seconds between looks of a waiting part whether the listing is still read."""
PART_PAGES = 6
"""Least pages of a part: a listing of ten pages is asked for in one."""

Pages = Iterator[Sequence[Object]]


def beneath(client: Client, prefix: str, cuts: Sequence[str] = (), most: float = math.inf) -> Pages:
    """Yield all objects below `prefix`, page by page; those of one part are in order. Raises what `Client.beneath` does.

    `cuts`: names below `prefix`, evenly distributed among the possible ones. The place of the first page's end among them
    tells about how many objects there are. Raises TooLarge if these are more than `most`.
    """
    pages = client.beneath(prefix)
    first = next(pages, ())
    names = sorted(f"{prefix}/{cut}" if prefix else cut for cut in cuts)
    passed = bisect_right(names, first[-1].key) if len(first) >= PAGE_KEYS and _ascending(first) else len(names)
    expected = len(names) / max(1, passed)
    if expected * len(first) > most:
        raise TooLarge(f"{client.place(prefix)}: about {expected * len(first):.0f} keys")
    yield first
    count = int(min(PARTS, expected / PART_PAGES, len(names) - passed)) if client.ordered else 1
    if count > 1:
        starts = [names[passed + (len(names) - passed) * part // count] for part in range(1, count)]
        pages = _together(client, prefix, pages, starts)
    yield from pages


def _together(client: Client, prefix: str, pages: Pages, starts: Sequence[str]) -> Pages:
    """Yield the rest of a listing: `pages` up to the first of `starts`, and from each of them to the next one."""
    listed: list[Pages] = [pages, *(client.beneath(prefix, after) for after in starts)]
    found: queue.Queue[Sequence[Object] | BaseException | None] = queue.Queue(WAITING_PAGES)
    over = threading.Event()

    def give(page: Sequence[Object] | BaseException | None) -> None:
        while not over.is_set():
            with contextlib.suppress(queue.Full):
                found.put(page, timeout=LOOK_SECONDS)
                return

    def take(part: Pages, after: str, stop: str | None) -> None:
        while not over.is_set():
            page = next(part, None)
            if page is None:
                return
            if not _ascending(page) or (page and page[0].key <= after):
                client.ordered = False  # from now on one page follows the other
                raise Unreachable(f"{client.place(prefix)}: the server's listing is in no order")
            last = len(page) if stop is None else bisect_right(page, stop, key=lambda item: item.key)
            give(page[:last])
            if last < len(page):
                return

    def run(part: Pages, after: str, stop: str | None) -> None:
        try:
            take(part, after, stop)
        except BaseException as error:
            give(error)
        else:
            give(None)

    for span in zip(listed, ["", *starts], [*starts, None], strict=True):  # not waited for if a server hangs
        confinement.start(partial(run, *span), "fsbridge-part")
    try:
        going_on = len(listed)
        while going_on:
            page = found.get()
            if isinstance(page, BaseException):
                try:
                    raise page
                finally:
                    del page  # breaks the cycle traceback -> frame -> error
            if page is None:
                going_on -= 1
            else:
                yield page
    finally:
        over.set()


def _ascending(page: Sequence[Object]) -> bool:
    return all(left.key < right.key for left, right in itertools.pairwise(page))
