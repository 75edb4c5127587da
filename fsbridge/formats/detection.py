"""Which format a directory or file is: the one documented order. Not here: opening it (`opening.py`).

A directory is, in this order,

1. `zarr3` if it holds `zarr.json`,
2. `zarr2` if it holds `.zarray`, `.zgroup` or `.zmetadata`,
3. `n5` if it holds `attributes.json` with `n5` or `dimensions`,
4. `hangar` if it is or holds a Hangar repository (`branch.lmdb` beside `data`),
5. the format of the arrays beneath it, if they are all of one of the first three formats: TensorStore writes roots without
   any metadata; if there are none, `attributes.json` alone makes it `n5` and `.zattrs` alone `zarr2`,
6. `collection` if there are several stores of different formats beneath it, or HDF5 files, zip files, Hangar repositories.

What may not be read (AccessDenied: another user's, or a link out of the store) is never taken for absent.

A file is `hdf5` or `zip` by its first bytes; beneath a collection a zip file must be named like one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from fsbridge.config import Config
from fsbridge.errors import AccessDenied, CorruptData, FsbridgeError, NotADirectory, NotFound, Unsupported
from fsbridge.formats.documents import parse
from fsbridge.store import ROOT, Key, Store

KEYED = frozenset(("zarr3", "zarr2", "n5"))
"""Formats that are directories of keys, and so can be roots without metadata of their own."""

DIRECTORIES = 512
"""Directories that are searched for stores when the root itself says nothing."""

ENTRIES = 4096
"""Entries of one such directory that are looked at: a directory of chunks has more, and no store in it."""

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
ZIP_SUFFIXES = (".zip", ".zarr", ".n5")
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
USER_BLOCKS = (0, *(512 << power for power in range(12)))
"""Where an HDF5 file may begin: after a user block of 0, 512, 1024, ... bytes; up to 1 MiB in practice."""


def detect(store: Store, config: Config) -> str | None:
    """The format of the directory that `store` is; None if it is no store and holds none."""
    own = detect_directory(store, config, ROOT)
    if own is not None:
        return own
    found = search(store, config, ROOT)
    if not found:
        return "n5" if _has(store, ROOT, "attributes.json") else "zarr2" if _has(store, ROOT, ".zattrs") else None
    return found.pop() if len(found) == 1 and found <= KEYED else "collection"


def detect_directory(store: Store, config: Config, key: Key) -> str | None:
    """Steps 1 to 4: the format of the directory `key` by what lies directly in it."""
    if _has(store, key, "zarr.json"):
        _refuse_draft(store, config, key)
        return "zarr3"
    if any(_has(store, key, name) for name in (".zarray", ".zgroup", ".zmetadata")):
        return "zarr2"
    if _is_n5(store, config, key):
        return "n5"
    for folder in (key, key / ".hangar", key / ".hangar_server"):
        if _has(store, folder, "branch.lmdb") and _has(store, folder, "data", directory=True):
            return "hangar"
    return None


def detect_file(read: Callable[[int, int], bytes], size: int) -> str | None:
    """`hdf5` or `zip` by the file's first bytes, else None; `read(start, length)` gives bytes of the file."""
    for offset in USER_BLOCKS:
        if offset + len(HDF5_MAGIC) > size:
            break
        try:
            beginning = read(offset, len(HDF5_MAGIC))
        except (FsbridgeError, OSError):
            return None
        if beginning == HDF5_MAGIC:
            return "hdf5"
        if not offset and beginning.startswith(ZIP_MAGICS):
            return "zip"
    return None


def detect_key(store: Store, key: Key, size: int) -> str | None:
    """`detect_file` for an object of a store; many a zip file (`.npz`, `.docx`) is no store, so a zip's name counts, too."""
    found = detect_file(lambda start, length: store.read_range(key, start, length)[0], size)
    return None if found == "zip" and not key.name.lower().endswith(ZIP_SUFFIXES) else found


def search(store: Store, config: Config, root: Key) -> set[str]:
    """Formats of the stores beneath `root`, breadth first; stops when there are two kinds or the search gets long.

    Raises AccessDenied when nothing is found but something may not be read.
    """
    found: set[str] = set()
    refused: list[AccessDenied] = []
    queue = deque([root])
    for _ in range(DIRECTORIES):
        if not queue or len(found) > 1:
            break
        for name, is_dir, size in _listing(store, queue[0], refused):
            key = queue[0] / name
            try:
                kind = detect_directory(store, config, key) if is_dir else detect_key(store, key, size)
            except AccessDenied as error:
                refused.append(error)
                continue
            if kind is not None:
                found.add(kind)
            elif is_dir and key.count("/") < config.limits.depth:
                queue.append(key)
        queue.popleft()
    if refused and not found:
        raise refused[0]
    return found


def _listing(store: Store, key: Key, refused: list[AccessDenied]) -> Iterator[tuple[str, bool, int]]:
    try:
        for _, entry in zip(range(ENTRIES), store.list(key, stats=True), strict=False):
            if entry.stat is not None:
                yield entry.name, entry.is_dir, entry.stat.size
    except AccessDenied as error:
        refused.append(error)
    except FsbridgeError:
        return


def _has(store: Store, key: Key, name: str, directory: bool = False) -> bool:
    try:
        return store.stat(key / name).is_dir == directory
    except AccessDenied:
        raise
    except FsbridgeError:
        return False


def _is_n5(store: Store, config: Config, key: Key) -> bool:
    try:
        data, _ = store.read(key / "attributes.json", config.limits.document)
        values = parse(data, store.describe(key / "attributes.json"), config.limits)
    except AccessDenied:
        raise
    except FsbridgeError:
        return False
    return isinstance(values, dict) and ("n5" in values or "dimensions" in values)


def _refuse_draft(store: Store, config: Config, key: Key) -> None:
    """The Zarr v3 draft of 2021: its root document names the specification by URL, and its arrays lie in `meta`."""
    place = key / "zarr.json"
    try:
        values = parse(store.read(place, config.limits.document)[0], store.describe(place), config.limits)
    except (NotFound, NotADirectory, CorruptData):
        return  # whatever is wrong with it is said when it is opened
    if isinstance(values, dict) and isinstance(values.get("zarr_format"), str):
        raise Unsupported(f"{store.describe(place)}: the abandoned Zarr v3 draft of 2021, not Zarr v3")
