"""Object storage as an export's destination: an object for each file, with a note that identifies its source.

Object storage has no links and no directories. Not here: which files (`exporting.py`), requests
(`store/remote/uploads.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from fsbridge.config import Config, Remote
from fsbridge.errors import FsbridgeError, SetupError
from fsbridge.store.remote.uploads import Uploads
from fsbridge.store.remote.urls import Location, parse_url
from fsbridge.tree import Attrs, Buffer
from fsbridge.unmounted.folder import CHANGING_NS

UNIT_ITEMS = 16
"""Most files of a unit: each waits for the server twice."""


class Bucket:
    """The objects below a URL, to which paths are relative. A pickled copy opens it again on its machine. Thread-safe."""

    unit_items = UNIT_ITEMS

    def __init__(self, url: str, remote: Remote, made_of: str) -> None:
        """Open nothing yet.

        `made_of`: what the export is made of (`identity`). An object's note has it, besides the file's size and time.
        """
        self.path = url
        self._remote = remote
        self._made_of = made_of
        self._location = location_of(url)
        self._opening = threading.Lock()
        self._opened: Uploads | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Bucket, (self.path, self._remote, self._made_of)

    @property
    def is_directory(self) -> bool:
        """True if a single file is put below the URL, not at it: the URL ends with a slash or names only a bucket."""
        return self.path.endswith("/") or not self._location.path

    def check_apart(self, config: Config) -> None:
        """Raise SetupError if the destination of an export lies in its source, or the source in the destination (P1).

        The export would write over objects of its own source, or put new ones beside them.
        """
        if not config.is_remote:
            return
        here, source = self._location, parse_url(config.source)
        same = (here.kind, here.root, here.account) == (source.kind, source.root, source.account)
        if same and (_is_below(here.path, source.path) or _is_below(source.path, here.path)):
            raise SetupError(f"{self.path} and the store {config.source} lie in each other", "choose a URL elsewhere")

    def make_directory(self, path: str) -> None:
        """Make nothing, because there are no directories; but check that the bucket of the export itself answers."""
        if not path:
            self._uploads().look(self._key("zarr.json"))

    def check_directory(self, path: str) -> None:
        """Do nothing: object storage has no directories, so nothing can lie in the place of one."""

    def make_link(self, path: str, leads: str) -> bool:
        """Raise FsbridgeError, because object storage has no links."""
        raise FsbridgeError(f"a link to {leads}, and object storage has none; --exclude leaves it out")

    def size(self, path: str) -> int | None:
        """Return the size of an existing object in bytes; None if it is absent."""
        found = self._uploads().look(self._key(path))
        return None if found is None else found[0]

    def has(self, path: str, attrs: Attrs) -> bool:
        """True if the existing object has the size of `attrs` and was made from that version of the same source."""
        return self._uploads().look(self._key(path)) == (attrs.size, self._note(attrs))

    def holds(self, path: str, size: int, pieces: Iterator[Buffer]) -> bool:
        """True if the existing object, which has this size, consists of these bytes."""
        return self._uploads().holds(self._key(path), size, pieces)

    def write(self, path: str, attrs: Attrs, pieces: Iterator[Buffer]) -> int:
        """Write an object whole, or not at all; return its size. It gets no note if its source may still be changing."""
        assert attrs.size is not None
        settled = attrs.mtime_ns < time.time_ns() - CHANGING_NS
        self._uploads().put(self._key(path), attrs.size, self._note(attrs) if settled else "", pieces)
        return attrs.size

    def settle(self) -> None:
        """Do nothing: an object that was put is stored."""

    def give_up(self, path: str) -> None:
        """Do nothing: an incomplete object is never visible."""

    def _note(self, attrs: Attrs) -> str:
        return f"{attrs.size} {attrs.mtime_ns} {self._made_of}"

    def _key(self, path: str) -> str:
        return "/".join(filter(None, [self._location.path, path]))

    def _uploads(self) -> Uploads:
        with self._opening:
            if self._opened is None:
                self._opened = Uploads(self._location, self._remote)
            return self._opened


def location_of(url: str) -> Location:
    """Return the location of a URL; SetupError unless objects can be written there."""
    location = None if url.lower().startswith("file://") else parse_url(url)
    if location is None or location.kind == "http":
        raise SetupError(f"{url}: export writes to directories, s3://, gs:// and az:// only", "name one of these")
    return location


def _is_below(path: str, other: str) -> bool:
    return not other or path == other or path.startswith(f"{other}/")


def identity(config: Config, path: str) -> str:
    """Return what distinguishes exports of one tree from those of another tree into the same place."""
    told = [config.source, path.strip("/"), config.layout, config.chunk_separator]
    return blake2b("\0".join(told).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
