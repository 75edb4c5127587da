"""Requests to an object store or a web server: obstore's blocking calls, every answer checked, every error one of ours.

Only `get` and the two kinds of `list` are used, because only they tell which version the bytes are of. What a server says is
never passed on: servers repeat tokens in their error texts. Not here: what is remembered between requests
(`objects.py`).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fsbridge.config import Remote
from fsbridge.errors import (
    AccessDenied,
    CorruptData,
    FsbridgeError,
    NotFound,
    Stale,
    TimedOut,
    Unreachable,
    Unsupported,
)
from fsbridge.store import nowait
from fsbridge.store.remote.backends import backend
from fsbridge.store.remote.firsts import FirstAnswer
from fsbridge.store.remote.urls import Location, endpoint_of

if TYPE_CHECKING:
    from obstore import GetResult

R = TypeVar("R")

LIST_ATTEMPTS = 3
"""obstore does not repeat a LIST whose body breaks off."""

PAGE_KEYS = 1000
"""Keys of a page of a LIST."""

REQUESTS_IN_FLIGHT = 64
"""Requests at a time: at 30 ms as many small ones, headers all over an HDF5 file, carry 2,000 a second."""

_METADATA = {"timeout": 3.5, "retry_timeout": 5.0, "max_retries": 3, "max_backoff": 1.0}
"""For look-ups and listings: nine and a half seconds at most, within P7's ten. Seconds."""
_DATA = {"timeout": 10.0, "retry_timeout": 18.0, "max_retries": 8, "max_backoff": 1.0}
"""For chunks: 29 seconds at most, within P7's thirty."""

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z]{3,60})</Code>")
_REGION = re.compile(r"<Region>([a-z]{2}(?:-[a-z]+)+-\d)</Region>")
WEAK = "W/"
"""How weak ETags begin (RFC 9110, 8.8.3)."""
REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d")


class Object(NamedTuple):
    """What an answer says of an object; `key` below the location, `etag` without quotes, mtime in whole seconds.

    A weak ETag keeps its mark `W/`: other bytes may have the same one.
    """

    key: str
    size: int
    mtime_ns: int
    etag: str | None


class Refused(AccessDenied):
    """The server refuses: wrong or no credentials, or no permission."""


class Withheld(Refused):
    """This object is refused for no reason that is told, as S3 refuses what is absent to who may not list."""


class Unusable(Refused):
    """So it refuses everything: no or wrong credentials, another region, a wrong clock."""


class WrongRegion(Unusable):
    """The bucket is in another region, which the answer does not name."""


class TakenForAbsent(NotFound):
    """The object is withheld, which the user says means that it is not there."""


class NoRanges(Unsupported):
    """The server gives whole objects only."""


class Unlistable(Unsupported):
    """The server does not list."""


class Panic(Exception):
    """obstore's, of which nothing is told: its text may quote what it was given."""


class Answer:
    """A GET whose headers have arrived. The body is downloaded when it is asked for; one that is not is given up.

    `asked`: when the request was sent (`time.monotonic`).
    """

    def __init__(self, found: Object, result: GetResult, place: str, asked: float) -> None:
        self.object = found
        self.asked = asked
        self.start, self.stop = result.range
        self._result = result
        self._place = place

    def body(self) -> memoryview:
        """All bytes of the range; Unreachable when the server sends fewer."""
        try:
            data = memoryview(_called(self._result.bytes))
        except Exception as error:
            raise translate(error, self._place) from None
        if len(data) != self.stop - self.start:
            raise Unreachable(f"{self._place}: the server sent {len(data)} of {self.stop - self.start} bytes")
        return data


class Client:
    """The store at `location`. Made after the fork: a child of a process that has made a request would hang for ever."""

    def __init__(self, location: Location, remote: Remote) -> None:
        self.location = location
        self.absent_403 = remote.absent_403
        self.endpoint = endpoint_of(location, remote.endpoint)
        remote = replace(remote, endpoint=self.endpoint)
        self.ordered = location.kind in ("s3", "gs")
        """Whether a LIST gives keys in order, and can begin behind one without going through all that come before it."""
        self._metadata = backend(location, remote, _METADATA, REQUESTS_IN_FLIGHT)
        self._data = backend(location, remote, _DATA, REQUESTS_IN_FLIGHT)
        self._slots = threading.BoundedSemaphore(REQUESTS_IN_FLIGHT)
        self._first = FirstAnswer(location.text)

    def place(self, key: str) -> str:
        """A key for messages."""
        return f"{self.location.text}/{key}" if key else self.location.text

    def get(
        self,
        key: str,
        start: int = 0,
        length: int | None = None,
        match: str | None = None,
        other_than: str | None = None,
        patient: bool = False,
    ) -> Answer | None:
        """Begin to read an object: `length` bytes from `start` (None: all), the last `length` when `start` is negative.

        `match`: Stale unless the object has this ETag. `other_than`: None when it has. `patient`: 29 seconds, not 9.
        """
        nowait.must_wait()
        options: dict[str, Any] = {}
        if length is not None:
            options["range"] = {"suffix": length} if start < 0 else (start, start + length)
        if match is not None and not is_weak(match):  # which no object has, as If-Match compares
            options["if_match"] = f'"{match}"'
        if other_than is not None:
            options["if_none_match"] = f'"{bare(other_than)}"'
        place = self.place(key)
        if not _speakable(key):
            raise NotFound(f"{place}: no name that the server could hold")
        if start < 0 and length is not None and self.location.kind == "az":  # which has no suffix ranges
            start = max(0, self._head(key).size - length)
            options["range"] = (start, start + length)
        with self._slots:
            chosen = self._data if patient else self._metadata
            asked = time.monotonic()
            try:
                result = self._first.of(lambda: _called(lambda: chosen.get(key, options=options)))  # type: ignore[arg-type]
            except Exception as error:
                if type(error).__name__ == "NotModifiedError":
                    return None
                raise self._judged(translate(error, place), place) from None
        found = _object(key, result.meta)
        if match is not None and bare(found.etag) != bare(match):
            raise Stale(f"{place}: replaced")
        return Answer(found, result, place, asked)

    def _head(self, key: str) -> Object:
        with self._slots:
            try:
                return _object(key, _called(lambda: self._metadata.head(key)))
            except Exception as error:
                raise self._judged(translate(error, self.place(key)), self.place(key)) from None

    def level(self, prefix: str) -> tuple[list[str], list[Object]]:
        """Names of the prefixes, and the objects, directly below `prefix`; both empty when there is nothing."""
        result = self._listed(prefix, lambda: self._metadata.list_with_delimiter(prefix or None))
        return list(result["common_prefixes"]), [_object(str(meta["path"]), meta) for meta in result["objects"]]

    def beneath(self, prefix: str, after: str | None = None) -> Iterator[Sequence[Object]]:
        """All objects beneath `prefix`, page by page in the order of their keys; those behind the key `after` only."""
        nowait.must_wait()
        done = 0
        last = after
        for attempt in range(LIST_ATTEMPTS):
            try:
                pages = iter(self._metadata.list(prefix or None, offset=last, chunk_size=PAGE_KEYS))
                while (page := self._first.of(lambda pages=pages: _called(lambda: next(pages, None)))) is not None:  # type: ignore[misc]
                    found = [_object(str(meta["path"]), meta) for meta in page]
                    yield found
                    done += len(found)
                    last = found[-1].key if found else last
                return
            except Exception as error:
                if attempt == LIST_ATTEMPTS - 1 or not _repeat(error):
                    raise self._list_error(error, prefix) from None

    def _listed(self, prefix: str, call: Any) -> Any:
        nowait.must_wait()
        for attempt in range(LIST_ATTEMPTS):
            with self._slots:
                try:
                    return self._first.of(lambda: _called(call))
                except Exception as error:
                    if attempt == LIST_ATTEMPTS - 1 or not _repeat(error):
                        raise self._list_error(error, prefix) from None
        raise AssertionError("unreachable")

    def _list_error(self, error: Exception, prefix: str) -> FsbridgeError:
        place = self.place(prefix)
        if type(error).__name__ == "InvalidPathError":
            return CorruptData(f"{place}: cannot be listed: a key in it has an empty part, '.', '..' or a control character")
        if self.location.kind == "http":
            return Unlistable(f"{place}: a web server lists nothing")
        found = translate(error, place)
        if isinstance(found, NotFound):
            return Unreachable(f"{place}: the bucket does not exist (any more)")
        return found

    def _judged(self, error: FsbridgeError, place: str) -> FsbridgeError:
        if isinstance(error, Withheld) and self.absent_403:
            return TakenForAbsent(f"{place}: not there, or refused")
        return error


def _called(call: Callable[[], R]) -> R:
    """What a call of obstore gives or raises. It panics where no request can be made, which is no Exception to Python."""
    try:
        return call()
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise Panic from None


def _speakable(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return all(character >= " " and character != "\x7f" for character in key)


def translate(error: Exception, place: str) -> FsbridgeError:
    """One of our errors for one of obstore's, without a word of the server's but the codes that are known here."""
    if isinstance(error, FsbridgeError):
        return error
    if isinstance(error, Panic):
        return Unreachable(
            f"{place}: no request can be made; check URL, endpoint, region and credentials for odd characters"
        )
    kind, text = type(error).__name__, str(error).partition("\n\nDebug source")[0]
    found = _STATUS.search(text)
    status = int(found[1]) if found is not None else 0
    code_found = _CODE.search(text)
    code = code_found[1] if code_found is not None else ""
    if code == "NoSuchBucket" or "ContainerNotFound" in text:
        return Unreachable(f"{place}: the bucket does not exist")
    if "169.254.169.254" in text or "metadata.google.internal" in text:
        return Unusable(f"{place}: no credentials; set {_VARIABLES.get(place[:2], _VARIABLES['s3'])}, or say --anonymous")
    region = _REGION.search(text)
    if "redirect without LOCATION" in text or code in ("PermanentRedirect", "AuthorizationHeaderMalformed"):
        return WrongRegion(f"{place}: wrong region; say --region NAME") if region is None else in_region(place, region[1])
    if code == "RequestTimeTooSkewed":
        return Unusable(f"{place}: refused because this machine's clock is wrong; set it, by NTP for example")
    if code in ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"):
        return Unusable(f"{place}: refused because the credentials have expired")
    if code == "InvalidObjectState":
        return Refused(f"{place}: archived, and cannot be read before it is restored")
    if code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"):
        return Unusable(f"{place}: refused because the credentials are wrong ({code})")
    if kind == "FileNotFoundError" or isinstance(error, FileNotFoundError) or status == 404:
        return NotFound(f"{place}: not there")
    if kind == "PreconditionError" or status == 412:
        return Stale(f"{place}: replaced")
    if status in (401, 403) or kind in ("PermissionDeniedError", "UnauthenticatedError"):
        known = f", {code}" if code in _REFUSALS else ""
        advice = "" if place.startswith("http") else "; check the credentials, and what they permit"
        told = code not in ("", "AccessDenied") or status == 401 or "kms:" in text  # of a key that may not be used
        return (Refused if told else Withheld)(f"{place}: refused (status {status or 403}){known}{advice}")
    if kind == "NotSupportedError" or "non-partial response" in text or "NotPartial" in text:
        return NoRanges(f"{place}: the server ignores ranges and gives whole objects only; copy the store to another server")
    if status == 416:
        return CorruptData(f"{place}: shorter than the bytes that are wanted of it")
    if kind == "InvalidPathError":
        return NotFound(f"{place}: no name that the server could hold")
    if "timed out" in text or "kind: Timeout" in str(error):
        return TimedOut(f"{place}: no answer from the server in time")
    return Unreachable(f"{place}: {_reason(status, text)}")


_VARIABLES = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_KEY",
    "ab": "AZURE_STORAGE_ACCOUNT_KEY",
}
"""Where credentials are looked for, by the beginning of the URL."""


def in_region(place: str, region: str) -> Unusable:
    """The region that was asked is not the bucket's."""
    return Unusable(f"{place}: wrong region: it is {region}; say --region {region}")


_REFUSALS = frozenset({"AccessDenied", "AllAccessDisabled", "AccountProblem", "Forbidden", "RequestExpired"})


def _reason(status: int, text: str) -> str:
    if status in (429, 503):
        return f"the server is too busy (status {status})"
    if status:
        return f"the server answers with status {status}"
    if "error sending request" in text:
        return "no connection to the server, or none that lasts"
    return "the server's answer makes no sense"


def _repeat(error: Exception) -> bool:
    """Whether a LIST may succeed when it is asked again: its body broke off."""
    text = str(error)
    return type(error).__name__ == "GenericError" and _STATUS.search(text) is None and "error sending request" not in text


def _object(key: str, meta: Any) -> Object:
    when = meta["last_modified"]
    return Object(key, int(meta["size"]), int(when.timestamp()) * 1_000_000_000, unquoted(meta["e_tag"]))


def unquoted(etag: str | None) -> str | None:
    """An ETag without quotes; None for an empty one."""
    if not etag:
        return None
    opaque = etag.removeprefix(WEAK).strip('"')
    return (WEAK + opaque if etag.startswith(WEAK) else opaque) if opaque else None


def is_weak(etag: str) -> bool:
    """Whether other bytes may have the same ETag."""
    return etag.startswith(WEAK)


def bare(etag: str | None) -> str | None:
    """An ETag without the mark of a weak one, which some servers leave out a second later."""
    return None if etag is None else etag.removeprefix(WEAK)
