"""The commands, a module for each: its `make_parser(program)`, and `run(program, argv)`, which returns the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from fsbridge.commands.arguments import Parser

COMMANDS = {
    "mount": "mount SOURCE on MOUNTPOINT",
    "umount": "unmount MOUNTPOINT",
    "list": "list the mounts of this machine",
    "status": "show what mounts are doing",
    "errors": "show why reads of a mount failed",
    "doctor": "find what keeps mounts from working, and what helps",
    "completion": "print a completion script for a shell",
    "install-helper": "make the type fsbridge work in mount(8) and /etc/fstab",
    "info": "show what SOURCE contains, without mounting it",
    "ls": "list the files that a mount of SOURCE shows",
    "tree": "draw the tree that a mount of SOURCE shows",
    "cat": "print files that a mount of SOURCE shows",
    "export": "write the files that a mount of SOURCE shows into a directory or object storage",
    "verify": "decode every stored chunk and list what is wrong",
    "digest": "print a checksum of each array, the same in every format",
    "diff": "show where two stores differ, whatever their formats",
    "run": "run a program with a private mount of SOURCE",
    "ctl log-level": "change how much a running mount logs",
    "ctl access-log": "make a running mount log what is read",
    "ctl config": "show the options that come from files and the environment",
    "ctl cache": "show or clear the content of a block cache",
}
"""Every command and what it does. The module of its name in `commands/`, `_` for `-`, parses its arguments and runs it.

Those that few need stand behind `ctl`, which is no part of their modules' names.
"""

CTL = "ctl"
"""The first word of commands of two words."""


class Command(Protocol):
    """What the module of each command defines."""

    def make_parser(self, program: str) -> Parser:
        """Return the parser of the command's arguments; `program` is how it was called."""

    def run(self, program: str, argv: Sequence[str]) -> int:
        """Run the command with the arguments `argv` and return its exit code."""


def command(name: str) -> Command:
    """Import the module of one of `COMMANDS`."""
    return cast(Command, import_module(f"fsbridge.commands.{name.removeprefix(f'{CTL} ').replace('-', '_')}"))


def make_whole_parser() -> Parser:
    """Return one parser of all commands: for completion and man pages, because making it imports them all."""
    parser = Parser(prog="fsbridge", description="Mount N5, Zarr and HDF5 stores as plain files.")
    parser.add_argument(
        "-V", "--version", action="store_true", help="print the version; with --verbose, also of all libraries"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    further = commands.add_parser(CTL, help="what few need", prog=f"fsbridge {CTL}")
    places = {False: commands, True: further.add_subparsers(title="commands", metavar="COMMAND")}
    for name, does in COMMANDS.items():
        own = command(name).make_parser(f"fsbridge {name}")
        word = name.removeprefix(f"{CTL} ")
        places[word != name].add_parser(word, help=does, description=own.description, parents=[own], add_help=False)
    return parser
