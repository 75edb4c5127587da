"""An HDF5 file as a model source: groups, links, and the way in, `open_hdf5`. Not here: arrays (`arrays.py`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from fsbridge.config import Config
from fsbridge.errors import AccessDenied, CorruptData, NotFound, Unsupported
from fsbridge.formats.hdf5 import answers
from fsbridge.formats.hdf5.arrays import HDF5Array
from fsbridge.formats.hdf5.file import HDF5File
from fsbridge.model import JSON, Child, Link

MAX_FILL = 1 << 20
"""Bytes of one fill value."""


def open_hdf5(path: str, config: Config) -> HDF5Source:
    """The HDF5 file at `path`; NotFound, AccessDenied, or CorruptData when it is none."""
    file = HDF5File(path, config)
    try:
        return HDF5Source(file)
    except BaseException:
        file.close()
        raise


class HDF5Source:
    """One opened file."""

    format = "hdf5"

    def __init__(self, file: HDF5File) -> None:
        self.file = file
        self.root = HDF5Group(file, ())
        self.root.attributes()

    def format_at(self, path: Sequence[str]) -> str:
        return self.format

    def close(self) -> None:
        """End the child process and close the file."""
        self.file.close()


class HDF5Group:
    """A group, by its path of hard links; the first `above` components of it are not in the mount (external links)."""

    kind: ClassVar[Literal["group"]] = "group"

    def __init__(self, file: HDF5File, path: tuple[str, ...], above: int = 0) -> None:
        self.file = file
        self.path = path
        self._above = above

    @property
    def mtime_ns(self) -> int:
        return self.file.current().stat.mtime_ns

    def attributes(self) -> Mapping[str, JSON]:
        answer, _, _ = self.file.ask({"op": "attributes", "path": list(self.path)})
        return answers.attributes(answer)

    def native(self) -> Mapping[str, JSON]:
        return {}

    def children(self) -> Iterator[Child]:
        """Members by name; committed types, and links and data that lead out of the file, are left out."""
        start: int | None = 0
        while start is not None:
            answer, _, stat = self.file.ask({"op": "list", "path": list(self.path), "start": start})
            found, following = answers.members(answer)
            for member in found:
                child = self._listed(member, stat.mtime_ns)
                if child is not None:
                    yield child
            if following is not None and following <= start:
                raise CorruptData(f"{self.place}: endless listing")
            start = following

    def _listed(self, member: answers.Member, mtime_ns: int) -> Child | None:
        if member.kind == "soft":
            link = self._soft_link(member.name, str(member.target))
            return None if link is None else Child(member.name, mtime_ns, link.target)
        if member.kind == "object":
            return Child(member.name, mtime_ns)
        if member.kind == "external" and self._allowed_file(member.target) is not None:
            return Child(member.name, mtime_ns)
        if member.kind != "type":
            self._remark(member.name, member.kind, member.target)
        return None

    def child(self, name: str) -> HDF5Group | HDF5Array | Link:
        path = (*self.path, name)
        try:
            answer, attachments, stat = self.file.ask({"op": "node", "path": list(path)}, limit=MAX_FILL)
        except AccessDenied:
            self._remark(name, "elsewhere", None)
            raise NotFound(f"{self.place}: {name!r} has its data in another file, which is not followed") from None
        kind = answer.get("kind")
        if kind == "group":
            return HDF5Group(self.file, path, self._above)
        if kind == "dataset":
            try:
                return HDF5Array(self.file, path, answers.dataset(answer, attachments), stat)
            except (CorruptData, Unsupported) as error:
                raise error.at(f"{self.place}/{name}") from None
        if kind == "soft":
            link = self._soft_link(name, str(answers.link_target("soft", answer.get("target"))))
            if link is not None:
                return link
        if kind == "external":
            return self._external(name, answers.link_target("external", answer.get("target")))
        raise NotFound(f"{self.place}: {name!r} is no group, dataset or link to one in this file")

    @property
    def place(self) -> str:
        """File and path for messages."""
        return f"{self.file.path}:/{'/'.join(self.path)}"

    def _soft_link(self, name: str, target: str) -> Link | None:
        """The target relative to this group; None for one that no path in the mount can express.

        HDF5 knows no parent directory: a component `..` is a name like any other, which a symlink cannot say.
        """
        parts = [part for part in target.split("/") if part not in ("", ".")]
        if ".." in parts:
            self.file.remark(f"{'/'.join((*self.path, name))}: soft link to a name '..' is left out")
            return None
        if not target.startswith("/"):
            return Link("/".join(parts) or ".")
        above = self._above
        if tuple(parts[:above]) != self.path[:above]:
            self.file.remark(f"{'/'.join((*self.path, name))}: soft link to a place that is not mounted is left out")
            return None
        return Link("/".join([".."] * (len(self.path) - above) + parts[above:]) or ".")

    # ---- other files

    def _external(self, name: str, target: Any) -> HDF5Group | HDF5Array | Link:
        """What an external link leads to, when its file lies in an allowed folder."""
        path = self._allowed_file(target)
        if path is None:
            self._remark(name, "external", target)
            raise NotFound(f"{self.place}: {name!r} is a link to another file, which is not followed")
        parts = [part for part in target[1].split("/") if part not in ("", ".")]
        node: HDF5Group | HDF5Array | Link = HDF5Group(self.file.sibling(path), (), len(parts))
        for part in parts:
            if not isinstance(node, HDF5Group):
                raise NotFound(f"{self.place}: external link {name!r} leads to nothing")
            node = node.child(part)
        if isinstance(node, Link):
            raise Unsupported(f"{self.place}: external link {name!r} leads to a soft link")
        return node

    def _allowed_file(self, target: Any) -> str | None:
        path = os.path.realpath(os.path.join(os.path.dirname(self.file.path), target[0]))
        folders = (os.path.realpath(folder) for folder in self.file.config.allow_external)
        return path if any(path.startswith(folder.rstrip("/") + "/") for folder in folders) else None

    def _remark(self, name: str, kind: str, target: Any) -> None:
        what = {"external": f"external link to {target}", "elsewhere": "data in another file"}.get(kind, f"{kind} link")
        self.file.remark(f"{'/'.join((*self.path, name))}: {what} is not followed (--allow-external)")
