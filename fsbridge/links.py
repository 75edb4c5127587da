"""Where links of a source lead: the one place that follows them, over the model alone.

A link of the source is a symbolic link in the mount, which the kernel follows. Here it is found out in advance whether it
leads to anything. Not here: links that formats themselves replace by their targets (hdmf-zarr's, HDF5's external ones).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from fsbridge.errors import FsbridgeError, NotFound, TooDeep
from fsbridge.model import Array, Group, Link, as_array

MAX_LINKS = 40
"""Most links followed on the way to one target: the limit of Linux."""


class Target(NamedTuple):
    """What is at a path. `trail`: the names and nodes that lead to it from the root, without any link."""

    node: Group | Array
    trail: tuple[tuple[str, Group | Array], ...]
    links: int
    """Number of links that were followed."""


def follow(root: Group | Array, names: Sequence[str], target: str = "") -> Target:
    """Return what is at `target`, a path relative to the group at `names` as links have it.

    Raises NotFound if nothing is there or a link leads out of the source, TooDeep if links lead to themselves or to each
    other, and the error of a group on the way that cannot be opened.
    """
    trail: list[tuple[str, Group | Array]] = []
    pending, links = [*reversed(target.split("/")), *reversed(names)], 0
    while pending:
        part = pending.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not trail:
                raise NotFound(f"a link leads out of the store: {target}")
            trail.pop()
            continue
        here = trail[-1][1] if trail else root
        if as_array(here) is not None:
            raise NotFound(f"{part!r} is not found, because /{'/'.join(name for name, _ in trail)} is an array")
        node = cast(Group, here).child(part)
        if not isinstance(node, Link):
            trail.append((part, node))
            continue
        links += 1
        if links > MAX_LINKS:
            raise TooDeep(f"too many links in a row, more than {MAX_LINKS}: they lead to each other")
        pending += reversed(node.target.split("/"))
    return Target(trail[-1][1] if trail else root, tuple(trail), links)


def dead_end(root: Group | Array, names: Sequence[str], link: Link) -> str | None:
    """Return why a link in the group at `names` leads nowhere; None if it leads somewhere, or that cannot be found out."""
    try:
        follow(root, names, link.target)
    except NotFound as error:
        return f"a link to {link.target}, which is not there: {error}"
    except TooDeep as error:
        return f"a link to {link.target}: {error}"
    except (FsbridgeError, OSError):  # opening it raises the error
        return None
    return None
