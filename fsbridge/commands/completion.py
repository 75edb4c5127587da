"""`fsbridge completion`: scripts by which shells complete commands, options and their values. Not here: the options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from fsbridge.commands import argument_types as types
from fsbridge.commands.arguments import Parser
from fsbridge.commands.output import write
from fsbridge.formats.records import NAMES
from fsbridge.layouts import LAYOUTS
from fsbridge.layouts.files.filetypes import CHOICES

SHELLS = ("bash", "zsh", "fish")

FILES, FOLDERS = (
    ("source", "file", "log_file", "access_log"),
    ("mountpoint", "mountpoints", "folder", "spill_dir", "block_cache"),
)
"""Arguments that are paths."""


WORDS = {"layout": tuple(LAYOUTS), "files": (*CHOICES, "all"), "format": NAMES}
"""Arguments that are one of some words, or several of them."""

_LISTS: dict[str, Callable[[str], str]] = {
    "bash": lambda name: f"_fsbridge_{name}",
    "zsh": lambda name: f"({' '.join(WORDS[name])})",
}


def make_parser(program: str) -> Parser:
    """Return the parser of `completion`."""
    parser = Parser(
        prog=program,
        description="Print a script that makes SHELL complete commands, options and their values.",
        epilog="example: mkdir -p ~/.local/share/bash-completion/completions; "
        "fsbridge completion bash > ~/.local/share/bash-completion/completions/fsbridge",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Print the completion script of a shell."""
    args = make_parser(program).parse_args(argv)
    write(script(args.shell).encode())
    return 0


def script(shell: str) -> str:
    """Return the completion script for `shell`."""
    import shtab

    from fsbridge.commands import make_whole_parser

    everything = make_whole_parser()
    for own in (everything, *_list_subparsers(everything)):
        for action in own._actions:
            if action.dest in FILES or action.type is types.path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            if action.dest in FOLDERS:
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
            if action.dest in WORDS and shell in _LISTS:
                action.complete = {shell: _LISTS[shell](action.dest)}  # type: ignore[attr-defined]
    functions = "\n".join(
        f"_fsbridge_{name}() {{ compgen -W '{' '.join(words)}' -- \"$1\"; }}" for name, words in WORDS.items()
    )
    return str(shtab.complete(everything, shell, preamble={"bash": functions})) + "\n"  # type: ignore[arg-type]  # it is annotated as a text


def _list_subparsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    actions = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    parsers = [own for action in actions for own in action.choices.values()]
    return [*parsers, *(below for own in parsers for below in _list_subparsers(own))]
