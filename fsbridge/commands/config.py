"""`fsbridge ctl config`: which options come from files and the environment, and from where.

Not here: reading those (`settings.py`), which of them a command takes (`sources.py`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from fsbridge.commands import mount
from fsbridge.commands.arguments import Parser
from fsbridge.commands.output import show
from fsbridge.commands.settings import MACHINE, Setting, find_user_file, read_settings
from fsbridge.errors import printable


def make_parser(program: str) -> Parser:
    """Return the parser of `config`."""
    parser = Parser(
        prog=program,
        description="Print the options that come from files and the environment, and where each is set. mount uses all of "
        "them. Other commands use those that they share with mount: info, ls, tree, cat, export, verify, digest, diff, run, "
        "doctor.",
        epilog=f"files: {MACHINE}, ~/.config/fsbridge/config.toml\nexample: fsbridge ctl config brain",
    )
    parser.add_argument("source", metavar="SOURCE", nargs="?", help="the source that the options are for (default: any)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Print the settings in force."""
    args = make_parser(program).parse_args(argv)
    choices = read_settings(mount.make_parser("fsbridge mount"), args.source)
    rows: list[Setting] = [*([choices.source] if choices.source else []), *choices.options.values()]
    if args.json:
        show(json.dumps([setting._asdict() for setting in rows], indent=2))
        return 0
    for option, value, origin in rows:
        shown = str(value).lower() if isinstance(value, bool) else ", ".join(value) if isinstance(value, list) else value
        show(f"{option} = {printable(shown)}    ({printable(origin)})")
    if not rows:
        show(f"nothing is set in {MACHINE}, {printable(find_user_file())} and FSBRIDGE_...")
    return 0
