"""A collection: a plain directory whose members are stores, or directories with stores in them, of any mix of formats.

Each member is a group under its own name, opened when it is first used. A member that cannot be opened is listed, too:
opening it raises the reason, and its neighbours are not affected. Not here: what the members are (`detect.py`), how they
are opened (`open.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

from fsbridge.config import Config
from fsbridge.errors import FsbridgeError, NotFound, TimedOut, TooDeep
from fsbridge.formats.detect import SEARCHED_LEVELS, detect_directory, detect_key, levels, only, promised, search
from fsbridge.formats.records import COLLECTION
from fsbridge.formats.shared import OpenedSources, Shared
from fsbridge.lru import LRU
from fsbridge.metadata import JSON, Format
from fsbridge.model import Child, Group, Node, Source
from fsbridge.store import ROOT, Key, Member, Store
from fsbridge.threads.workers import HungMembers

log = logging.getLogger(__name__)

LISTED_MEMBERS = 10_000
"""Most members that are remembered as they were last listed, for a time when they do not answer."""


OPEN_MEMBERS = 8192
"""Most unused members that stay open. Each takes about 6 KB."""


class Appearance(NamedTuple):
    """How a member appears in listings, if at all."""

    shown: bool
    mtime_ns: int


ABSENT = Appearance(False, 0)


OpenMember: TypeAlias = Callable[[Format, Key, Config], Source]
"""Opens the member with the given format and key."""


class _MemberFormat:
    """A member's format, kept as long as anything of the member is in use."""

    def __init__(self, format: Format) -> None:
        self.format = format


class CollectionSource(Source):
    """`model.Source` for a directory of stores. `store` reads the directory, `open_member` opens the stores in it."""

    format = COLLECTION

    def __init__(
        self, store: Store, config: Config, open_member: OpenMember, shared: Shared, open_members: int = OPEN_MEMBERS
    ) -> None:
        """`shared`: what the members share. It is closed with the collection."""
        self.store = store
        self._shared = shared
        self.config = replace(config, format="auto")
        self.levels = levels(config)
        self.is_cut = False
        """True if directories were met in which nothing has been looked for, because they lie too deep."""
        self._open_member = open_member
        self._members = OpenedSources[tuple[Key, Format]](open_members)
        self._formats: WeakValueDictionary[str, _MemberFormat] = WeakValueDictionary()  # by key
        self._in_use: WeakKeyDictionary[object, _MemberFormat] = WeakKeyDictionary()  # by `Source.lease`
        self.hung_members: HungMembers[Appearance] = HungMembers()
        self.listed: LRU[Key, Appearance] = LRU(LISTED_MEMBERS)

    @property
    def root(self) -> CollectionGroup:
        return CollectionGroup(self, ROOT)

    @property
    def remark(self) -> str | None:
        if not self.is_cut or self.levels > SEARCHED_LEVELS:
            return None
        return f"only {SEARCHED_LEVELS} levels of directories are looked through; --format collection looks deeper"

    def cut(self) -> None:
        """Note that some directory was not searched."""
        self.is_cut = True

    def format_at(self, path: Sequence[str]) -> Format:
        """Return the format of the member that the path leads into; of the collection if that member is not in use."""
        above = (self._formats.get("/".join(path[:length])) for length in range(1, len(path) + 1))
        return next((member.format for member in above if member is not None), self.format)

    def close(self) -> None:
        self._members.close()
        self._shared.close()  # closes what resting members still hold open
        self.store.close()

    def member(self, key: Key, form: Format) -> Node:
        """Return the root of the member at `key`, which is opened only once.

        Directories of keys are read from the collection's store.
        """
        return self._members.open((key, form), self._open).root

    def _open(self, member: tuple[Key, Format]) -> Source:
        key, form = member
        source = self._open_member(form, key, self.config)
        kept = self._formats.setdefault(key, _MemberFormat(source.format))  # perhaps of an earlier opening still in use
        kept.format = source.format
        self._in_use[source.lease] = kept
        return source


class CollectionGroup(Group):
    """A directory that is no store and has stores beneath it."""

    def __init__(self, source: CollectionSource, key: Key) -> None:
        self._source = source
        self._key = key

    @property
    def mtime_ns(self) -> int:
        return self._source.store.stat(self._key).mtime_ns

    def attributes(self) -> Mapping[str, JSON]:
        return {}

    def skipped(self) -> Iterator[str]:
        return self._source.store.left_out(self._key)

    def children(self) -> Iterator[Child]:
        """Yield the members by name.

        A member that does not answer is listed as it was last time, or else as a store. Looking it up reports the problem.
        """
        if self._source.store.has_no_directories:  # a listing has all that is needed, and requests have their own deadlines
            for entry in self._source.store.list(self._key, stats=True):
                if self._appears(entry):
                    assert entry.stat is not None
                    yield Child(entry.name, entry.stat.mtime_ns)
            return
        keys = [self._key / name for names in self._source.store.names(self._key) for name in names]
        own, known = self.mtime_ns, self._source.listed
        for key, appearance in zip(
            keys, self._source.hung_members.answers(keys, self._look_at, self._is_known), strict=True
        ):
            if appearance is not None:
                known.put(key, appearance)
            appearance = appearance or known.get(key) or Appearance(True, own)
            if appearance.shown:
                yield Child(key.name, appearance.mtime_ns)

    def _is_known(self, key: Key) -> bool:
        return self._source.listed.get(key) is not None

    def _look_at(self, key: Key) -> Appearance:
        """Return how a member appears in listings. A member that cannot be read is shown."""
        try:
            stat = self._source.store.stat(key)
        except NotFound:
            return ABSENT
        except (FsbridgeError, OSError) as error:
            log.warning("%s", error)
            return Appearance(True, 0)
        return Appearance(self._appears(Member(key.name, stat.is_dir, stat)), stat.mtime_ns)

    def _appears(self, entry: Member) -> bool:
        try:
            return promised(entry.name, entry.is_dir) is not None or self._recognise(entry) is not None
        except (FsbridgeError, OSError):  # opening it reports the error
            return True

    def child(self, name: str) -> Node:
        key = self._key / name
        store = self._source.store
        if self._source.hung_members.hangs(key):
            raise TimedOut(f"{store.describe(key)}: does not answer")
        stat = store.stat(key)
        if key.count("/") >= self._source.config.limits.depth:
            raise TooDeep(
                f"{store.describe(key)}: there are more than {self._source.config.limits.depth} nested directories"
            )
        form = self._recognise(Member(name, stat.is_dir, stat))
        if form is None:
            raise NotFound(f"{store.describe(key)}: not a store")
        self._source.listed.put(key, Appearance(True, stat.mtime_ns))
        return CollectionGroup(self._source, key) if form == COLLECTION else self._source.member(key, form)

    def _recognise(self, entry: Member) -> Format | None:
        """Return the member's format: COLLECTION for a directory with several formats, None for what is no store."""
        store, config, key = self._source.store, self._source.config, self._key / entry.name
        if entry.stat is None:
            return None
        # A member whose name promises a store is listed even when it is broken, so that its error can be seen.
        if not entry.is_dir:
            return detect_key(store, key, entry.stat.size) or promised(entry.name, False)
        form = detect_directory(store, config, key)
        if form is not None:
            return form
        if key.count("/") + 1 >= self._source.levels:
            self._source.cut()
            return promised(entry.name, True)
        beneath = search(store, config, key, self._source.levels, self._source.cut)
        return (only(beneath) or COLLECTION) if beneath else promised(entry.name, True)
