"""What the checks against other people's programs and servers have in common: their options, and how they end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


class Skipped(Exception):
    """A program or server that cannot be run here; the text says why."""


def told(skipped: Sequence[str], wrong: Sequence[str]) -> bool:
    """Print what was not checked and what is wrong; whether nothing is."""
    for line in skipped:
        print(f"skipped {line}")
    for line in wrong:
        print(f"WRONG {line}", file=sys.stderr)
    return not wrong


def main(name: str, description: str | None, subjects: str, check: Callable[[list[str], Path, bool], bool]) -> int:
    """Run `check(names, folder, install)` as the command line says; the exit code. `subjects`: what the names are of."""
    parser = argparse.ArgumentParser(prog=f"{name}-check", description=description)
    parser.add_argument(
        f"--{subjects}",
        dest="names",
        default="",
        metavar="NAME,...",
        help=f"only {subjects} named like one of these",
    )
    parser.add_argument("--no-install", action="store_true", help="skip what is not installed")
    parser.add_argument("--folder", type=Path, default=Path(f".venv/{name}"), help=f"where {subjects} are installed")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    return 0 if check([each for each in args.names.split(",") if each], args.folder.resolve(), not args.no_install) else 1
