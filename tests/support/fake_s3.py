"""An object store of our own in the test's process: S3 (GET, HEAD, LIST version 2, and uploads by
`fake_uploads.py`) and plain HTTP, on a loopback address.

It counts requests, delays them, and misbehaves as a test tells it (`Fault`). Not here: any test.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
import urllib.parse
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from itertools import islice
from pathlib import Path
from xml.sax.saxutils import escape

from fake_uploads import Uploads

from fsbridge.errors import FsbridgeError

CHUNK = bytes(range(256)) * 40
BIG = CHUNK * 300
BUCKET = "bucket"


@dataclass(frozen=True)
class Stored:
    """One object; `mtime` in seconds."""

    data: bytes
    mtime: float
    etag: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Headers of the user's own."""


class Objects(dict[str, Stored]):
    """Objects by key, which knows its keys' order until it changes."""

    def __init__(self) -> None:
        super().__init__()
        self._ordered: list[str] | None = None

    def __setitem__(self, key: str, stored: Stored) -> None:
        if key not in self:
            self._ordered = None
        super().__setitem__(key, stored)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._ordered = None

    def clear(self) -> None:
        super().clear()
        self._ordered = None

    def ordered(self) -> list[str]:
        if self._ordered is None:
            self._ordered = sorted(self)
        return self._ordered


@dataclass(frozen=True)
class Request:
    """A request. `kind`: GET, HEAD, LIST, or another method; `key`: without the bucket; for a LIST its prefix."""

    kind: str
    key: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    number: int
    """How many of this kind and key came before."""

    @property
    def range(self) -> str:
        return self.headers.get("range", "")


@dataclass(frozen=True)
class Fault:
    """How one answer is wrong."""

    status: int = 0
    """Answered in place of the true status, with `body`."""
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    close: bool = False
    """The connection is closed without an answer."""
    truncate: int = -1
    """The body breaks off after so many bytes."""
    stall: float = 0.0
    """Seconds of silence before the rest of the body (after `truncate` bytes of it), or before the answer."""
    short: int = 0
    """The body lacks so many bytes, and Content-Length agrees; Content-Range does not."""
    ignore_range: bool = False
    ignore_match: bool = False
    etag: str | None = None
    """Another ETag; empty: none at all, and no Last-Modified either."""


GATHERING_SECONDS = 2.0
"""Seconds for which a request waits for others: less than any timeout of fsbridge."""


class Gathering:
    """Requests of a kind that are answered once `count` of them are under way, so that no machine is too slow for a test."""

    def __init__(self, count: int, kind: Callable[[Request], object]) -> None:
        self.count = count
        self.kind = kind
        self.full = asyncio.Event()
        self._waiting = 0
        self._in_vain = False

    async def join(self) -> None:
        self._waiting += 1
        if self._waiting >= self.count:
            self.full.set()
        try:
            if not self._in_vain:
                await asyncio.wait_for(self.full.wait(), GATHERING_SECONDS)
        except TimeoutError:
            self._in_vain = True
        finally:
            self._waiting -= 1


class FakeS3:
    """The server. `listing`: whether LIST is answered; `latency` in seconds; `page`: members of a LIST's answer.

    `starts_after`: whether LIST can start after a key; `other_etags`: whether it gives other ETags than GET.
    """

    def __init__(self) -> None:
        self.objects = Objects()
        self.uploads = Uploads(self._uploaded)
        self.requests: list[Request] = []
        self.fault: Callable[[Request], Fault | None] = lambda request: None
        self.latency = 0.0
        self.page_latency = 0.0
        self.page = 1000
        self.listing = True
        self.starts_after = True
        self.other_etags = False
        self.in_flight = self.most_in_flight = 0
        self.connections = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._transports = weakref.WeakSet[asyncio.WriteTransport]()
        self._counts: dict[tuple[str, str], int] = {}
        self._gathering: Gathering | None = None
        self._held: tuple[Callable[[Request], object], asyncio.Event] | None = None
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), daemon=True)
        self._thread.start()
        started.wait()

    # ---- what tests use

    def put(self, key: str, data: bytes, mtime: float | None = None, etag: str | None = None) -> None:
        self.objects[key] = Stored(data, time.time() if mtime is None else mtime, etag or hashlib.md5(data).hexdigest())

    def _uploaded(self, key: str, data: bytes, metadata: Mapping[str, str]) -> None:
        self.objects[key] = Stored(data, time.time(), hashlib.md5(data).hexdigest(), metadata)

    def put_tree(self, folder: Path, prefix: str) -> None:
        """Upload a directory."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes(), path.stat().st_mtime)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> list[str]:
        """Options of `fsbridge mount` for an `s3:` URL."""
        return ["--anonymous", "--region", "us-east-1", "--endpoint", self.endpoint]

    def url(self, key: str) -> str:
        """The URL of an object for plain HTTP."""
        return f"{self.endpoint}/{BUCKET}/{key}"

    @contextmanager
    def counted(self) -> Iterator[list[Request]]:
        """The requests within."""
        first = len(self.requests)
        found: list[Request] = []
        yield found
        found += self.requests[first:]

    @contextmanager
    def gathered(self, count: int, kind: Callable[[Request], object]) -> Iterator[None]:
        """Within, `count` requests of a `kind` must be under way at a time, once at least: until then none is answered."""
        self._gathering = gathering = Gathering(count, kind)
        yield
        self._gathering = None
        assert gathering.full.is_set(), f"never {count} requests at a time"

    @contextmanager
    def held(self, kind: Callable[[Request], object]) -> Iterator[Callable[[], object]]:
        """Within, requests of a `kind` are answered once what this yields has been called."""
        goes_on = asyncio.Event()
        self._held = kind, goes_on
        try:
            yield lambda: self._loop.call_soon_threadsafe(goes_on.set)
        finally:
            self._held = None
            self._loop.call_soon_threadsafe(goes_on.set)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    # ---- HTTP

    def _serve(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)

        async def begin() -> asyncio.Server:
            server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            return server

        server = self._loop.run_until_complete(begin())
        started.set()
        self._loop.run_forever()
        server.close()
        self._turn()  # a connection would never be closed if its task had not begun
        while tasks := asyncio.all_tasks(self._loop):  # again for a connection that was accepted meanwhile
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._turn()  # transports close on the next turn
        for transport in list(self._transports):
            transport.abort()  # one that is closed already, and waits for a client that does not read
        self._turn()
        self._loop.close()

    def _turn(self) -> None:
        for _ in range(3):
            self._loop.run_until_complete(asyncio.sleep(0))

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._transports.add(writer.transport)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                method, target, _ = lines[0].split(" ", 2)
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
                try:
                    if not await self._answer(writer, method, target, headers, body):
                        return
                finally:
                    self.in_flight -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.CancelledError:  # the server ends: what was not received yet is not sent any more
            writer.transport.abort()
        finally:
            self.connections -= 1
            writer.close()

    async def _answer(
        self, writer: asyncio.StreamWriter, method: str, target: str, headers: dict[str, str], sent: bytes
    ) -> bool:
        path, _, query_text = target.partition("?")
        query = dict(urllib.parse.parse_qsl(query_text, keep_blank_values=True))
        bucket, _, key = urllib.parse.unquote(path).lstrip("/").partition("/")
        kind = "LIST" if method == "GET" and "list-type" in query else method
        key = query.get("prefix", "") if kind == "LIST" else key
        number = self._counts.get((kind, key), 0)
        self._counts[kind, key] = number + 1
        request = Request(kind, key, headers, query, number)
        self.requests.append(request)
        fault = self.fault(request) or Fault()
        gathering = self._gathering
        if gathering is not None and gathering.kind(request):
            await gathering.join()
        held = self._held
        if held is not None and held[0](request):
            await held[1].wait()
        await asyncio.sleep(self.latency + (self.page_latency if kind == "LIST" else 0))
        if fault.close:
            return False
        if fault.stall and fault.truncate < 0:
            await asyncio.sleep(fault.stall)
        if fault.status:
            status, extra, body = fault.status, dict(fault.headers), fault.body
        elif bucket != BUCKET:
            status, extra, body = 404, {}, _error("NoSuchBucket")
        elif kind == "LIST":
            status, extra, body = self._list(query) if self.listing else (403, {}, _error("AccessDenied"))
        elif method in ("GET", "HEAD"):
            status, extra, body = self._get(key, headers, fault)
        else:
            status, extra, body = self.uploads.answer(method, key, query, headers, sent)
        length = len(body)
        if fault.short:
            body = body[: -fault.short]
            length = len(body)
        fields = {"Content-Length": str(length), **extra}
        head = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in fields.items())]
        writer.write("\r\n".join([*head, "", ""]).encode("latin-1"))
        if method == "HEAD" or status in (304, 204):
            body = b""
        if 0 <= fault.truncate < len(body):
            writer.write(body[: fault.truncate])
            await writer.drain()
            await asyncio.sleep(fault.stall)
            if not fault.stall:
                return False
            body = body[fault.truncate :]
        writer.write(body)
        await writer.drain()
        return True

    def _get(self, key: str, headers: Mapping[str, str], fault: Fault) -> tuple[int, dict[str, str], bytes]:
        stored = self.objects.get(key)
        if stored is None:
            return 404, {}, _error("NoSuchKey")
        etag = stored.etag if fault.etag is None else fault.etag
        extra = {"Accept-Ranges": "bytes", **stored.metadata}
        if etag:
            shown = f'W/"{etag[2:]}"' if etag.startswith("W/") else f'"{etag}"'
            extra |= {"ETag": shown, "Last-Modified": formatdate(stored.mtime, usegmt=True)}
        if not fault.ignore_match:
            if "if-match" in headers and headers["if-match"].strip('"') != etag:
                return 412, {}, _error("PreconditionFailed")
            if "if-none-match" in headers and headers["if-none-match"].strip('"') == etag.removeprefix("W/"):
                return 304, extra, b""
        asked = headers.get("range", "")
        if not asked or fault.ignore_range:
            return 200, extra, stored.data
        size = len(stored.data)
        first_text, _, last_text = asked.removeprefix("bytes=").partition("-")
        first = int(first_text) if first_text else max(0, size - int(last_text))
        last = min(int(last_text) if first_text and last_text else size - 1, size - 1)
        if first >= size:
            return 416, {"Content-Range": f"bytes */{size}"}, _error("InvalidRange")
        extra["Content-Range"] = f"bytes {first}-{last}/{size}"
        return 206, extra, stored.data[first : last + 1]

    def _list(self, query: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or (query.get("start-after", "") if self.starts_after else "")
        encoded = query.get("encoding-type") == "url"  # as boto3 asks, since XML cannot hold every key
        shown = urllib.parse.quote if encoded else escape
        entries: list[str] = []
        last, truncated, count, seen = "", False, 0, set()
        keys = self.objects.ordered()
        for key in islice(keys, bisect_left(keys, max(prefix, after)), None):
            if not key.startswith(prefix):
                if key > prefix:
                    break
                continue
            rest = key[len(prefix) :]
            below = prefix + rest.partition(delimiter)[0] + delimiter if delimiter and delimiter in rest else ""
            if (below or key) <= after or key <= after or below in seen:
                continue
            if count == self.page:
                truncated = True
                break
            count += 1
            last = below or key
            if below:
                seen.add(below)
                last = below + "\U0010ffff"  # all that begins so has been told
                entries.append(f"<CommonPrefixes><Prefix>{shown(below)}</Prefix></CommonPrefixes>")
            else:
                stored = self.objects[key]
                when = _when(stored.mtime)
                etag = f"other-{stored.etag}" if self.other_etags else f"&quot;{stored.etag}&quot;"
                entries.append(
                    f"<Contents><Key>{shown(key)}</Key><LastModified>{when}</LastModified><ETag>{etag}</ETag>"
                    f"<Size>{len(stored.data)}</Size><StorageClass>STANDARD</StorageClass></Contents>"
                )
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if truncated else ""
        body = (
            f'<?xml version="1.0"?><ListBucketResult><Name>{BUCKET}</Name><Prefix>{shown(prefix)}</Prefix>'
            f"{'<EncodingType>url</EncodingType>' if encoded else ''}"
            f"<KeyCount>{count}</KeyCount><IsTruncated>{str(truncated).lower()}</IsTruncated>{token}"
            f"{''.join(entries)}</ListBucketResult>"
        )
        return 200, {"Content-Type": "application/xml"}, body.encode()


@lru_cache
def _when(mtime: float) -> str:
    """A time as listings tell it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(mtime))


def _error(code: str) -> bytes:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>m</Message></Error>'.encode()


def recovered(call: Callable[[], object]) -> None:
    """Until the store answers again after a fault: with shortened timeouts a busy machine may take several attempts."""
    deadline = time.monotonic() + 20
    while True:
        try:
            call()
            return
        except FsbridgeError:
            if time.monotonic() > deadline:
                raise
