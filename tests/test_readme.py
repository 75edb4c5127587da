"""The README is true: its sessions print what it shows, its option table is the parser's, its error texts are the program's.

A line `...` in a session's expected output stands for any lines, `...` within a line for any characters.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mounting import ROOT, command, environment, mounted, without_log_notice
from paths import TESTS

from fsbridge import cli
from fsbridge.commands import arguments, mount, mount_options

README = (ROOT / "README.md").read_text()
SOURCES = "\n".join(path.read_text() for path in (ROOT / "fsbridge").rglob("*.py"))

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
    "Package fuse3 was not found in the pkg-config search path",
}
"""Words of the kernel, libfuse and pkg-config."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def steps(session: str) -> Iterator[tuple[str, str]]:
    """Each command of a session with the output it shows."""
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        yield line, output


def matches(expected: str, printed: str) -> bool:
    pattern = "".join(
        "(?:.*\n)*" if line == "...\n" else re.escape(line).replace(r"\.\.\.", ".*")
        for line in expected.splitlines(keepends=True)
    )
    return re.fullmatch(pattern, without_log_notice(printed)) is not None


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Path]:
    """A directory with the demonstration's store in it, and nothing mounted afterwards."""
    subprocess.run([sys.executable, ROOT / "scripts/demo_store.py", "write", "brain.n5"], cwd=tmp_path, check=True)
    yield tmp_path
    if mounted(tmp_path / "mnt"):
        subprocess.run(["fusermount3", "-uz", tmp_path / "mnt"], check=True)
        pytest.fail("the session left its mount behind")


def test_sessions_print_what_they_show(bench: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    programs = tmp_path_factory.mktemp("bin")  # `fsbridge` and `python3` are those under test
    for name, words in {"fsbridge": command(), "python3": [sys.executable]}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (programs / name).chmod(0o755)
    env = {**environment(), "PATH": f"{programs}:{os.environ['PATH']}"}
    for session in blocks("console"):
        for line, expected in steps(session):
            shell = ["bash", "-c", line]
            done = subprocess.run(shell, cwd=bench, env=env, capture_output=True, text=True, timeout=60, input="")
            printed = done.stdout + done.stderr
            assert matches(expected, printed), f"$ {line}\n{printed}\n--- the README shows ---\n{expected}"


def test_the_option_table_is_the_parsers() -> None:
    parser = mount.parser("fsbridge mount")
    offered = {
        string
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction)
        for string in action.option_strings
    }
    table = README.partition("Its options:")[2].partition("Exit codes")[0]
    documented = set(re.findall(r"`(-{1,2}[a-z][a-z0-9-]*)", table))
    assert documented == offered


def test_error_texts_exist() -> None:
    table = README.partition("## Troubleshooting")[2].partition("\n## ")[0]
    source = re.sub(r'"\s*\n\s*f?"', "", SOURCES)
    for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
        for text in re.findall(r"`(.*?)`", row):
            if text not in SYSTEM_TEXTS:
                for piece in text.split(" ... "):
                    assert piece in source, f"fsbridge never says {piece!r}"


def test_exit_codes_are_the_programs() -> None:
    from fsbridge.mount import preflight

    documented = dict(re.findall(r"(\d+) (done|wrong usage|system error|interrupted|mount failure)", README))
    assert documented == {
        "0": "done",
        str(arguments.USAGE): "wrong usage",
        str(preflight.SYSTEM): "system error",
        str(cli.INTERRUPTED): "interrupted",
        str(preflight.FAILED): "mount failure",
    }


def test_mount_options_in_examples_are_known() -> None:
    names = mount.option_names(mount.parser("fsbridge mount"))
    examples = [line.split()[3] for block in blocks("fstab") for line in block.splitlines()]
    examples += re.findall(r"^mount -t .* -o (\S+)$", README, re.MULTILINE)
    assert len(examples) == 4
    for text in examples:
        mount_options.sort(mount_options.split(text), names)  # raises SetupError for an unknown one


def test_each_promise_has_a_test_with_its_number() -> None:
    promises = re.findall(r"^\| (P\d+) \|", README.partition("`scripts/soak")[0], re.MULTILINE)
    assert promises == [f"P{number}" for number in range(1, 13)]
    tests = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    for promise in promises:
        assert re.search(rf"def test_\w*{promise.lower()}(_|\b)", tests), promise


def test_files_and_links_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    for script in set(re.findall(r"scripts/[a-z]+", README)):
        assert os.access(ROOT / script, os.X_OK), script
