"""The table of formats: record, recogniser and opener of each. A new format is a module or package, and an entry here.

A format's code is imported when a store of it is opened, so a mount of an N5 container loads nothing of HDF5 or LMDB. Not
here: the order of detection (`detect.py`), how formats are chosen (`open.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from fsbridge.errors import PASSING, AccessDenied, FsbridgeError, Unsupported
from fsbridge.formats.format import HANGAR_FOLDERS, CandidateDirectory, CandidateFile, HierarchyPlace, RegisteredFormat
from fsbridge.formats.records import HANGAR, HDF5, ICECHUNK, KEYED_SUFFIXES, N5, ZARR2, ZARR3, ZIP
from fsbridge.model import Source

REFERENCES = "these are kerchunk references to chunks in other files, not a store"
REFERENCES_HELP = "xarray opens them with engine='kerchunk'; VirtualiZarr can write them as Icechunk, which fsbridge reads"
ZARR2_DOCUMENTS = (".zarray", ".zgroup", ".zmetadata")
ICECHUNK_MAGIC = b"ICE\xf0\x9f\xa7\x8aCHUNK"
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
HDF5_USER_BLOCKS = (0, *(512 << power for power in range(12)))
"""Offsets at which an HDF5 file may begin: after a user block of 0, 512, 1024, ... bytes; up to 1 MiB in practice."""
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")


def _is_zarr3(candidate: CandidateDirectory | CandidateFile) -> bool:
    """True if it holds `zarr.json`. Raises Unsupported for the draft of 2021, where `zarr_format` is a URL."""
    if not isinstance(candidate, CandidateDirectory) or not candidate.has("zarr.json"):
        return False
    value = (candidate.document("zarr.json") or {}).get("zarr_format")
    if isinstance(value, str) and "://" in value:
        place = candidate.store.describe(candidate.key / "zarr.json")
        raise Unsupported(f"{place}: the store has the abandoned draft of Zarr v3 of 2021, not Zarr v3")
    return True


def _open_zarr3(origin: HierarchyPlace) -> Source:
    from fsbridge.formats.keyed.hierarchy import KeyedSource
    from fsbridge.formats.keyed.store import KeyedStore
    from fsbridge.formats.zarr3 import Zarr3Hierarchy

    assert origin.store is not None
    hierarchy = Zarr3Hierarchy(KeyedStore(origin.store, origin.config, origin.shared), origin.dialect)
    return KeyedSource(ZARR3, hierarchy, origin.key, origin.owned)


def _is_zarr2(candidate: CandidateDirectory | CandidateFile) -> bool:
    return isinstance(candidate, CandidateDirectory) and any(candidate.has(name) for name in ZARR2_DOCUMENTS)


def _open_zarr2(origin: HierarchyPlace) -> Source:
    """Open a hierarchy. Raises Unsupported for a directory of kerchunk references in Parquet: it holds no chunks."""
    from fsbridge.formats.keyed.hierarchy import KeyedSource
    from fsbridge.formats.keyed.store import KeyedStore
    from fsbridge.formats.zarr2 import Zarr2Hierarchy

    assert origin.store is not None
    candidate = CandidateDirectory(origin.store, origin.config, origin.key)
    alone = candidate.has(".zmetadata") and not (candidate.has(".zgroup") or candidate.has(".zarray"))
    if alone and "record_size" in (candidate.document(".zmetadata") or {}):
        raise Unsupported(f"{origin.store.describe(origin.key)}: {REFERENCES}; {REFERENCES_HELP}")
    hierarchy = Zarr2Hierarchy(KeyedStore(origin.store, origin.config, origin.shared), origin.dialect)
    return KeyedSource(ZARR2, hierarchy, origin.key, origin.owned)


def _is_n5(candidate: CandidateDirectory | CandidateFile) -> bool:
    """True if it holds `attributes.json` with `n5` or `dimensions`."""
    values = candidate.document("attributes.json") if isinstance(candidate, CandidateDirectory) else None
    return values is not None and ("n5" in values or "dimensions" in values)


def _open_n5(origin: HierarchyPlace) -> Source:
    from fsbridge.formats import n5 as hierarchy
    from fsbridge.formats.keyed.hierarchy import KeyedSource
    from fsbridge.formats.keyed.store import KeyedStore

    assert origin.store is not None
    keyed = KeyedStore(origin.store, origin.config, origin.shared)
    return KeyedSource(N5, hierarchy.N5Hierarchy(keyed), origin.key, origin.owned)


def _is_hangar(candidate: CandidateDirectory | CandidateFile) -> bool:
    """True if it is or holds a repository: `branch.lmdb` beside `data`, on a local disk."""
    if not isinstance(candidate, CandidateDirectory) or candidate.store.has_no_directories:
        return False
    folders = (candidate, *map(candidate.subdirectory, HANGAR_FOLDERS))
    return any(folder.has("branch.lmdb") and folder.has("data", directory=True) for folder in folders)


def _open_hangar(origin: HierarchyPlace) -> Source:
    from fsbridge.formats.hangar.hierarchy import open_hangar

    return open_hangar(origin.path, origin.config, lambda file: origin.opener(HDF5.name, file, origin.config))


def _is_icechunk(candidate: CandidateDirectory | CandidateFile) -> bool:
    """True if it holds Icechunk's file `repo` (version 2) or the branch `main` (version 1), which always exists."""
    if not isinstance(candidate, CandidateDirectory):
        return False
    if not candidate.has("repo"):
        refs = candidate.subdirectory("refs")
        may_be = refs.has("branch.main", directory=True) or not candidate.store.listable  # which has no directories
        return may_be and refs.subdirectory("branch.main").has("ref.json")
    try:
        return candidate.store.read_range(candidate.key / "repo", 0, len(ICECHUNK_MAGIC))[0] == ICECHUNK_MAGIC
    except (AccessDenied, *PASSING):
        raise
    except FsbridgeError:
        return False


def _open_icechunk(origin: HierarchyPlace) -> Source:
    from fsbridge.formats.icechunk import IcechunkSource

    assert origin.store is not None
    return IcechunkSource(
        origin.store,
        origin.key,
        origin.config,
        lambda store, config: origin.opener(ZARR3.name, "", config, store),
        origin.owned,
    )


def _is_hdf5(candidate: CandidateDirectory | CandidateFile) -> bool:
    return isinstance(candidate, CandidateFile) and any(candidate.has(HDF5_MAGIC, offset) for offset in HDF5_USER_BLOCKS)


def _open_hdf5(origin: HierarchyPlace) -> Source:
    from fsbridge.formats.hdf5.source import open_hdf5

    if origin.store is None:
        return open_hdf5(origin.path, origin.config, origin.shared)
    from fsbridge.formats.hdf5.remote import remote_file

    file = remote_file(origin.store, origin.key, origin.config.allow_external, origin.shared)
    return open_hdf5(file, origin.config, origin.shared)


def _is_zip(candidate: CandidateDirectory | CandidateFile) -> bool:
    return isinstance(candidate, CandidateFile) and any(map(candidate.has, ZIP_MAGICS))


def _open_zip(origin: HierarchyPlace) -> Source:
    """Open the store in a zip file. `origin.opener` detects the format of the contents."""
    from fsbridge.store.blobs import BlobFile, LocalFile, ObjectFile
    from fsbridge.store.local.files import file_check, path_opener
    from fsbridge.store.zip import OpenArchives, ZipStore

    if origin.store is None:
        file: BlobFile = LocalFile(origin.path, file_check(origin.config), path_opener(origin.config))
    else:
        file = ObjectFile(origin.store, origin.key)
    store = ZipStore(file, shared=origin.shared.of(OpenArchives), suffixes=KEYED_SUFFIXES)
    try:
        return origin.opener("auto", origin.path, origin.config, store)
    except BaseException:
        store.close()
        raise


FORMATS: Mapping[str, RegisteredFormat] = {
    entry.format.name: entry
    for entry in (
        RegisteredFormat(ZARR3, _is_zarr3, _open_zarr3),
        RegisteredFormat(ZARR2, _is_zarr2, _open_zarr2),
        RegisteredFormat(N5, _is_n5, _open_n5),
        RegisteredFormat(HANGAR, _is_hangar, _open_hangar),
        RegisteredFormat(ICECHUNK, _is_icechunk, _open_icechunk),
        RegisteredFormat(HDF5, _is_hdf5, _open_hdf5),
        RegisteredFormat(ZIP, _is_zip, _open_zip),
    )
}
"""Formats by name, in the order of detection."""
