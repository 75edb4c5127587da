"""The command that installs a package is the one that works where fsbridge runs. Not here: what is missing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path

import pytest

from fsbridge import installing

REQUIRED = ["numpy>=2.0", 'zfpy!=1.0.1.post0,>=1.0.1; extra == "codecs"', 'flac-numcodecs>=0.1.2; extra == "ephys"']


@pytest.fixture(autouse=True)
def required(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRED)
    monkeypatch.setattr(sys, "executable", "/opt/my env/bin/python")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    installing._requirements.cache_clear()
    yield
    installing._requirements.cache_clear()


def without_pip(monkeypatch: pytest.MonkeyPatch, uv: str | None) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: uv)


def test_the_versions_are_those_that_fsbridge_requires() -> None:
    assert installing.install("zfpy") == "'/opt/my env/bin/python' -m pip install 'zfpy!=1.0.1.post0,>=1.0.1'"
    assert installing.install("other") == "'/opt/my env/bin/python' -m pip install other"


def test_an_environment_of_uv_has_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pip(monkeypatch, "/usr/bin/uv")
    assert installing.install("other") == "uv pip install --python '/opt/my env/bin/python' other"


def test_an_environment_without_pip_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pip(monkeypatch, None)
    assert installing.install("other") == "{0} -m ensurepip && {0} -m pip install other".format("'/opt/my env/bin/python'")


def test_root_is_named_where_only_root_may_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "executable", "/e/bin/python")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert installing.install("other") == "/e/bin/python -m pip install other"
    assert installing.install("other", "apt x") == "as root: apt x && /e/bin/python -m pip install other"
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "absent"))
    assert installing.install("other") == "as root: /e/bin/python -m pip install other"


def test_the_debian_package_is_repaired_by_the_debian_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", installing.DEBIAN)
    assert installing.repair(["numpy"]).startswith("dpkg -i FILE")


def test_what_fsbridge_cannot_do_without_is_installed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/e/bin/python")
    command = "/e/bin/python -m pip install --force-reinstall --no-cache-dir 'numpy>=2.0' lmdb"
    assert installing.repair(["numpy", "lmdb"]) == command


def test_a_module_has_a_distribution_only_if_fsbridge_requires_it() -> None:
    assert installing.distribution("flac_numcodecs.flac") == "flac-numcodecs"
    assert installing.distribution("fsbridge.tree") is None


def test_without_the_metadata_of_the_package_the_name_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", lost)
    assert installing.install("zfpy").endswith("pip install zfpy")
