"""File names of a group's members, escaped where the layout's documents have the same names. Pure.

Not here: names that no file system can show (`tree.escape`), names of the files of whole arrays (`files/names.py`).
"""

from __future__ import annotations

from fsbridge.errors import NotFound
from fsbridge.tree import escape, unescape


def file_name(name: str, taken: frozenset[bytes]) -> bytes:
    """Return a member's file name. If a document has `taken` the name, its first byte is escaped. Raises NameTooLong."""
    escaped = escape(name)
    return b"%%%02X" % escaped[0] + escaped[1:] if escaped in taken else escaped


def model_name(name: bytes, taken: frozenset[bytes]) -> str:
    """The member's name behind a file name; NotFound when there can be none."""
    for document in taken:
        if name == b"%%%02X" % document[0] + document[1:]:
            return document.decode()
    found = None if name in taken else unescape(name)
    if found is None:
        raise NotFound(f"{name!r} is the name of no member")
    return found


def link_target(target: str, taken: frozenset[bytes]) -> bytes:
    """Convert the relative path of a link in the model to a relative path of files in the mount."""
    return b"/".join(part.encode() if part in ("..", ".") else file_name(part, taken) for part in target.split("/"))
