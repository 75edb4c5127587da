"""Listings of buckets with keys that no path can be: `a//b`, `a/./b`, or a control character. Only those are left out.

obstore refuses a whole page of a LIST with such a key. So this module sends these LISTs by itself, with URLs that obstore
signs by whatever credentials it has. Google's servers understand the same LIST, but only an anonymous one. Not here: any
other request (`client.py`), how obstore is set up (`backends.py`).
"""

from __future__ import annotations

import http.client
import logging
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_plus, urlencode
from xml.etree.ElementTree import Element, ParseError, fromstring

from fsbridge.config import Remote
from fsbridge.errors import CorruptData, FsbridgeError, TimedOut, Unreachable
from fsbridge.store.remote.backends import certificates, signed
from fsbridge.store.remote.faults import Refused
from fsbridge.store.remote.urls import Location
from fsbridge.threads.deadlines import Deadline

log = logging.getLogger(__name__)

SILENT_SECONDS = 3.5
"""Most seconds for silence of the server in the middle of a page."""

ATTEMPTS = 2
"""Most attempts at a page if the connection breaks off or the server fails."""

SAID_KEYS = 100
"""Most keys that are logged as left out."""

_IGNORED = "x-fsbridge"
"""Parameter of a URL that no server heeds. obstore appends a path to the URL that it signs: it becomes its value."""


class OddKey(CorruptData):
    """A listing has a key that cannot be a path."""


class OddPage(NamedTuple):
    """A page of a LIST, with keys below the location. `objects`: what obstore says of each. `token`: of the next page."""

    prefixes: list[str]
    objects: list[dict[str, Any]]
    token: str


class OddKeys:
    """Listings of the bucket at `location`, however its keys are spelled. Thread-safe."""

    def __init__(self, location: Location, remote: Remote, url: Callable[[], str]) -> None:
        """`url` returns the bucket's URL."""
        self._location = location
        self._remote = remote
        self._bucket = url
        self._root = f"{location.path}/" if location.path else ""
        self._opener: urllib.request.OpenerDirector | None = None
        self._said: set[str] = set()
        self.possible = location.kind == "s3" or (location.kind == "gs" and remote.anonymous)
        """True if such listings can be made of this store."""

    def pages(
        self, prefix: str, after: str | None, one_level: bool, seconds: float
    ) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
        """Yield the prefixes and the objects of each page, as obstore gives them: with keys below the location.

        `after`: only keys greater than this one. `one_level`: deeper keys are given as prefixes. Raises TimedOut if the
        listing does not end within `seconds`, Refused, and Unreachable.
        """
        asked = {"list-type": "2", "encoding-type": "url", "prefix": self._root + (f"{prefix}/" if prefix else "")}
        if after is not None:
            asked["start-after"] = self._root + after
        if one_level:
            asked["delimiter"] = "/"
        deadline, token = Deadline(seconds), ""
        while True:
            page = self._page({**asked, "continuation-token": token} if token else asked)
            yield (
                [name for name in page.prefixes if self._fits(name)],
                [item for item in page.objects if self._fits(item["path"])],
            )
            if not page.token:
                return
            if page.token == token:
                raise Unreachable(f"{self._location.text}: the server lists one page again and again")
            if deadline.passed:
                raise TimedOut(f"{self._location.text}: the server's listing does not end")
            token = page.token

    def _page(self, asked: Mapping[str, str]) -> OddPage:
        place = self._location.text
        for left in reversed(range(ATTEMPTS)):
            try:
                text = self._answer(self._url(asked))
                return _parse_page(text, self._root, asked["prefix"])
            except FsbridgeError:
                raise
            except urllib.error.HTTPError as error:
                error.close()
                if error.code in (401, 403):
                    raise Refused(f"{place}: refused (status {error.code})") from None
                if not left or error.code < 500:
                    raise Unreachable(f"{place}: the server answers with status {error.code}") from None
            except (ParseError, ValueError, TypeError, LookupError):  # of the text
                raise Unreachable(f"{place}: the server's answer makes no sense") from None
            except TimeoutError:
                raise TimedOut(f"{place}: no answer from the server in time") from None
            except (OSError, http.client.HTTPException):
                if not left:
                    raise Unreachable(f"{place}: the connection to the server failed or broke off") from None
        raise AssertionError("not reached")

    def _url(self, asked: Mapping[str, str]) -> str:
        """Return the URL of a LIST, signed unless the user has no credentials."""
        query = urlencode(sorted(asked.items()), quote_via=quote, safe="")
        url = f"{self._bucket()}?{query}"
        return url if self._remote.anonymous else signed(self._location, self._remote, f"{url}&{_IGNORED}=")

    def _answer(self, url: str) -> bytes:
        if self._opener is None:
            self._opener = _opener(certificates(self._location))
        deadline, text = Deadline(self._remote.limits.odd_page_seconds), bytearray()
        with self._opener.open(url, timeout=SILENT_SECONDS) as answer:
            while piece := answer.read1(65536):
                text += piece
                if len(text) > self._remote.limits.odd_page_bytes:
                    raise Unreachable(f"{self._location.text}: a page of the server's listing has no end")
                if deadline.passed:
                    raise TimeoutError
            if answer.length:
                raise http.client.IncompleteRead(b"", answer.length)
        return bytes(text)

    def _fits(self, key: str) -> bool:
        """Return whether a path can have this name; the first hundred that cannot are logged."""
        if _is_path(key):
            return True
        if key not in self._said and len(self._said) < SAID_KEYS:
            self._said.add(key)
            log.warning("%s", self._words(key))
        return False

    def left_out(self, prefix: str) -> list[str]:
        """Describe the keys directly below `prefix` that listings left out, as far as they were logged."""
        start = f"{prefix}/" if prefix else ""
        keys = [key for key in self._said if key.startswith(start) and not _is_path(key[len(start) :].partition("/")[0])]
        return list(map(self._words, sorted(keys)))

    def _words(self, key: str) -> str:
        return f"{self._location.text}: the key {key!r} is left out: no path can have this name"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error: a signed URL is for one server."""

    def redirect_request(self, *words: object) -> None:
        return None


def _is_path(key: str) -> bool:
    """Tell whether a path can have this name."""
    return all(part not in ("", ".", "..") for part in key.split("/")) and all(c >= " " and c != "\x7f" for c in key)


def _opener(certificates: bytes) -> urllib.request.OpenerDirector:
    """Return what opens URLs. `certificates`: those to trust besides the machine's, as PEM."""
    context = ssl.create_default_context()
    if certificates:
        context.load_verify_locations(cadata=certificates.decode("ascii"))
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirects)


def _parse_page(text: bytes, root: str, prefix: str) -> OddPage:
    """Return the page that a server sent. Raises ValueError or ParseError for anything else.

    `root`: the part of all keys that is left out of the result; `prefix`: that of the LIST. An object of that name only
    marks a directory.
    """
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:  # nobody needs them, and entities may expand without end
        raise ValueError
    page = fromstring(text)
    if _name(page) != "ListBucketResult":
        raise ValueError
    facts = {_name(part): part.text or "" for part in page}
    decoded = unquote_plus if facts.get("EncodingType") == "url" else str
    prefixes, objects = [], []
    for part in page:
        members = {_name(member): member.text or "" for member in part}
        if _name(part) == "CommonPrefixes":
            prefixes.append(decoded(members["Prefix"])[len(root) :].removesuffix("/"))
        elif _name(part) == "Contents" and (key := decoded(members["Key"])) != prefix:
            when = datetime.fromisoformat(members["LastModified"])
            objects.append(
                {
                    "path": key[len(root) :].removesuffix("/"),
                    "size": int(members["Size"]),
                    "last_modified": when if when.tzinfo is not None else when.replace(tzinfo=UTC),
                    "e_tag": members.get("ETag"),
                }
            )
    truncated = facts.get("IsTruncated", "").strip() == "true"
    return OddPage(prefixes, objects, facts["NextContinuationToken"] if truncated else "")


def _name(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]
