"""Requests to an object store or a web server: obstore's blocking calls, every answer checked, every error one of ours.

Only `get` and the two kinds of `list` are used, because only they tell the version of what they give. A server's text is
never passed on. A mount fails within seconds if the server never answers (`FirstAnswer`).

Not here: what its refusals mean (`faults.py`), what is remembered between requests (`objects.py`).
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fsbridge import asking
from fsbridge.config import REMOTE_LIMITS, Remote
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TimedOut, Unlistable, Unreachable
from fsbridge.store.remote.backends import backend, bucket_url
from fsbridge.store.remote.faults import Panic, Refused, TakenForAbsent, Withheld, broke_off, translate
from fsbridge.store.remote.odd_keys import OddKey, OddKeys
from fsbridge.store.remote.urls import Location, endpoint_of
from fsbridge.threads.deadlines import Deadline
from fsbridge.threads.parallel import Answer, apart

if TYPE_CHECKING:
    from obstore import GetResult

R = TypeVar("R")


class FirstAnswer:
    """Limits the time until the server of `place` has answered once to so many `seconds`. Thread-safe."""

    def __init__(self, place: str, seconds: float = REMOTE_LIMITS.first_seconds) -> None:
        self._place = place
        self._seconds = seconds
        self._lock = threading.Lock()
        self._deadline: Deadline | None = None
        self._heard = False

    def of(self, ask: Callable[[], R]) -> R:
        """Return or raise what `ask` does.

        Raises TimedOut if the time is over without an answer to any request so far. `ask` continues then, and what it
        returns is dropped.
        """
        return ask() if self._heard else self._within(ask)

    def _within(self, ask: Callable[[], R]) -> R:
        with self._lock:
            self._deadline = self._deadline or Deadline(self._seconds)
        answer = Answer(partial(self._hear, ask), "fsbridge-first")
        in_time = answer.wait(self._deadline.left)
        if not in_time and not self._heard:  # otherwise the server is slow, but present
            raise TimedOut(f"{self._place}: {self._silence()}")
        return answer.get()

    def _hear(self, ask: Callable[[], R]) -> R:
        try:
            return ask()
        finally:
            self._heard = True

    def _silence(self) -> str:
        what = "the URL, whether the server speaks https" if self._place.startswith("https:") else "the server's URL"
        return f"no answer from the server within {self._seconds:g} seconds; check {what}, and the network"


LIST_ATTEMPTS = 3
"""Most attempts at a LIST with a body that breaks off, because obstore does not repeat it."""

EMPTY_SECONDS = 5.0
"""Seconds for which empty listings are believed after the server has reported a made-up name as absent."""

REQUESTS_IN_FLIGHT = 64
"""Most requests at a time. At a latency of 30 ms they bring 2,000 small answers a second, such as an HDF5 file's headers."""

_COMPRESSIONS = frozenset(("gzip", "x-gzip", "deflate", "compress", "br", "zstd"))
"""What `Content-Encoding` says of compressed bytes (RFC 9110, 8.4.1)."""

WEAK = "W/"
"""How weak ETags begin (RFC 9110, 8.8.3)."""


class Object(NamedTuple):
    """An object as an answer describes it: `key` below the location, `etag` without quotes, mtime in whole seconds.

    A weak ETag keeps its mark `W/`: other bytes may have the same one.
    """

    key: str
    size: int
    mtime_ns: int
    etag: str | None


class Response:
    """An answer to a GET with only its headers read. `body` downloads the rest; without that it is given up.

    `asked`: when the request was sent (`time.monotonic`).
    """

    def __init__(self, meta: Object, result: GetResult, place: str, asked: float) -> None:
        self.object = meta
        self.asked = asked
        self.start, self.stop = result.range
        self._result = result
        self._place = place

    def body(self) -> memoryview:
        """Return all bytes of the range; Unreachable when the server sends fewer."""
        try:
            data = memoryview(_call(self._result.bytes))
        except Exception as error:
            raise translate(error, self._place) from None
        if len(data) != self.stop - self.start:
            raise Unreachable(f"{self._place}: the server sent {len(data)} of {self.stop - self.start} bytes")
        return data


class Client:
    """Sends requests to the store at `location`."""

    def __init__(self, location: Location, remote: Remote) -> None:
        self.location = location
        self.absent_403 = remote.absent_403
        self.limits = remote.limits
        self.endpoint = endpoint_of(location, remote.endpoint)
        remote = replace(remote, endpoint=self.endpoint)
        self.ordered = location.kind in ("s3", "gs")
        """True if a LIST gives keys in order, and can start after a given key without reading those before it."""
        self._metadata = backend(location, remote, remote.limits.metadata, REQUESTS_IN_FLIGHT)
        self._data = backend(location, remote, remote.limits.data, REQUESTS_IN_FLIGHT)
        self._odd = OddKeys(location, remote, lambda: bucket_url(location, remote, self._metadata))
        self._slots = threading.BoundedSemaphore(REQUESTS_IN_FLIGHT)
        self._first = FirstAnswer(location.text, remote.limits.first_seconds)
        self._goes_on = not self.ordered  # whether a listing was seen to have a second page
        self._lacks: Deadline | None = None  # until when empty listings are believed

    def place(self, key: str) -> str:
        """Return a key as a URL for messages."""
        return f"{self.location.text}/{key}" if key else self.location.text

    def get(
        self,
        key: str,
        start: int = 0,
        length: int | None = None,
        match: str | None = None,
        other_than: str | None = None,
        patient: bool = False,
    ) -> Response | None:
        """Begin to read an object: `length` bytes from `start` (None: all), the last `length` when `start` is negative.

        `match`: Stale unless the object has this ETag. `other_than`: None if it has this one.

        `patient`: allows 29 seconds instead of 9.
        """
        asking.before_waiting()
        options: dict[str, Any] = {}
        if length is not None:
            options["range"] = {"suffix": length} if start < 0 else (start, start + length)
        if match is not None and not is_weak(match):  # If-Match never matches a weak ETag
            options["if_match"] = f'"{match}"'
        if other_than is not None:
            options["if_none_match"] = f'"{bare(other_than)}"'
        place = self.place(key)
        if not _speakable(key):
            raise NotFound(f"{place}: the server can have no object of this name")
        if start < 0 and length is not None and self.location.kind == "az":  # Azure has no suffix ranges
            start = max(0, self._head(key).size - length)
            options["range"] = (start, start + length)
        with self._slots:
            chosen = self._data if patient else self._metadata
            asked = time.monotonic()
            try:
                result = self._first.of(lambda: _call(lambda: chosen.get(key, options=options)))  # type: ignore[arg-type]
            except Exception as error:
                if type(error).__name__ == "NotModifiedError":
                    return None
                raise self._judge(translate(error, place), place) from None
        meta = _object(key, result.meta)
        if match is not None and bare(meta.etag) != bare(match):
            raise Stale(f"{place}: replaced")
        if self.location.kind == "http" and (encoding := _compression(result)) is not None:
            raise Unreachable(
                f"{place}: the server sends it compressed (Content-Encoding: {encoding}) although nobody asked for that; "
                "it must send the file as it is"
            )
        return Response(meta, result, place, asked)

    def _head(self, key: str) -> Object:
        with self._slots:
            try:
                return _object(key, _call(lambda: self._metadata.head(key)))
            except FileNotFoundError:
                pass  # HEAD has no body; that of a GET tells if a store or a gateway has answered
            except Exception as error:
                raise self._judge(translate(error, self.place(key)), self.place(key)) from None
        response = self.get(key)
        assert response is not None  # None is only for `other_than`
        return response.object

    def level(self, prefix: str) -> tuple[list[str], list[Object]]:
        """Return the names of the prefixes, and the objects, directly below `prefix`; both are empty if nothing is there."""
        try:
            result = self._list(prefix, lambda: self._level(prefix))
        except OddKey:
            pages = list(self._odd.pages(prefix, None, True, self.limits.level_seconds))
            return [name for page, _ in pages for name in page], [
                _object(meta["path"], meta) for _, page in pages for meta in page
            ]
        prefixes = list(result["common_prefixes"])
        objects = [_object(str(meta["path"]), meta) for meta in result["objects"]]
        count = len(prefixes) + len(objects)
        if not count:
            self._believe_nothing(prefix)
        elif count == self.limits.page_keys and not self._goes_on:
            last = max([f"{name}/\U0010ffff" for name in prefixes] + [item.key for item in objects])
            if next(self.beneath(prefix, last), ()):
                raise Unreachable(f"{self.place(prefix)}: the server lists no more than {self.limits.page_keys} members")
        self._goes_on |= count > self.limits.page_keys
        return prefixes, objects

    def _level(self, prefix: str) -> Any:
        """List one level by obstore's coroutine: of its calls only that can be given up while the server still sends."""
        import asyncio  # 13 ms, which no other part takes

        async def list_level() -> Any:
            return await asyncio.wait_for(
                self._metadata.list_with_delimiter_async(prefix or None), self.limits.level_seconds
            )

        try:
            return apart(lambda: asyncio.run(list_level()))  # this thread may run a loop already: a notebook's does
        except TimeoutError:
            raise TimedOut(f"{self.place(prefix)}: the server's listing does not end") from None

    def beneath(self, prefix: str, after: str | None = None) -> Iterator[Sequence[Object]]:
        """Yield all objects beneath `prefix`, page by page, ordered by key. `after`: only keys greater than this one."""
        asking.before_waiting()
        failed, last = 0, after
        begun: set[str] = set()
        while True:
            count = 0
            try:
                pages = iter(self._metadata.list(prefix or None, offset=last, chunk_size=self.limits.page_keys))
                while (page := self._first.of(lambda pages=pages: _call(lambda: next(pages, None)))) is not None:  # type: ignore[misc]
                    items = [_object(str(meta["path"]), meta) for meta in page]
                    if items and items[0].key in begun:
                        raise Unreachable(f"{self.place(prefix)}: the server lists one page again and again")
                    begun.update(item.key for item in items[:1])
                    yield items
                    self._goes_on |= count > 0
                    count += len(items)
                    last = items[-1].key if items else last
            except Exception as error:
                failed += 1
                if failed == LIST_ATTEMPTS or not broke_off(error):
                    shown = self._list_error(error, prefix)
                    if not isinstance(shown, OddKey):
                        raise shown from None
                    for _, objects in self._odd.pages(prefix, last, False, math.inf):
                        yield [_object(meta["path"], meta) for meta in objects]
                    return
            else:
                # A full first page and none after it: the server may lack paging.
                if count != self.limits.page_keys or self._goes_on:
                    break
        if last is None:
            self._believe_nothing(prefix)

    def left_out(self, prefix: str) -> list[str]:
        """Describe the keys directly below `prefix` that listings so far have left out."""
        return self._odd.left_out(prefix)

    def _believe_nothing(self, prefix: str) -> None:
        """Raise Unreachable if the server gives an object even for a made-up name.

        obstore believes that a web page with status 200, sent in place of a listing, is an empty listing.
        """
        if self._lacks is not None and not self._lacks.passed:
            return
        try:
            self.get(f"fsbridge-{secrets.token_hex(8)}")
        except (NotFound, Refused):
            self._lacks = Deadline(EMPTY_SECONDS)
            return
        raise Unreachable(f"{self.place(prefix)}: the server lists nothing, but answers as if every name existed")

    def _list(self, prefix: str, call: Any) -> Any:
        asking.before_waiting()
        for attempt in range(LIST_ATTEMPTS):
            with self._slots:
                try:
                    return self._first.of(lambda: _call(call))
                except Exception as error:
                    if attempt == LIST_ATTEMPTS - 1 or not broke_off(error):
                        raise self._list_error(error, prefix) from None
        raise AssertionError("unreachable")

    def _list_error(self, error: Exception, prefix: str) -> FsbridgeError:
        place = self.place(prefix)
        if type(error).__name__ == "InvalidPathError":
            return (OddKey if self._odd.possible else CorruptData)(
                f"{place}: cannot be listed: a key in it has an empty part, '.', '..' or a control character"
            )
        if self.location.kind == "http":
            return Unlistable(f"{place}: a web server lists nothing")
        fault = translate(error, place)
        if isinstance(fault, NotFound):
            return Unreachable(f"{place}: the bucket does not exist (any more)")
        return fault

    def _judge(self, error: FsbridgeError, place: str) -> FsbridgeError:
        if isinstance(error, Withheld) and self.absent_403:
            return TakenForAbsent(f"{place}: not there, or refused")
        return error


def _call(call: Callable[[], R]) -> R:
    """Return or raise what a call of obstore does, but raise Panic if obstore panics because it can make no request.

    The PanicException that obstore raises is no subclass of Exception, so handlers of errors would miss it.
    """
    try:
        return call()
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise Panic from None


def _compression(result: GetResult) -> str | None:
    """Return how a web server has compressed an answer, or None. Some send `aws-chunked` or `utf-8`: no compression."""
    named = str(result.attributes.get("Content-Encoding") or "").lower().replace(" ", "").split(",")
    return next((encoding for encoding in named if encoding in _COMPRESSIONS), None)


def _speakable(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return all(character >= " " and character != "\x7f" for character in key)


def _object(key: str, meta: Any) -> Object:
    when = meta["last_modified"]
    return Object(key, int(meta["size"]), int(when.timestamp()) * 1_000_000_000, unquoted(meta["e_tag"]))


def unquoted(etag: str | None) -> str | None:
    """Return an ETag without quotes; None for an empty one."""
    if not etag:
        return None
    opaque = etag.removeprefix(WEAK).strip('"')
    return (WEAK + opaque if etag.startswith(WEAK) else opaque) if opaque else None


def is_weak(etag: str) -> bool:
    """True if other bytes may have the same ETag."""
    return etag.startswith(WEAK)


def bare(etag: str | None) -> str | None:
    """Return an ETag without the mark of a weak one, which some servers leave out a second later."""
    return None if etag is None else etag.removeprefix(WEAK)
