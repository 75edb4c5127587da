"""Docstrings in plain words: people's pronouns are for people, and a docstring begins with a subject or an imperative.

Ruff's D rules say how a docstring is laid out; this says what they cannot.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "fsbridge"

PEOPLE = re.compile(r"\b(who|whoever|whom|whose|somebody|nobody|anybody|everybody)\b", re.IGNORECASE)

FRAGMENT = re.compile(r"(Of|The same|As of|Those of|It,|By which|For which|After which|Whether)\b")

MOST_PEOPLE, MOST_FRAGMENTS = 60, 40


def docstrings() -> Iterator[tuple[Path, int, str]]:
    for module in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                yield module.relative_to(PACKAGE), node.lineno, node.value.value.strip()


def test_docstrings_say_things_plainly() -> None:
    people = [f"{path}:{line}: {text}" for path, line, text in docstrings() for _ in PEOPLE.findall(text)]
    fragments = [f"{path}:{line}: {text}" for path, line, text in docstrings() if FRAGMENT.match(text)]
    assert len(people) <= MOST_PEOPLE, "\n".join(people)
    assert len(fragments) <= MOST_FRAGMENTS, "\n".join(fragments)
