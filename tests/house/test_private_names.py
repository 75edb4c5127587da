"""A private name of the package stands in the tests of its own module only: all others would break when it is renamed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from paths import ROOT, TESTS

PRIVATE = re.compile(r"_[a-zA-Z]\w*")


def defined_names(tree: ast.Module) -> Iterator[str]:
    """Yield what a module defines: functions, classes, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def used_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of attributes, of what is imported, and of what is got or set by its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("getattr", "setattr", "delattr"):
            texts = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            yield from ((node.lineno, text.rpartition(".")[2]) for text in texts)


def mirrored(test: Path) -> set[Path]:
    """Return the modules that a file of `tests/unit` is about, below the package."""
    room, stem = test.parent.relative_to(TESTS / "unit"), test.stem.removeprefix("test_")
    return {room / f"{stem}.py", room / stem / "__init__.py"} | ({room / "__init__.py"} if stem == room.name else set())


def test_private_names_stand_in_the_tests_of_their_own_module_only() -> None:
    package = ROOT / "fsbridge"
    modules: dict[str, set[Path]] = {}
    for path in package.rglob("*.py"):
        for name in defined_names(ast.parse(path.read_text())):
            modules.setdefault(name, set()).add(path.relative_to(package))
    wrong = []
    for test in sorted(TESTS.rglob("*.py")):
        tree = ast.parse(test.read_text())
        own = set(defined_names(tree))
        allowed = mirrored(test) if test.is_relative_to(TESTS / "unit") else set()
        for line, name in used_names(tree):
            if not PRIVATE.fullmatch(name) or name in own or name not in modules:
                continue  # a library's, or the test's own
            if modules[name].isdisjoint(allowed):
                wrong.append(f"{test.relative_to(TESTS)}:{line}: {name}")
    assert not wrong, "\n".join(["a private name; make it public, or test it where its module is tested:", *wrong])
