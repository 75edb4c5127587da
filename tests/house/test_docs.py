"""The documents are true: sessions print what they show, tables are the parser's, error texts exist, links lead on."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest
from documents import PAGES, anchors, blocks, matches, programs, prose, section, steps, target_of
from forking import environment
from mounting import command, mounted
from paths import ROOT, TESTS

from fsbridge import cli, commands, errors
from fsbridge.commands import arguments, mount
from fsbridge.formats.registry import FORMATS
from fsbridge.layouts import LAYOUTS
from fsbridge.layouts.files.filetypes import FILE_TYPES
from fsbridge.mount import preflight

SOURCES = re.sub(r'"\s*\n\s*f?"', "", "\n".join(path.read_text() for path in (ROOT / "fsbridge").rglob("*.py")))

SYSTEM_TEXTS = {
    "Permission denied",
    "Transport endpoint is not connected",
    "Device or resource busy",
    "option allow_other only allowed if 'user_allow_other' is set",
    "Input/output error",
    "Operation not supported",
    "File too large",
    "Connection timed out",
    "Cannot allocate memory",
    "Stale file handle",
    "Too many open files",
    "Package fuse3 was not found in the pkg-config search path",
}
"""Words of the kernel, libfuse and pkg-config."""

SESSIONS = [page for page, text in PAGES.items() if blocks(text, "console")]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demonstration's store."""
    folder = tmp_path_factory.mktemp("store")
    subprocess.run([sys.executable, ROOT / "scripts/demo_store.py", "write", "brain.n5"], cwd=folder, check=True)
    return folder / "brain.n5"


@pytest.fixture
def bench(store: Path, tmp_path: Path) -> Iterator[Path]:
    """A directory with a copy of the demonstration's store in it, and nothing mounted afterwards."""
    shutil.copytree(store, tmp_path / "brain.n5")
    yield tmp_path
    left = [point for point in (tmp_path / "mnt", *tmp_path.glob("mnt/*")) if mounted(point)]
    for point in reversed(left):
        subprocess.run(["fusermount3", "-uz", point], check=True)
    assert left == [], "the session left mounts behind"


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which `fsbridge` and `python3` are those under test."""
    programs = tmp_path_factory.mktemp("bin")
    for name, words in {"fsbridge": command(), "python3": [sys.executable]}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (programs / name).chmod(0o755)
    return {**environment(), "PATH": f"{programs}:{os.environ['PATH']}"}


def lineage(name: str, bodies: dict[str, str]) -> set[str]:
    """Return a class and the classes that it is made from; `bodies` has what follows each class's name."""
    bases = set(re.findall(r"\w+", bodies[name].partition(":\n")[0])) & set(bodies)
    return {name}.union(*(lineage(base, bodies) for base in bases))


@pytest.mark.parametrize("page", SESSIONS)
def test_sessions_print_what_they_show(page: str, bench: Path, env: dict[str, str]) -> None:
    for name, program in programs(PAGES[page]).items():
        (bench / name).write_text(program)
    for session in blocks(PAGES[page], "console"):
        for line, expected in steps(session):
            shell = ["bash", "-c", line]
            done = subprocess.run(shell, cwd=bench, env=env, capture_output=True, text=True, timeout=60, input="")
            printed = done.stdout + done.stderr
            assert matches(expected, printed), f"{page}: $ {line}\n{printed}\n--- the page shows ---\n{expected}"


def test_python_examples_run(bench: Path) -> None:
    local = [block for block in blocks(PAGES["docs/python.md"], "python") if "s3://" not in block]
    assert len(local) == 3
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(local)], cwd=bench, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_tables_are_those_of_the_code() -> None:
    spec = importlib.util.spec_from_file_location("option_tables", ROOT / "scripts" / "option_tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    for page, text in PAGES.items():
        assert tables.filled(text) == text, f"{page}: run scripts/manual --tables"
    marked = re.findall(r"<!-- (codecs|commands|options: \w+) -->", "".join(PAGES.values()))
    assert sorted(marked) == sorted(tables.TABLES)


def test_options_and_commands_exist() -> None:
    known = {
        option
        for name in commands.COMMANDS
        for option in commands.command(name).make_parser(name)._option_string_actions
        if option.startswith("--")
    } | {"--version", "--verbose", "--help"}
    for page, text in PAGES.items():
        lines = re.findall(r"`(fsbridge [^`]*)`", prose(text))
        lines += re.findall(r"^(?:\$ )?(?:.*&& )?(fsbridge .*)$", "".join(blocks(text, "(?:sh|console)")), re.MULTILINE)
        for line in lines:
            word = line.split()[1]
            word = " ".join(line.split()[1:3]) if word == commands.CTL else word
            assert word in commands.COMMANDS or not re.fullmatch(r"[a-z][a-z-]{2,}", word), f"{page}: {line}"
            options = re.findall(r"(?<=[ \[])--[a-z][a-z0-9-]*", line.partition(" -- ")[0])
            assert set(options) <= known, f"{page}: {line}"


def test_error_texts_exist() -> None:
    for row in re.findall(r"^\| (`.*?) \|", PAGES["docs/troubleshooting.md"], re.MULTILINE):
        for text in re.findall(r"`(.*?)`", row):
            if text not in SYSTEM_TEXTS and not text.startswith("--"):
                for piece in text.split(" ... "):
                    assert piece in SOURCES, f"fsbridge never says {piece!r}"


def test_nothing_is_to_be_installed_by_a_name_that_no_index_has() -> None:
    texts = {**PAGES, **{str(path): path.read_text() for path in (ROOT / "fsbridge").rglob("*.py")}}
    del texts["docs/decisions/distribution-name.md"]
    told = re.compile(r"pip3? install( -\S+)* ['\"]*fsbridge|PIP_PACKAGES\W+fsbridge")
    assert [name for name, text in texts.items() if told.search(text)] == []


def test_exit_codes_are_the_programs() -> None:
    text = section(PAGES["docs/mounting.md"], "Exit codes")
    documented = dict(
        re.findall(r"(\d+) (done|wrong usage|system error|interrupted|mount failure)", text.replace("\n", " "))
    )
    assert documented == {
        "0": "done",
        str(arguments.USAGE): "wrong usage",
        str(preflight.SYSTEM): "system error",
        str(cli.INTERRUPTED): "interrupted",
        str(preflight.FAILED): "mount failure",
    }


def test_mount_options_in_examples_are_known() -> None:
    names = mount.list_option_names(mount.make_parser("fsbridge mount"))
    examples = []
    for text in PAGES.values():
        examples += [line.split()[3] for block in blocks(text, "fstab") for line in block.splitlines()]
        examples += re.findall(r"^mount -t .* -o (\S+)$", text, re.MULTILINE)
    assert len(examples) >= 6
    for example in examples:
        options = [option for option in mount.split_options(example) if not option.startswith("env_file=")]
        mount.sort_options(options, names)  # raises SetupError for an unknown one


@pytest.mark.parametrize("page", ["docs/semantics.md"])
def test_each_promise_has_a_test_with_its_number(page: str) -> None:
    promises = re.findall(r"^\| (P\d+) \|", section(PAGES[page], "The promises"), re.MULTILINE)
    assert promises == [f"P{number}" for number in range(1, 13)]
    tests = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    for promise in promises:
        assert re.search(rf"def test_\w*{promise.lower()}(_|\b)", tests), promise


def test_all_that_can_be_chosen_is_described() -> None:
    for name in FORMATS:
        assert f"`{name}`" in PAGES["docs/formats.md"], name
    for name in LAYOUTS:
        assert f"`{name}`" in PAGES["docs/layouts.md"], name
    for extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]:
        assert f"| `{extra}` |" in PAGES["docs/install.md"], extra
    for suffix in FILE_TYPES:
        assert f"NAME.{suffix}" in PAGES["docs/files.md"], suffix


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_on_and_lines_are_short(page: str) -> None:
    text = PAGES[page]
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if "://" not in link:
            file, anchor = target_of(page, link)
            assert file.exists(), link
            assert not anchor or anchor in anchors(file.read_text()), link
    assert [line for line in prose(text).splitlines() if len(line) > 120 and not line.startswith("|")] == []
    for script in set(re.findall(r"scripts/[a-z-]+(?![\w./-])", text)):
        assert os.access(ROOT / script, os.X_OK), script
    for module in set(re.findall(r"`((?:fsbridge|tests)/[\w/.-]+)`", text)):
        assert (ROOT / module).exists(), module


def test_what_to_copy_and_touch_exists() -> None:
    table = section(PAGES["docs/contributing.md"], "Where something new goes")
    rows = [row.split(" | ") for row in re.findall(r"^\| ([^-].*) \|$", table, re.MULTILINE)]
    assert len(rows) == 17
    for cells in rows:
        for path in re.findall(r"`([\w/.]+/[\w/.]*|\w+\.py)`", " ".join(cells[1:])):
            assert (ROOT / "fsbridge" / path).exists() or (ROOT / path).exists(), path


def test_the_house_is_the_packages() -> None:
    (house,) = blocks(section(PAGES["docs/architecture.md"], "The house"), "text")
    there = {path.name for path in (ROOT / "fsbridge").rglob("*") if path.suffix in ("", ".py")}
    named = {name.rstrip("/") for name in re.findall(r"(?<![\w.])[a-z_0-9]+(?:\.py\b|/(?!\w))", house)}
    assert named <= there | {"fsbridge"}
    top = {path.name for path in (ROOT / "fsbridge").iterdir() if path.suffix in ("", ".py")}
    assert top - {"__pycache__", "__init__.py"} <= named


def test_the_words_of_the_house_are_those_of_the_code() -> None:
    """A word in the table that no name in the code has is out of date."""
    modules = list((ROOT / "fsbridge").rglob("*.py"))
    code = "\n".join(module.read_text() for module in modules).lower()
    names = set(re.findall(r"(?:class|def) (\w+)|(\w+)(?::[^=\n]+)? = ", code))
    joined = " ".join(name.replace("_", "") for pair in [*names, [module.stem for module in modules]] for name in pair)
    table = PAGES["docs/architecture.md"].partition("## The words of the house")[2].partition("\n## ")[0]
    words = [word for row in re.findall(r"^\| ([^|]+) \|", table, re.M)[2:] for word in re.split(r"[ ,]+", row)]
    assert len(words) > 40
    assert [word for word in words if re.sub(r"[^a-z]", "", word.lower()).removesuffix("s") not in joined] == []


def test_all_classes_of_the_kernel_side_are_explained() -> None:
    table = section(PAGES["docs/architecture.md"], "The classes of the kernel side")
    named = [name for row in re.findall(r"^\| (`[^|]+) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)]
    modules = "\n".join(module.read_text() for module in (ROOT / "fsbridge/kernel").rglob("*.py"))
    assert sorted(named) == sorted(re.findall(r"^class ([A-Z]\w+)", modules, re.M))
    assert len(named) <= 40


def test_the_tables_of_errors_are_those_of_the_classes() -> None:
    classes = [one for one in errors.FsbridgeError.__subclasses__() if one.__module__ == errors.__name__]
    numbers = {one.__name__: one.errno for one in classes if one is not errors.SetupError}
    for text in (errors.__doc__ or "", section(PAGES["docs/architecture.md"], "Errors")):
        said: dict[str, int] = {}
        for names, codes in re.findall(r"^\| ([^|(]+).* \| (E[A-Z, /]+) \|", text, re.MULTILINE):
            found = [getattr(errno, code) for code in re.findall(r"\w+", codes)]
            said.update(zip(re.findall(r"[A-Z]\w+", names), cycle(found), strict=False))
        assert said == {**numbers, "MemoryError": errno.ENOMEM, "ImportError": errno.EIO}


def test_functions_of_the_walks_exist() -> None:
    text = section(PAGES["docs/architecture.md"], "Walk 1: a chunk is read")
    text += section(PAGES["docs/architecture.md"], "Walk 2: `ls -l` of a chunk directory")
    text += section(PAGES["docs/architecture.md"], 'Walk 3: `np.load("raw.npy")` of the layout `files`')
    named = set(re.findall(r"`([A-Z]\w+)\.(\w+)`", text))
    assert len(named) > 40
    bodies: dict[str, str] = {}
    for path in (ROOT / "fsbridge").rglob("*.py"):
        for name, body in re.findall(r"^class (\w+)(.*?)(?=^\S|\Z)", path.read_text(), re.MULTILINE | re.DOTALL):
            bodies[name] = bodies.get(name, "") + body
    for name, method in named:
        assert any(f" def {method}(" in bodies[one] for one in lineage(name, bodies)), f"{name}.{method}"


def test_pages_are_reachable() -> None:
    linked = {target_of(page, link)[0] for page, text in PAGES.items() for link in re.findall(r"\]\(([^)\s]+)\)", text)}
    for page in PAGES:
        assert ROOT / page in linked or page in ("README.md", "docs/index.md"), page
    menu = (ROOT / "packaging/mkdocs.yml").read_text()
    for page in PAGES:
        assert page.removeprefix("docs/") in menu or page == "README.md", page


def test_the_pages_are_built_as_a_site_without_a_warning(tmp_path: Path) -> None:
    words = ["build", "--quiet", "--strict", "-f", str(ROOT / "packaging/mkdocs.yml"), "-d", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", "mkdocs", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    built = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("index.html")}
    assert built >= {"index.html", "formats/index.html", "decisions/read-only/index.html"}
