"""Plain words: people's pronouns are for people, and a docstring begins with a subject or an imperative.

Ruff's D rules say how a docstring is laid out; this says what they cannot.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PEOPLE = re.compile(r"(?<![a-z])(who|whoever|whom|whose|somebody|nobody|anybody|everybody)(?![a-z])", re.IGNORECASE)
"""Also as parts of names."""

FRAGMENT = re.compile(r"(Of|The same|As of|Those of|It,|By which|For which|After which|Whether)\b")


def modules(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if path != Path(__file__)]


def docstrings(paths: list[Path]) -> Iterator[str]:
    for path in paths:
        for node in statements(ast.parse(path.read_text())):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.value.value.strip()}"


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements below `node`. `ast.walk` takes ten times as long, because it enters expressions too."""
    for child in getattr(node, "body", ()):
        yield child
        yield from statements(child)


@pytest.mark.parametrize(
    ("folders", "most_people", "most_fragments"), [(["fsbridge"], 60, 40), (["tests", "scripts"], 35, 10)]
)
def test_docstrings_say_things_plainly(folders: list[str], most_people: int, most_fragments: int) -> None:
    said = list(docstrings(modules(*folders)))
    people = [line for text in said for line in matching_lines(text)]
    fragments = [text.splitlines()[0] for text in said if FRAGMENT.match(text.split(": ", 1)[1])]
    assert len(people) <= most_people, too_many(people, most_people)
    assert len(fragments) <= most_fragments, too_many(fragments, most_fragments)


def matching_lines(text: str) -> Iterator[str]:
    """The lines of a docstring that say `PEOPLE`, each as often as it does, with the docstring's place."""
    place, said = text.split(": ", 1)
    return (f"{place}: {line.strip()}" for line in said.splitlines() for _ in PEOPLE.findall(line))


def too_many(lines: list[str], most: int) -> str:
    return "\n".join([f"{len(lines) - most} more than the {most} that are allowed; say one of these otherwise:", *lines])


def test_the_message_has_a_line_for_each_word_and_not_whole_docstrings() -> None:
    lines = list(matching_lines("a.py:7: Ask them.\n\nNot here: who asked, or whom.\nMore."))
    assert lines == ["a.py:7: Not here: who asked, or whom."] * 2
    assert too_many(lines, 1).splitlines() == ["1 more than the 1 that are allowed; say one of these otherwise:", *lines]


def test_tests_and_scripts_call_nothing_but_people_who() -> None:
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in modules("tests", "scripts")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if PEOPLE.search(line)
    ]
    assert len(lines) <= 35, too_many(lines, 35)


REPLACED = {
    "far": "remote",
    "foresee": "prefetch",
    "revisit": "prefetch",
    "touched": "used",
    "told": "what it is",
    "serial": "version",
    "stamp": "version",
}
"""Words that once stood for others of docs/architecture.md."""


def test_one_thing_has_one_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}: say {REPLACED[word]}"
        for path in modules("fsbridge")
        for node in ast.walk(ast.parse(path.read_text()))
        for line, name in names(node)
        for word in name.strip("_").split("_")
        if word in REPLACED
    ]
    assert found == []


def names(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of something that a node names."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.lineno, node.name
    elif isinstance(node, ast.arg):
        yield node.lineno, node.arg
    elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
