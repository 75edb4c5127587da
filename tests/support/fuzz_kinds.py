"""The command of a fuzzer: its options, a line of results for each kind of store, and a process of its own for each."""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterable

from paths import ROOT


def kinds_parser(name: str, description: str, kinds: Iterable[str], count: int) -> argparse.ArgumentParser:
    """Options of a fuzzer; `count`: how many times it fuzzes each kind unless it is told."""
    parser = argparse.ArgumentParser(f"scripts/fuzz {name}", description=description)
    parser.add_argument("--count", type=int, default=count, help="examples of each kind (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="extend", nargs="+", choices=kinds, metavar="NAME", help=f"of {', '.join(kinds)}")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser


def fuzz_kinds(
    parser: argparse.ArgumentParser,
    kinds: Iterable[str],
    fuzz: Callable[[str, int, int], str],
    child: Callable[[str, int, int], None] | None = None,
) -> None:
    """Print what `fuzz` says of each kind; in the processes of `run_child`, run `child` instead."""
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for kind in options.kind or kinds:
        if options.child and child is not None:
            child(kind, options.seed, options.count)
        else:
            print(fuzz(kind, options.seed, options.count), flush=True)


def run_child(program: str, kind: str, seed: int, count: int) -> str:
    """Run a fuzzer in a process of its own; AssertionError with what went wrong, else its line of results."""
    command = [sys.executable, program, "--child", "--kind", kind, "--seed", str(seed), "--count", str(count)]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests" / "support"))),
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{kind}: exit status {done.returncode}\n{done.stderr[-4000:]}"
    return done.stdout.strip()
