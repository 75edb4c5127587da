"""Stores that change between any two steps of their readers, with other steps for each seed.

    python tests/support/fuzz_states.py [--count N] [--seed S] [--kind NAME ...]

What may be seen of which step is in `state_machine.py` and `surrounded_machine.py`; the test suite runs a few examples of
each (`tests/faults/test_states.py`). A step that shows something else fails the run, with the shortest way to it.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from fuzz_kinds import fuzz_kinds, kinds_parser
from hypothesis import seed, settings
from hypothesis.stateful import RuleBasedStateMachine, get_state_machine_test
from state_machine import Changing
from surrounded_machine import FORMS, Surrounded

STEPS = 40

KINDS: Mapping[str, type[RuleBasedStateMachine]] = {
    **{form: type(f"Changing_{form}", (Changing,), {"form": form}) for form in ("zarr3", "sharded", "zarr2", "n5")},
    **{f"around-{form}": type(f"Surrounded_{form}", (Surrounded,), {"form": form}) for form in FORMS},
}
"""Machines by name; `around-...`: what lies around arrays changes."""


def run(kind: str, number: int, count: int) -> str:
    """Run examples of one machine; AssertionError with what went wrong, else a line of results."""
    limits: Any = {"deadline": None, "database": None}
    machine = get_state_machine_test(KINDS[kind], settings=settings(max_examples=count, stateful_step_count=STEPS, **limits))
    seed(number)(machine)()
    return f"states {kind:23} {count} times {STEPS} steps: all that was shown was there"


def parser() -> ArgumentParser:
    return kinds_parser("states", "Stores that change while they are read.", KINDS, 100)


if __name__ == "__main__":
    fuzz_kinds(parser(), KINDS, run)
