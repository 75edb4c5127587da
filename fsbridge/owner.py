"""Whose a stored object is, and whom its mode lets read it. Not here: what is shown of it (`kernel/replies.py`)."""

from __future__ import annotations

import os
from typing import NamedTuple

READ_MODE = 0o444


class Owner(NamedTuple):
    """Whose a stored object is, and what its mode permits (the permission bits only)."""

    uid: int
    gid: int
    mode: int


class Owners(NamedTuple):
    """Of a group or an array: `directory` says who may look into it, `documents` who may read its metadata.

    None: nobody knows, so nobody but the mounting user may.
    """

    directory: Owner | None = None
    documents: Owner | None = None

    @property
    def metadata(self) -> Owner | None:
        """Who may do both: look into it and read its metadata."""
        return restricted(self.documents, entered(self.directory))

    @property
    def is_plain(self) -> bool:
        """Whether all who may list the directory may read the metadata as well."""
        found = self.metadata
        return self.directory is not None and found is not None and not self.directory.mode & READ_MODE & ~found.mode


def everybody() -> Owner:
    """Of what has no owner, like an object in a bucket: who may use the mount may read it."""
    return Owner(os.getuid(), os.getgid(), READ_MODE)


def searchable(owner: Owner | None) -> Owner | None:
    """Of a file that is shown as a directory: who may read it may look into it."""
    return None if owner is None else owner._replace(mode=owner.mode & READ_MODE | (owner.mode & READ_MODE) >> 2)


def entered(owner: Owner | None) -> Owner | None:
    """Of a directory: whom it lets pass may read what is in it, as far as that lets them."""
    return None if owner is None else owner._replace(mode=(owner.mode & 0o111) * 5)


def restricted(first: Owner | None, *others: Owner | None) -> Owner | None:
    """Whom all of these let read: never wider than any of them, narrower where owners differ."""
    found = first
    for other in others:
        if found is None or other is None:
            return None
        if found[:2] == other[:2]:
            mode = found.mode & other.mode
        else:  # somebody may be "owner" here and "others" there: what every class of the other object may do is safe
            common = other.mode & other.mode >> 3 & other.mode >> 6 & 0o7
            mode = found.mode & (common | common << 3 | common << 6)
        found = found._replace(mode=mode)
    return found
