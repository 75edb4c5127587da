"""Wrappers, checked on the source text: a default of a contract must not hide what the wrapped object can do."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "fsbridge"


@cache
def classes() -> dict[str, ast.ClassDef]:
    """The classes of the package, by name."""
    trees = [ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))]
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}


def bases(node: ast.ClassDef) -> list[str]:
    return [base.id for base in node.bases if isinstance(base, ast.Name)]


def members(node: ast.ClassDef) -> set[str]:
    """The public names that a class itself defines, fields and attributes included."""
    names = set()
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef):
            names.add(part.name)
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.value is None:
            names.add(part.target.id)
    return {name for name in names if not name.startswith("_")}


CONTRACTS = ("Group", "Array", "Chunks", "Source", "Store", "Directory", "File", "Handle")
"""Not `Decoder`: one that is made of another cannot do what that one can."""


def demanded(contract: str) -> set[str]:
    """All that a contract has, with what it takes from other classes."""
    node = classes()[contract]
    return members(node).union(*(demanded(base) for base in bases(node) if base in classes()))


def wrapped(node: ast.ClassDef) -> str | None:
    """The contract of a class that is given another object of the same contract."""
    fields = [part.annotation for part in node.body if isinstance(part, ast.AnnAssign)]
    makers = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
    given = [argument.annotation for maker in makers for argument in maker.args.args]
    names = {annotation.id for annotation in fields + given if isinstance(annotation, ast.Name)}
    return next((name for name in bases(node) if name in CONTRACTS and name in names), None)


WRAPPERS = [(name, contract) for name, node in classes().items() if (contract := wrapped(node)) is not None]


@pytest.mark.parametrize(("name", "contract"), WRAPPERS)
def test_a_wrapper_answers_every_method_of_its_contract(name: str, contract: str) -> None:
    assert demanded(contract) - members(classes()[name]) == set()


def test_wrappers_and_what_they_must_answer_are_found() -> None:
    assert {"SelectedGroup", "SelectedSource"} <= {name for name, _ in WRAPPERS}
    assert {"children", "whole_file", "skipped", "mtime_ns"} <= demanded("Group")
