"""Completion: real shells complete what the parser knows."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

import pytest
from forking import environment
from mounting import fsbridge

from fsbridge.commands import COMMANDS, command, completion

DRIVE = """
source "$1"; shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
function=$(complete -p fsbridge | sed -E 's/.*-F ([^ ]+).*/\\1/')
"$function" fsbridge "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "fsbridge"
    path.write_text(fsbridge("completion", "bash").stdout)
    return path


def completed(script: Path, *words: str, where: Path | None = None) -> set[str]:
    """Return what bash offers for the last of `words`."""
    shell = ["bash", "--norc", "-c", DRIVE, "bash", str(script), "fsbridge", *words]
    done = subprocess.run(shell, capture_output=True, text=True, cwd=where, env=environment(), check=True, timeout=60)
    return {line.rstrip() for line in done.stdout.splitlines() if line.strip()}


def test_names_of_commands_are_completed(script: Path) -> None:
    assert completed(script, "") >= {name.split()[0] for name in COMMANDS}
    assert completed(script, "moun") == {"mount"}
    assert completed(script, "ctl", "log-") == {"log-level"}


@pytest.mark.parametrize("name", COMMANDS)
def test_options_of_each_command_are_completed(script: Path, name: str) -> None:
    actions = command(name).make_parser(name)._option_string_actions.items()
    known = {option for option, action in actions if option.startswith("--") and action.help != argparse.SUPPRESS}
    assert completed(script, *name.split(), "--") == known


def test_values_of_options_and_paths_are_completed(script: Path, tmp_path: Path) -> None:
    assert completed(script, "mount", "--log-level", "") == {"debug", "info", "warning", "error", "critical"}
    assert completed(script, "mount", "--layout", "zarr") == {"zarr2", "zarr3"}
    assert "ome.tif" in completed(script, "mount", "--files", "ome")
    (tmp_path / "brain.n5").mkdir()
    (tmp_path / "brain.txt").write_text("")
    assert completed(script, "umount", "bra", where=tmp_path) == {"brain.n5"}
    assert completed(script, "info", "bra", where=tmp_path) == {"brain.n5", "brain.txt"}


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_script_is_one_of_the_shell(shell: str, tmp_path: Path) -> None:
    text = fsbridge("completion", shell).stdout
    assert all(word in text for name in COMMANDS for word in name.split())
    if shutil.which(shell):
        (tmp_path / "script").write_text(text)
        subprocess.run([shell, "-n", tmp_path / "script"], check=True)
