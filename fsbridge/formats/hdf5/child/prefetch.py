"""Prefetch of a remote file's metadata: which blocks will be read is found by trying, for many objects at a time.

HDF5 reads one piece of metadata after the other, and each may take a request. Therefore the file is opened a second time
here, and the questions about its objects are tried with the blocks that are present. An attempt that lacks a block fails
and tells which one. The missing blocks of many objects are requested together, and the attempts are repeated. Their
results are dropped: answers come from the first opening, which never fails for lack of a block. Part of the HDF5 child.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from h5py import h5g, h5l, h5o

from fsbridge.formats.hdf5.child.block_file import BlockFile
from fsbridge.formats.hdf5.child.data import SMALL_TABLE_CHUNKS, Datasets
from fsbridge.formats.hdf5.child.data_file import open_blocks
from fsbridge.formats.hdf5.child.objects import FAILURES, FIRST_PAGE_MEMBERS, StoredLink, iterate_links
from fsbridge.threads.deadlines import Deadline

BATCH = 128
"""Objects that are tried together. What they need fits into the blocks that are kept."""
NEAR = 4
"""A walk is expected to continue with one of this many groups that it saw last."""
WAITING_GROUPS = 10_000
"""Most remembered groups that a walk has not reached yet."""

Path = tuple[bytes, ...]


class TrialFile(Datasets):
    """The second opening of the file. It reads only the metadata of the objects themselves."""

    def resolve(self, reference: Any) -> Any:
        return None

    def find_sources(self, dataset: Any) -> list[str]:
        return []

    def _verify_contiguous(self, dataset: Any, tid: Any, space: Any, address: int) -> None:
        return

    def _count_stored(self, dataset: Any) -> int | None:
        return None

    def _read_small_table(self, dataset: Any, plist: Any, space: Any) -> dict[str, Any] | None:
        extents = zip(space.get_simple_extent_dims(), plist.get_chunk(), strict=True)
        if math.prod(-(-extent // edge) for extent, edge in extents) <= SMALL_TABLE_CHUNKS:
            dataset.chunk_iter(lambda chunk: None)
        return None


class MetadataPrefetch:
    """Prefetches blocks of `blocks`, the file `name`."""

    def __init__(self, name: str, blocks: BlockFile) -> None:
        self._name = name
        self._blocks = blocks
        self._trial: TrialFile | None = None
        self._groups: dict[Path, Any] = {}
        self._waiting: deque[Path] = deque()
        self._skipped: deque[Path] = deque(maxlen=NEAR)
        self._objects = 0
        self._known: set[Path] = set()
        self._asked = 0

    def close(self) -> None:
        """Close the second opening."""
        if self._trial is not None:
            self._trial.file.close()
            self._trial = None

    def prefetch_members(self, path: Path, links: Sequence[StoredLink]) -> Iterator[StoredLink]:
        """Yield the links of the group at `path`, each when its object's metadata is present."""
        for start in range(0, len(links), BATCH):
            batch = links[start : start + BATCH]
            hard = [link for link in batch if link.type == h5l.TYPE_HARD]
            near = all(self._blocks.has(link.address) for link in hard)
            with self._open_groups():
                actions = [partial(self._describe, path, link.name) for link in hard]
                # If the first objects of a batch lack nothing, the rest is not tried.
                if not near or any(self._try(action)[1] for action in actions[:3]):
                    self._prefetch(actions)
            yield from batch

    def note_listing(self, path: Path, groups: Iterable[Path]) -> None:
        """Note that the group at `path` was listed and contains `groups`; it may be a step of a walk.

        If the walk continues where it was and had to wait for blocks, the metadata of what comes next is prefetched.
        """
        late, self._asked = self._blocks.requests > self._asked, self._blocks.requests
        near = [self._waiting.popleft() for _ in range(min(NEAR, len(self._waiting)))]
        if path in near or path in self._skipped:
            if path in near:
                self._skipped.extend(near[: near.index(path)])  # several groups are asked for at a time
                near = near[near.index(path) + 1 :]
            else:
                self._skipped.remove(path)
            if late:
                self._objects = min(1024, max(128, 8 * self._objects))  # objects of further groups
        else:
            self._objects = 0
        self._waiting.extendleft(reversed([*groups, *near]))
        while len(self._waiting) > WAITING_GROUPS:
            self._waiting.pop()
        if late and self._objects:
            coming = [group for group in (*self._skipped, *self._waiting) if group not in self._known]
            with self._open_groups():
                self._prefetch_groups(coming, self._objects)
        self._asked = self._blocks.requests

    def prefetch_everything(self, end: Deadline | None = None) -> None:
        """Prefetch what a visit of all objects reads; nothing more after `end`."""
        with self._open_groups():
            level: list[Path] = [()]
            seen: set[int] = set()
            while level and not (end and end.passed):
                members: list[Path] = []
                for path, links in self._read_listings(level):
                    fresh = [link for link in links if link.type == h5l.TYPE_HARD and link.address not in seen]
                    seen |= {link.address for link in fresh}
                    members += [(*path, link.name) for link in fresh]
                kinds = self._prefetch([partial(self._read_kind, path) for path in members])
                level = [path for path, kind in zip(members, kinds, strict=True) if kind == h5o.TYPE_GROUP]

    # ---- attempts

    def _prefetch_groups(self, level: list[Path], objects: int) -> None:
        """Prefetch what listing these groups and the groups inside them reads, until `objects` objects were seen."""
        while level and objects > 0:
            level = level[:objects]
            members: list[Path] = []
            for path, links in self._read_listings(level):
                if objects <= 0:
                    break
                members += [(*path, link.name) for link in links if link.type == h5l.TYPE_HARD]
                objects -= 1 + len(links)
                self._known.add(path)
            kinds = self._prefetch([partial(self._describe, path[:-1], path[-1]) for path in members])
            level = [path for path, kind in zip(members, kinds, strict=True) if kind == "group"]
        if len(self._known) > WAITING_GROUPS:
            self._known.clear()

    def _read_listings(self, paths: list[Path]) -> Iterator[tuple[Path, list[StoredLink]]]:
        listings = self._prefetch([partial(self._read_links, path) for path in paths])
        return ((path, links or []) for path, links in zip(paths, listings, strict=True))

    def _prefetch(self, actions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Try these actions, a batch at a time, until none lacks a block.

        Return their results, None for those that failed.
        """
        results: list[Any] = [None] * len(actions)
        waiting = deque(range(len(actions)))
        attempts: dict[int, int] = {}
        while waiting or attempts:
            while waiting and len(attempts) < BATCH:
                attempts[waiting.popleft()] = 0
            lacking: set[int] = set()
            for number in list(attempts):
                results[number], missing = self._try(actions[number])
                attempts[number] += 1
                # Header, continuation, attribute heap, values of variable length, nodes of the chunk index.
                if missing and attempts[number] < 8:
                    lacking |= missing
                else:
                    del attempts[number]
            self._blocks.request(lacking)
        return results

    def _try(self, action: Callable[[], Any]) -> tuple[Any, set[int]]:
        """Return the result of an action, None if it failed, and the blocks that it lacked."""
        with self._blocks.only_present() as lacking:
            try:
                return action(), lacking
            except FAILURES:
                return None, lacking

    @contextlib.contextmanager
    def _open_groups(self) -> Iterator[None]:
        """Keep groups open until the end of the block."""
        try:
            yield
        finally:
            self._groups.clear()

    # ---- what is tried

    def _open_group(self, path: Path) -> Any:
        if self._trial is None:
            self._trial = TrialFile()
            self._trial.file = open_blocks(self._name, self._blocks)[0]
        group = self._groups.get(path)
        if group is None:
            group = h5o.open(self._open_group(path[:-1]), path[-1]) if path else h5g.open(self._trial.file, b"/")
            self._groups[path] = group
        return group

    def _read_links(self, path: Path) -> list[StoredLink]:
        group = self._open_group(path)
        return iterate_links(group, 0, FIRST_PAGE_MEMBERS) if isinstance(group, h5g.GroupID) else []

    def _read_kind(self, path: Path) -> Any:
        return h5o.get_info(self._open_group(path[:-1]), path[-1]).type

    def _describe(self, path: Path, name: bytes) -> Any:
        member = h5o.open(self._open_group(path), name)
        assert self._trial is not None
        return self._trial.describe_object(member, [part.decode("utf-8", "surrogateescape") for part in (*path, name)])[
            "kind"
        ]
