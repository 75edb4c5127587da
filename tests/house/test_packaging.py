"""What is kept beside the code for installing it agrees with `pyproject.toml`.

Not here: real packages (`scripts/package-check`).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from paths import ROOT

from fsbridge import __version__
from fsbridge.commands import diagnosis

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

CONDA = {"xxhash": "python-xxhash", "lmdb": "python-lmdb", "msgpack": "msgpack-python"}
"""Names that conda-forge spells in another way."""


def test_the_conda_recipe_needs_what_the_project_needs() -> None:
    recipe = yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == __version__
    needed = set()
    for line in PROJECT["project"]["dependencies"]:
        requirement = re.fullmatch(r"([\w.-]+)(>=[\d.]+)(;.*)?", line.replace(" ", ""))
        assert requirement, line
        name, bound = requirement[1], requirement[2]
        needed.add(f"{CONDA.get(name, name)} {bound}")
    run = {line for line in recipe["requirements"]["run"] if line != "__linux" and not line.startswith("python >=")}
    assert run == needed
    assert f"python {PROJECT['project']['requires-python']}" in recipe["requirements"]["run"]
    entry = recipe["build"]["python"]["entry_points"]
    assert entry == [f"{name} = {place}" for name, place in PROJECT["project"]["scripts"].items()]


def test_doctor_looks_for_what_the_project_needs() -> None:
    """Except for what only some versions of Python need, and what only `fsbridge completion` needs."""
    needed = {re.split("[>;]", line)[0] for line in PROJECT["project"]["dependencies"]}
    assert {*diagnosis.LIBRARIES} == needed - {"backports.zstd", "shtab"}


def test_hosted_ci_runs_what_ci_runs_for_each_python() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    pythons = jobs["check"]["strategy"]["matrix"]["python"]
    assert pythons == ["3.11", "3.12", "3.13", "3.14"]
    assert "PYTHON=python${{ matrix.python }}" in jobs["check"]["steps"][-1]["run"]
    assert ".ci/run" in jobs["check"]["steps"][-1]["run"]
    listed = [line.rpartition(" :: ")[2] for line in PROJECT["project"]["classifiers"] if "Python :: 3." in line]
    assert listed == pythons
    assert PROJECT["project"]["requires-python"] == f">={pythons[0]}"


def test_hooks_run_programs_of_the_environment() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    programs = {hook["entry"].split()[0] for hook in repository["hooks"]}
    assert all(re.fullmatch(r"\.venv/bin/\w+", program) for program in programs)
    assert {program.rpartition("/")[2] for program in programs} <= {re.split(">", line)[0] for line in _dev()}


def _dev() -> list[str]:
    return list(PROJECT["dependency-groups"]["dev"])


@pytest.mark.parametrize(
    ("tags", "code", "said"),
    [
        ((), 7, ""),
        (("v1.2.3", "nightly"), 7, ""),
        (("v1.2.3", "v1.2.4"), 1, "package: HEAD has the tag v1.2.4, but fsbridge/__init__.py says version 1.2.3\n"),
    ],
)
def test_no_package_of_a_version_that_is_not_the_tag(tmp_path: Path, tags: tuple[str, ...], code: int, said: str) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "fsbridge").mkdir()
    shutil.copy(ROOT / "scripts" / "package", tmp_path / "scripts")
    (tmp_path / "scripts" / "setup").write_text("#!/bin/sh\nexit 7\n")  # what comes first when the tags are right
    (tmp_path / "scripts" / "setup").chmod(0o755)
    text = (ROOT / "fsbridge" / "__init__.py").read_text()
    (tmp_path / "fsbridge" / "__init__.py").write_text(text.replace(f'"{__version__}"', '"1.2.3"'))
    author = ("-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), (*author, "commit", "-qm", "a", "--allow-empty"), *(("tag", tag) for tag in tags)):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    done = subprocess.run([tmp_path / "scripts" / "package"], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(said)


PRETENDED = """#!/bin/sh
case "$1" in
    -) cat >/dev/null; {answer} ;;
    -m) [ "$2" != venv ] || {{ echo "made with {name}" >&2; exit 7; }} ;;
esac
"""
"""A program that says where it is when `scripts/setup` asks, and ends with 7 when it is to make a virtual environment."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """`scripts/setup` with a complete `.venv` of the Python `first`. `second` is another one, `shim` does not run."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv/bin").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/setup", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name, answer in {"first": 'echo "$0"', "second": 'echo "$0"', "shim": "echo no such version >&2; exit 127"}.items():
        (tmp_path / name).write_text(PRETENDED.format(name=name, answer=answer))
        (tmp_path / name).chmod(0o755)
    (tmp_path / ".venv/bin/python").symlink_to(tmp_path / "first")
    (tmp_path / ".venv/bin/fsbridge").symlink_to(tmp_path / "first")
    digest = hashlib.sha256((tmp_path / "pyproject.toml").read_bytes()).hexdigest()
    (tmp_path / ".venv/fsbridge-setup").write_text(f"{tmp_path} {digest}  -\n")
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        ("", 0, "setup: ready: {0}/.venv/bin/fsbridge\n"),
        ("{0}/first", 0, "setup: ready: {0}/.venv/bin/fsbridge\n"),
        ("{0}/second", 7, "made with second\n"),
        ("second", 7, "made with second\n"),
        ("{0}/shim", 1, "no such version\nsetup: PYTHON={0}/shim cannot be used; name another, as PYTHON=/usr/bin/python3 "),
    ],
)
def test_set_up_takes_another_python_only_if_asked_and_if_it_runs(checkout: Path, asked: str, code: int, said: str) -> None:
    words = {"PATH": f"{checkout}:{os.environ['PATH']}", "PYTHON": asked.format(checkout)}
    done = subprocess.run([checkout / "scripts/setup"], env=words, capture_output=True, text=True, check=False)
    assert (done.returncode, said.format(checkout) in done.stderr) == (code, True), done.stderr


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "RELEASING.md", "SECURITY.md"])
def test_scripts_that_documents_name_are_there(document: str) -> None:
    for script in set(re.findall(r"scripts/[a-z]+(?:-[a-z]+)*", (ROOT / document).read_text())):
        assert os.access(ROOT / script, os.X_OK), script
