"""`fsbridge tree`: the files that a mount would show, as a drawing. Not here: the tree (`unmounted/__init__.py`)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments
from fsbridge.commands.arguments import Parser
from fsbridge.commands.output import show
from fsbridge.commands.sources import Problems, Trees, describe_target, read

if TYPE_CHECKING:
    from fsbridge.unmounted import Listed, VirtualTree


def make_parser(program: str) -> Parser:
    """Return the parser of `tree`."""
    parser = Parser(
        prog=program,
        description="Draw the tree of files that a mount of SOURCE would show.",
        epilog="exit codes: 0 all is shown; 1 wrong usage, no such store, or something cannot be read; 8 interrupted",
    )
    arguments.add_place(parser)
    parser.add_argument("-d", action="store_true", dest="directories", help="show directories only")
    parser.add_argument(
        "-L", type=types.positive, dest="depth", metavar="DEPTH", help="show at most DEPTH levels of directories"
    )
    arguments.add_reading(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Draw the trees that `argv` names."""
    return read(make_parser(program), argv, _draw)


def _draw(args: argparse.Namespace, trees: Trees, problems: Problems) -> None:
    from fsbridge.errors import printable

    tree, path = trees.at(args.place)
    with problems.at(path or args.place):
        attrs = tree.stat(path)
        show(printable(args.place))
        if attrs.kind == "directory":
            _draw_directory(args, tree, path, "", 1, problems)


def _draw_directory(
    args: argparse.Namespace, tree: VirtualTree, path: str, indent: str, depth: int, problems: Problems
) -> None:
    """Draw the members of a directory. Each is drawn when the next one is known, because the last one looks different."""
    if args.depth is not None and depth > args.depth:
        return
    before: Listed | None = None
    with problems.at(path or "/"):
        for member in tree.list(path):
            if args.directories and member.attrs.kind != "directory":
                continue
            if before is not None:
                _draw_member(args, tree, path, before, indent, "├── ", "│   ", depth, problems)
            before = member
    if before is not None:
        _draw_member(args, tree, path, before, indent, "└── ", "    ", depth, problems)


def _draw_member(
    args: argparse.Namespace,
    tree: VirtualTree,
    path: str,
    member: Listed,
    indent: str,
    branch: str,
    beside: str,
    depth: int,
    problems: Problems,
) -> None:
    from fsbridge.errors import printable

    place = f"{path}/{member.name}" if path else member.name
    target = describe_target(tree, place, member.attrs, problems)
    show(printable(f"{indent}{branch}{member.name}{target}"))
    if member.attrs.kind == "directory":
        _draw_directory(args, tree, place, indent + beside, depth + 1, problems)
