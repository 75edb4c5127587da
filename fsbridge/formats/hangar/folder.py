"""Finds the folder of Hangar's own files: in a working directory or a server's directory, or the directory itself."""

from __future__ import annotations

import os

FOLDERS = (".hangar", ".hangar_server")


def find_repository(path: str) -> str | None:
    """Return the folder of Hangar's own files if `path` is it or holds it (a working or a server repository)."""
    for folder in (*(os.path.join(path, name) for name in FOLDERS), path):
        if os.path.isfile(os.path.join(folder, "branch.lmdb")) and os.path.isdir(os.path.join(folder, "data")):
            return folder
    return None
