"""What the table of formats and the formats tell each other: a format's entry, what to recognise, where to open it.

Not here: the formats' names and properties (`records.py`), how each is recognised and opened (`registry.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from fsbridge.config import Config
from fsbridge.errors import PASSING, AccessDenied, FsbridgeError
from fsbridge.formats.keyed.hierarchy import PLAIN, Dialect
from fsbridge.formats.shared import Shared
from fsbridge.formats.strict_json import parse
from fsbridge.metadata import Format
from fsbridge.model import Source
from fsbridge.store import ROOT, WHOLE, Key, Store

HANGAR_FOLDERS = (".hangar", ".hangar_server")
"""Where Hangar's own files are in a working directory and in a server's directory."""


@dataclass(frozen=True, slots=True)
class CandidateDirectory:
    """A directory of a store that may be a hierarchy.

    Errors of a member that may not be read, or cannot be read at the moment (AccessDenied, PASSING), are raised: such a
    member is not absent.
    """

    store: Store
    config: Config
    key: Key

    def has(self, name: str, directory: bool = False) -> bool:
        """True if it holds an object called `name` (or a `directory`). If a listing is known, that costs no request."""
        if not directory and self.store.shows(self.key / name):
            return True
        try:
            return self.store.stat(self.key / name).is_dir == directory
        except (AccessDenied, *PASSING):
            raise
        except FsbridgeError:
            return False

    def document(self, name: str) -> dict[str, Any] | None:
        """Return the JSON object called `name`; None if it is none, because opening the source later raises the error."""
        place = self.key / name
        try:
            self.store.stat(place, WHOLE)  # a remote store then sends the document once, also for opening
            data, _ = self.store.read(place, self.config.limits.document)
            values = parse(bytes(data), self.store.describe(place), self.config.limits)
        except (AccessDenied, *PASSING):
            raise
        except FsbridgeError:
            return None
        return values if isinstance(values, dict) else None

    def subdirectory(self, name: str) -> CandidateDirectory:
        """Return the directory of that name, whether or not it exists."""
        return CandidateDirectory(self.store, self.config, self.key / name)


@dataclass(frozen=True, slots=True)
class CandidateFile:
    """A file that may be a hierarchy. `read` returns its bytes, by offset and length."""

    size: int
    read: Callable[[int, int], bytes]

    def has(self, magic: bytes, offset: int = 0) -> bool:
        """True if these bytes stand at `offset`.

        Returns False if the file may not be read. Raises OSError or PASSING if reading fails for now.
        """
        if offset + len(magic) > self.size:
            return False
        try:
            return self.read(offset, len(magic)) == magic
        except PASSING:
            raise
        except FsbridgeError:
            return False


class Opener(Protocol):
    """Opens the store at `path` in the format `form`. `auto` means the detected format.

    `store`: if given, a keyed format is opened on it, and `path` is only its name in messages.
    """

    def __call__(self, form: str, path: str, config: Config, store: Store | None = None) -> Source: ...


@dataclass(frozen=True, slots=True)
class HierarchyPlace:
    """The place at which a hierarchy is opened: `key` of `store` for formats on stores, `path` for formats that read files.

    `opener`: opens other stores that it consists of or links to. `owned`: the store is closed with the hierarchy.
    `dialect`: what a convention on top of a keyed format adds. `shared`: what the sources of the mount share.
    """

    path: str
    config: Config
    opener: Opener
    store: Store | None = None
    key: Key = ROOT
    owned: bool = True
    dialect: Dialect = PLAIN
    shared: Shared = field(default_factory=Shared)


@dataclass(frozen=True, slots=True)
class RegisteredFormat:
    """A format of the table. `recognise` looks at the direct members of a directory, or at the first bytes of a file."""

    format: Format
    recognise: Callable[[CandidateDirectory | CandidateFile], bool]
    open: Callable[[HierarchyPlace], Source]
