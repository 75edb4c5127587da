"""The owner of an object that was reached by a symbolic link, restricted by the directories above the link's target.

The directories that a key names are shown with their modes; those above the target of a link are not, and count here. Not
here: following links (`files.py`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from fsbridge.owner import Owner, entered, restricted
from fsbridge.store import nowait
from fsbridge.store.local.acl import within_list


def reached_owner(fd: int, named: str, bases: Iterable[str], owner: Owner) -> Owner | None:
    """Who may read the open object of `owner` that was found by the path `named`, given the directories above it.

    `bases`: the store's root, and the directories that links may lead into; those above are not asked. None when the object
    is in none of them any more. May block, unless it is where its name says.
    """
    path = os.readlink(f"/proc/self/fd/{fd}")
    if path == named:
        return owner
    nowait.must_wait()
    base = next((base for base in bases if path.startswith(base.rstrip("/") + "/")), None)
    if base is None:
        return owner if path in bases else None
    found: Owner | None = owner
    while path != base and found is not None:
        path = os.path.dirname(path)
        try:
            status = os.lstat(path)
        except OSError:
            return None
        above = within_list(path, Owner(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)))
        found = restricted(found, entered(above))
    return found
