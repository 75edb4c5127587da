"""Man pages: they render without a warning, and say what the parser and the program say."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from fsbridge.commands import COMMANDS, command

SOURCES = re.sub(r'"\s*\n\s*f?"', "", "\n".join(path.read_text() for path in (ROOT / "fsbridge").rglob("*.py")))


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, ROOT / "scripts" / "manpages.py", folder], check=True)
    return folder


def rendered(page: Path) -> str:
    done = subprocess.run(
        ["man", "--warnings=w", "-l", page],
        capture_output=True,
        text=True,
        check=True,
        env={"MANWIDTH": "200", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )
    assert done.stderr == "", page
    return re.sub(r".\x08", "", done.stdout)


def test_each_page_renders_without_warnings(manual: Path) -> None:
    pages = sorted(path for path in manual.rglob("*.[178]"))
    assert {path.name for path in pages} >= {"fsbridge.1", "mount.fsbridge.8", "fsbridge-files.7", "fsbridge-errors.7"}
    for page in pages:
        text = rendered(page)
        assert "NAME" in text
        assert "SEE ALSO" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_of_a_command_has_its_options(manual: Path, name: str) -> None:
    text = rendered(manual / "man1" / f"fsbridge-{name.replace(' ', '-')}.1")
    parser = command(name).make_parser(f"fsbridge {name}")
    for action in parser._actions:
        if action.help is not argparse.SUPPRESS:
            for option in action.option_strings:
                assert re.search(rf"^ +.*{re.escape(option)}\b", text, re.MULTILINE), option
    said = set(re.findall(r"^ {7}(--[a-z][a-z0-9-]*)", text, re.MULTILINE))
    assert said <= set(parser._option_string_actions)
    assert COMMANDS[name].split()[0] in text


def test_the_overview_has_all_commands(manual: Path) -> None:
    text = rendered(manual / "man1" / "fsbridge.1")
    assert all(f"fsbridge-{name.replace(' ', '-')}(1)" in text for name in COMMANDS)


def test_the_helper_has_all_options(manual: Path) -> None:
    text = rendered(manual / "man8" / "mount.fsbridge.8")
    for name in ("cache_size=SIZE", "allow_other", "access_log=FILE", "env_file=PATH", "noatime", "_netdev", "x-*"):
        assert name in text, name


def test_error_texts_exist() -> None:
    text = (ROOT / "docs" / "man" / "fsbridge-errors.7").read_text()
    commands = text.partition("ERRORS OF THE MOUNT COMMAND")[2].partition("\n.SH")[0]
    for words in re.findall(r"^\.B (.*)$", commands, re.MULTILINE):
        assert words in SOURCES, words
