"""How Hangar repositories are recognised and opened."""

from __future__ import annotations

from fsbridge.formats.format import Directory, File, Format, Origin
from fsbridge.formats.hangar.folder import FOLDERS
from fsbridge.model import Source


def _recognise(found: Directory | File) -> bool:
    """It is or holds a repository: `branch.lmdb` beside `data`, on a disk: LMDB maps its files."""
    if not isinstance(found, Directory) or found.store.prefixes:
        return False
    folders = (found, *map(found.below, FOLDERS))
    return any(folder.has("branch.lmdb") and folder.has("data", directory=True) for folder in folders)


def _open(origin: Origin) -> Source:
    from fsbridge.formats.hangar.hierarchy import open_hangar

    return open_hangar(origin.path, origin.config, lambda file: origin.opener("hdf5", file, origin.config))


FORMAT = Format("hangar", (), _recognise, _open)
