"""`fsbridge run`: run a program with a mount that ends when the program does. Not here: mounting (`mount/private.py`).

If the kernel allows it, the program gets a mount namespace of its own with the mount: no other program sees it, no
fusermount3 is needed, and nothing is left of it, however the program ends.
Otherwise it is an ordinary mount in a private folder.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments
from fsbridge.commands.arguments import USAGE, Parser
from fsbridge.commands.sources import CommandLine
from fsbridge.errors import SetupError

HERE = "{}"
"""Placeholder of the mount's path in the program's arguments."""


def make_parser(program: str) -> Parser:
    """Return the parser of `run`."""
    parser = Parser(
        prog=program,
        usage=f"{program} SOURCE [OPTION...] -- PROGRAM [ARGUMENT...]",
        description="Run PROGRAM with a mount of SOURCE that only PROGRAM sees. The mount ends with PROGRAM. "
        "In an argument, {} stands for the path of the mount. The variable FSBRIDGE_MOUNT has this path too.",
        epilog="exit codes: that of PROGRAM, or 128 plus the number of the signal that ended it; 127 no such program; "
        "if PROGRAM was not started: 1 wrong usage or no such store; 2 system error; 32 mount failure",
    )
    parser.add_argument("source", type=types.path, metavar="SOURCE", help=arguments.SOURCE_AND_PATH)
    arguments.add_shared(parser)
    arguments.add_selection(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Mount what `argv` names, run the program in it, unmount, and end with the program's exit code."""
    words = list(argv)
    if "--" not in words:
        _, rest = make_parser(program).parse_known_args(words)  # or --help
        if rest and not rest[0].startswith("-"):
            at = words.index(rest[0])
            hint = f"write: {program} {shlex.join(words[:at])} -- {shlex.join(words[at:])}"
            raise SetupError("-- is missing before the program", hint, USAGE)
        make_parser(program).parse_args(words)
        raise SetupError("no program is given", f"write: {program} SOURCE -- PROGRAM ARGUMENT...", USAGE)
    at = words.index("--")
    line, wanted = CommandLine(make_parser(program), words[:at]), words[at + 1 :]
    if not wanted:
        raise SetupError("no program is given after --", f"write: {program} SOURCE -- PROGRAM ARGUMENT...", USAGE)
    from fsbridge.mount.private import run_with_mount

    config = line.resolve_mount(line.args.source)

    def place(path: str) -> tuple[list[str], dict[str, str]]:
        return [word.replace(HERE, path) for word in wanted], {**os.environ, "FSBRIDGE_MOUNT": path}

    return run_with_mount(config, place)
