"""The architecture, checked on the source text: one direction of imports, one importer per library, no code from data."""

from __future__ import annotations

import ast
import itertools
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from fsbridge.codecs import table
from fsbridge.formats import records
from fsbridge.metadata import Format

PACKAGE = Path(__file__).resolve().parents[2] / "fsbridge"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = PACKAGE.parent / "tests"

LAYERS = [
    {"__main__"},
    {"cli"},
    {"commands"},
    {"mount", "unmounted"},
    {"layouts"},
    {"kernel"},
    {"formats"},
    {"decoded"},
    {"tree", "codecs", "store"},
    {"children"},
    {"links"},
    {"meaning"},
    {"model"},
    {"metadata"},
    {"config"},
    {"lru"},
    {"threads"},
    {"asking"},
    {"errors"},
    {"installing"},
]
"""From the top down. A module imports only what stands below its own layer, or belongs to its own package."""

_MODEL = {"metadata", "model"}

SEES = {
    "kernel": {"asking", "tree", "config", "errors", "decoded", "lru"},
    "layouts": _MODEL | {"meaning", "asking", "tree", "decoded", "config", "errors", "links", "lru"},
    "formats": _MODEL | {"meaning", "asking", "store", "codecs", "children", "config", "errors", "links", "lru"},
    "children": {"asking", "errors", "lru"},
    "codecs": {"errors", "installing"},
    "store": {"asking", "config", "errors", "installing", "lru"},
    "decoded": {"asking", "tree", "metadata", "model", "config", "errors"},
    "links": {"errors", "model"},
    "meaning": _MODEL,
    "model": {"metadata"},
    "metadata": {"errors"},
    "tree": {"errors"},
    "cli": {"commands", "errors", "mount"},
    "unmounted": _MODEL | {"meaning", "decoded", "config", "errors", "formats", "layouts", "links", "lru", "store", "tree"},
}
"""The seams: what a part may import at all. The kernel side knows the tree only, layouts the model, formats neither."""

SEES_BESIDES = {
    "layouts/files/h5": {"children"},
    "codecs/confined": {"asking", "children"},
    "unmounted": {"children"},
}
"""What a folder of a part may import, too, and those in it: confined processes write HDF5 files, decode, and end."""

SHARED_BY_FORMATS = {
    *("keyed", "format", "records", "shared"),
    *("strict_json", "documents", "lazy_metadata", "dtypes", "small"),
}
"""What any format may import of its siblings; every other format is an opener that is handed in."""

OPENERS = {"registry", "detect", "open", "collection"}
"""Modules of `formats/` that know them all, or nothing but how to recognise them."""

IMPORTERS = {
    "pyfuse3": {"kernel", "mount"},
    "trio": {"kernel", "mount"},
    "numcodecs": {"codecs"},
    "deflate": {"codecs"},
    **{library.module: {"codecs"} for library in table.libraries()},
    "fsspec": {"unmounted/filesystem"},
    "tqdm": {"commands/output"},
    "distributed": {"unmounted/cluster"},
    "obstore": {"store/remote/library", "store/remote/backends", "store/remote/client"},
    "h5py": {"formats/hdf5/child", "layouts/files/h5/child"},
    "lmdb": {"formats/hangar/lmdb"},
    "pickle": set(),
}
"""Which part may import a library; a name is a module, a package, or everything below it."""


OPTIONAL = {*(library.module for library in table.libraries()), "boto3", "distributed"} - {table.HDF5PLUGIN.name}
"""Libraries of an extra that are imported; HDF5 finds its plug-ins by itself."""


def part(module: Path) -> str:
    """The layer's name of a source file: its first path component below the package."""
    return module.relative_to(PACKAGE).with_suffix("").parts[0]


@cache
def nodes(module: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(module.read_text(), str(module))))


@cache
def imports(module: Path) -> tuple[tuple[str, int], ...]:
    """Dotted names of everything `module` imports at any level, with the line; imports for type checking count too."""
    return tuple(_imports(module))


def _imports(module: Path) -> Iterator[tuple[str, int]]:
    package = ("fsbridge", *module.relative_to(PACKAGE).parent.parts)
    for node in nodes(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            start = ".".join(filter(None, [base, node.module]))
            for alias in node.names:
                yield f"{start}.{alias.name}", node.lineno


def imports_of_own(module: Path) -> set[str]:
    """Return the modules of fsbridge that `module` imports names from."""
    from_modules = {node.module for node in nodes(module) if isinstance(node, ast.ImportFrom) and node.module}
    return {name for name in from_modules if name.startswith("fsbridge")}


def direct(node: ast.stmt) -> Iterator[tuple[str, int]]:
    """Return what a statement imports when its module is imported."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, node.lineno) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield f"{node.module}", node.lineno


def rank(name: str) -> int:
    """Position of a layer, the top one first."""
    for position, layer in enumerate(LAYERS):
        if name in layer:
            return position
    raise AssertionError(f"{name} has no layer: give it one in LAYERS")


def name_of(module: Path) -> str:
    return str(module.relative_to(PACKAGE).with_suffix(""))


def test_imports_go_down() -> None:
    for module in MODULES:
        own = part(module)
        if own == "__init__":
            first = {alias for node in ast.parse(module.read_text()).body for alias, _ in direct(node)}
            assert not [name for name in first if name.startswith("fsbridge")], "children import it: only what is asked for"
            continue
        for name, line in imports(module):
            root, _, rest = name.partition(".")
            if root != "fsbridge" or not rest:
                continue
            other = rest.split(".")[0]
            if other == own or other.startswith("__version__"):
                continue
            where = f"{name_of(module)}:{line} imports {name}"
            assert rank(own) < rank(other), f"{where}: that is upward or sideways"
            besides = {part for folder, seen in SEES_BESIDES.items() if where.startswith(f"{folder}/") for part in seen}
            assert other in {"threads"} | SEES.get(own, {other}) | besides, (
                f"{where}: the seam between them is another layer"
            )


def dotted(module: Path) -> str:
    parts = ("fsbridge", *module.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_import_circles() -> None:
    """Imports for type checking and inside functions count, too: modules that need each other are one, or want a third."""
    modules = {dotted(module) for module in MODULES}
    graph = {
        dotted(module): {name if name in modules else name.rpartition(".")[0] for name, _ in imports(module)} & modules
        for module in MODULES
    }
    TopologicalSorter(graph).prepare()  # CycleError names them


def test_formats_know_no_sibling() -> None:
    for module in sorted((PACKAGE / "formats").rglob("*.py")):
        own = module.relative_to(PACKAGE / "formats").with_suffix("").parts[0]
        if own in OPENERS:
            continue
        for name, line in imports(module):
            parts = name.split(".")
            if parts[:2] == ["fsbridge", "formats"] and len(parts) > 2:
                assert parts[2] in {own, *SHARED_BY_FORMATS}, f"{name_of(module)}:{line} imports {name}: hand in an opener"


def test_no_module_compares_names_of_formats() -> None:
    """A new format would land on one side or the other by chance: what it is, is in its record."""
    names = {format.name for format in vars(records).values() if isinstance(format, Format)}
    assert {"n5", "hdf5", "collection"} <= names
    for module in MODULES:
        if part(module) in {"layouts", "decoded", "mount", "model", "kernel"} or module.parent.name == "formats":
            for node in nodes(module):
                if not isinstance(node, ast.Compare):
                    continue
                sides = [side.elts if isinstance(side, ast.Tuple | ast.Set) else [side] for side in node.comparators]
                values = list(itertools.chain.from_iterable(sides))
                found = [one.value for one in values if isinstance(one, ast.Constant) and one.value in names]
                assert not found, f"{name_of(module)}:{node.lineno} compares with {found}"


@pytest.mark.parametrize("kind", ["local", "remote", "zip"])
def test_each_kind_of_store_knows_no_other(kind: str) -> None:
    for module in sorted((PACKAGE / "store" / kind).glob("*.py")):
        for name, line in imports(module):
            parts = name.split(".")
            known = parts[:2] != ["fsbridge", "store"] or parts[2] not in {"local", "remote", "zip"} - {kind}
            assert known, f"{name_of(module)}:{line} imports {name}"


def test_what_previews_are_made_with_knows_no_file_types() -> None:
    """The records of the file types import it, and must not be needed by it."""
    for module in sorted((PACKAGE / "layouts" / "files" / "looks" / "previews").glob("*.py")):
        for name, line in imports(module):
            assert "filetypes" not in name.split("."), f"{name_of(module)}:{line} imports {name}"


def test_each_library_has_its_place() -> None:
    for module in MODULES:
        for name, line in imports(module):
            allowed = IMPORTERS.get(name.split(".")[0])
            here = name_of(module)
            if allowed is not None:
                assert any(here == place or here.startswith(f"{place}/") for place in allowed), (
                    f"{here}:{line} imports {name}"
                )


def test_the_plain_install_has_every_library_but_the_optional_codecs() -> None:
    """All that docs/formats.md names is read without any extra."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    plain = {re.split("[.>=]", line)[0].replace("-", "_") for line in project["dependencies"]}
    imported = {name.split(".")[0] for module in MODULES for name, _ in imports(module)}
    own = {"fsbridge", "compression"}  # `compression` is in the standard library of Python 3.14
    assert imported - sys.stdlib_module_names - own - plain == OPTIONAL


def test_p5_no_code_from_data() -> None:
    """P5: no registry look-ups, nothing that unpickles, evaluates or imports by a name that came from outside."""
    for module in MODULES:
        for node in nodes(module):
            if isinstance(node, ast.Attribute):
                assert node.attr not in {"get_codec", "entry_points", "import_module", "allow_pickle"}, (
                    f"{name_of(module)}:{node.lineno}"
                )
            if isinstance(node, ast.ImportFrom) and node.module == "importlib" and node.names[0].name == "import_module":
                assert name_of(module) in {"commands/__init__", "codecs/table", "mount/loading"}, (
                    f"{name_of(module)}:{node.lineno}: only names of a table, or of files of fsbridge, are imported"
                )
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec", "__import__", "get_codec"}, f"{name_of(module)}:{node.lineno}"


def test_p5_modules_of_decoders_are_imported_by_names_in_the_text_of_the_table() -> None:
    calls = [node for node in nodes(PACKAGE / "codecs" / "table.py") if isinstance(node, ast.Call)]
    named = [node.args for node in calls if isinstance(node.func, ast.Name) and node.func.id == "_load"]
    assert len(named) > 30
    assert all(isinstance(name, ast.Constant) for (name,) in named)
    assert [ast.unparse(node) for node in calls if "import_module" in ast.unparse(node.func)] == [
        "import_module(f'fsbridge.codecs.{name}')"
    ]


def test_the_extra_of_each_library_installs_it() -> None:
    extras = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for library, codecs in table.libraries().items():
        needed = " ".join(extras[library.extra])
        assert re.search(rf"\b{library.name}\b", needed), f"{codecs[0].name} needs {library.name}"


def test_modules_say_what_they_are() -> None:
    for module in MODULES:
        assert ast.get_docstring(ast.parse(module.read_text())), f"{name_of(module)} must begin by saying what it is"


def test_large_modules_and_hubs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Lists modules of more than 600 lines, and those that import more than 15, for people to judge: it fails for none."""
    sizes = {name_of(module): len(module.read_text().splitlines()) for module in MODULES}
    hubs = {name_of(module): len(imports_of_own(module)) for module in MODULES}
    with capsys.disabled():
        for name in sizes:
            if sizes[name] > 600 or hubs[name] > 15:
                print(f"\nlarge: fsbridge/{name}.py has {sizes[name]} lines and imports {hubs[name]} modules", end="")


def test_modules_that_are_named_exist() -> None:
    """Each module says where what it is not is to be found: a module beside it, or in a folder above."""
    for module in MODULES:
        folders = [folder for folder in module.parents if folder.is_relative_to(PACKAGE)]
        for name in re.findall(r"`([a-z0-9_/]+\.py)`", module.read_text()):
            assert any((folder / name).exists() for folder in folders), f"{name_of(module)} names {name}"


def test_unit_tests_lie_where_their_modules_do_and_have_their_names() -> None:
    def is_of_a_module(test: Path) -> bool:
        folder = PACKAGE / test.parent.relative_to(TESTS / "unit")
        return test.stem.removeprefix("test_") in {folder.name, *(path.stem for path in folder.iterdir())}

    assert [test for test in sorted((TESTS / "unit").rglob("test_*.py")) if not is_of_a_module(test)] == []
