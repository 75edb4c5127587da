"""The command that installs a package is the one that works where fsbridge runs. Not here: what is missing."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from importlib import metadata

from fsbridge.installing import DEBIAN, Installation, distribution, install, requirements

REQUIRED = {"numpy": "numpy>=2.0", "zfpy": "zfpy!=1.0.1.post0,>=1.0.1", "flac-numcodecs": "flac-numcodecs>=0.1.2"}
HERE = Installation(
    python="/opt/my env/bin/python",
    prefix="/opt/my env",
    is_ours=True,
    is_root=False,
    has_pip=True,
    has_uv=False,
    requirements=REQUIRED,
)


def test_the_versions_are_those_that_fsbridge_requires() -> None:
    assert HERE.install("zfpy") == "'/opt/my env/bin/python' -m pip install 'zfpy!=1.0.1.post0,>=1.0.1'"
    assert HERE.install("other") == "'/opt/my env/bin/python' -m pip install other"


def test_an_environment_of_uv_has_no_pip() -> None:
    environment = replace(HERE, has_pip=False, has_uv=True)
    assert environment.install("other") == "uv pip install --python '/opt/my env/bin/python' other"


def test_an_environment_without_pip_gets_it() -> None:
    environment = replace(HERE, has_pip=False)
    assert environment.install("other") == "{0} -m ensurepip && {0} -m pip install other".format("'/opt/my env/bin/python'")


def test_root_is_named_where_only_root_may_install() -> None:
    environment = replace(HERE, python="/e/bin/python")
    assert environment.install("other") == "/e/bin/python -m pip install other"
    assert environment.install("other", "apt x") == "as root: apt x && /e/bin/python -m pip install other"
    assert replace(environment, is_ours=False).install("other") == "as root: /e/bin/python -m pip install other"
    as_root = replace(environment, is_ours=False, is_root=True)
    assert as_root.install("other", "apt x") == "apt x && /e/bin/python -m pip install other"


def test_the_debian_package_is_repaired_by_the_debian_package() -> None:
    assert replace(HERE, prefix=DEBIAN, is_root=True).repair(["numpy"]).startswith("dpkg -i FILE")


def test_what_fsbridge_cannot_do_without_is_installed_again() -> None:
    command = "/e/bin/python -m pip install --force-reinstall --no-cache-dir 'numpy>=2.0' lmdb"
    assert replace(HERE, python="/e/bin/python").repair(["numpy", "lmdb"]) == command


def test_a_module_has_a_distribution_only_if_fsbridge_requires_it() -> None:
    assert distribution("flac_numcodecs.flac") == "flac-numcodecs"
    assert distribution("fsbridge.tree") is None


def test_the_present_installation_is_that_of_this_process() -> None:
    here = Installation.find()
    assert (here.python, here.prefix, here.is_root) == (sys.executable, sys.prefix, os.geteuid() == 0)
    assert any(line.startswith(here.requirements["numpy"]) for line in metadata.requires("fsbridge-fuse") or [])
    assert install("other") == here.install("other")


def test_without_the_metadata_of_the_package_the_name_is_enough() -> None:
    assert requirements("a-package-that-is-not-installed") == {}
    assert replace(HERE, requirements={}).install("zfpy").endswith("pip install zfpy")
