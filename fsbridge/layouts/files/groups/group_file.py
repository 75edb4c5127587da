"""`GroupFile`: all that is known of one kind of file of a group, in one record.

Not here: the kinds themselves (one module for each), the table of them (`group_files.py`), files of arrays
(`filetypes/filetype.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fsbridge.errors import FsbridgeError, is_lasting
from fsbridge.layouts.files.groups.surroundings import OpenGroup
from fsbridge.layouts.files.looks.rows import SeenMembers
from fsbridge.model import Group
from fsbridge.tree import AnyNode, Attrs, Entry, Ready


def every(group: Group) -> bool:
    """Return True, because every group has the file."""
    return True


@dataclass(frozen=True, slots=True)
class GroupFile:
    """A kind of file of a group. A new one is a module that exports a record like this, and a line in `GROUP_FILES`.

    `suffix`: follows the group's name and a dot. `named`: if False, it is the whole name.
    `aliases`: other suffixes of the same file.
    `inside`: the file lies in the group's directory; else beside it. The root's files all lie in the root.
    `root_name`: what the root's file is called in a listing; None: it is called after the store.
    `node`: returns the file of a group; NotFound if it has none.
    `of_rows`: returns the same file, made of the members that a listing has come across; None: it shows no members.
    `applies`: whether attributes and names of members say that a group has the file. Opens none of them.
    `wanted`: the value of `--files` with which a listing shows the file; empty: any; None: it only opens by its name.
    `opened`: listings open the file, because only that tells whether a group has it, or its size is known at once.
    """

    suffix: str
    node: Callable[[OpenGroup], AnyNode]
    applies: Callable[[Group], bool] = every
    wanted: str | None = None
    named: bool = True
    inside: bool = False
    root_name: str | None = None
    aliases: tuple[str, ...] = ()
    opened: bool = False
    of_rows: Callable[[OpenGroup, SeenMembers], AnyNode] | None = None

    def make_name(self, group: str, root: bool = False) -> str:
        """Return the name of the file in a listing. `group`: the name of the group; `root`: the group is the root."""
        if root and self.root_name is not None:
            return self.root_name
        return f"{group}.{self.suffix}" if self.named else self.suffix

    def is_called(self, name: str, groups: Iterable[str], root: bool) -> bool:
        """True if `name`, looked up in the group's own directory, is this file.

        `groups`: the names that the group may have.
        """
        if not (root or self.inside):
            return False
        if not self.named or (root and name == self.root_name):
            return name in (self.suffix, self.root_name)
        return any(name == f"{group}.{suffix}" for group in groups for suffix in (self.suffix, *self.aliases))

    def is_listed(self, wanted: Sequence[str]) -> bool:
        """True if listings with `--files wanted` show the file."""
        return self.wanted is not None and (not self.wanted or self.wanted in wanted)

    def entry(self, group: Group, name: bytes, mtime_ns: int, opener: Callable[[], AnyNode]) -> Entry | None:
        """Return the file as a member of a listing; None if the group has no such file."""
        if not self.opened:
            return Entry(name, Attrs("file", None, mtime_ns), opener) if self.applies(group) else None
        try:
            node = opener()
        except FsbridgeError as error:
            if not is_lasting(error):
                raise
            return None  # the group has none, or what the file shows is damaged
        return Entry(name, node.attrs(), Ready(node), node.version)
