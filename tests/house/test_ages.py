"""Only the kernel side and the remote store know how old an answer is: everything else keeps what it made by version."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from test_layers import MODULES, name_of, nodes

AGES = {"as_of", "listed", "oldest", "used", "carried", "SlowListing"}
"""What `asking` has to say and to ask how old an answer is."""

CLOCKS = {"monotonic", "monotonic_ns", "time", "time_ns", "perf_counter"}

KNOW_AGES = ("asking", "kernel/", "store/remote/")

AGES_BESIDES = {
    "layouts/n5/__init__": "each directory of a reversed grid needs a listing of all chunks, which have no version together",
    "threads/parallel": "threads that help with a question answer it as old as it may be",
    "threads/workers": "threads that help with a question answer it as old as it may be",
}
"""Modules besides that name an age, and why."""

CLOCKS_BESIDES = {
    "threads/deadlines": "deadlines and pauses, for all others",
    "decoded/__init__": "whether a chunk may have changed since the last look at all that are used",
    "store/local/status": "whether a further change of an object would show in its version",
    "formats/hangar/repository": "whether a further change of a file would show in its version",
    "unmounted/destinations": "whether a file of an export may still change, or was left by an export that ended",
    "mount/control": "since when a mount is there, for people",
    "commands/list": "since when a mount is there, for people",
    "commands/diagnosis": "whether the clock is right",
}
"""Modules besides that look at a clock, and why."""


def ages_named(module: Path) -> Iterator[str]:
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom) and node.module == "fsbridge.asking":
            yield from (alias.name for alias in node.names if alias.name in AGES)
        elif isinstance(node, ast.Attribute) and node.attr in AGES and ast.unparse(node.value) in ("asking", "context"):
            yield node.attr


def clocks_named(module: Path) -> Iterator[str]:
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (alias.name for alias in node.names if alias.name in CLOCKS)
        elif isinstance(node, ast.Attribute) and node.attr in CLOCKS and ast.unparse(node.value) == "time":
            yield node.attr


def test_only_the_kernel_side_and_the_remote_store_know_an_age() -> None:
    others = [module for module in MODULES if not name_of(module).startswith(KNOW_AGES)]
    assert {name_of(module) for module in others if next(ages_named(module), None)} == set(AGES_BESIDES)
    assert {name_of(module) for module in others if next(clocks_named(module), None)} == set(CLOCKS_BESIDES)
