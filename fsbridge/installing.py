"""The commands that install a package beside fsbridge, as they must be typed where this fsbridge runs.

Not here: which packages are missing (`codecs/table.py`, `commands/diagnosis.py`).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import util
from shlex import quote

DEBIAN = "/opt/fsbridge"
"""The environment of the Debian package."""


@dataclass(frozen=True)
class Installation:
    """Where fsbridge is installed, as far as that decides how another package gets there."""

    python: str
    """Path of the interpreter."""
    prefix: str
    """The environment's folder."""
    is_ours: bool
    """True unless this is a virtual environment that this user may not write to."""
    is_root: bool
    has_pip: bool
    has_uv: bool
    requirements: Mapping[str, str]
    """What fsbridge requires, extras included: names of distributions, with their versions."""

    @classmethod
    def find(cls) -> Installation:
        """Return the installation that this process runs from."""
        return cls(
            sys.executable,
            sys.prefix,
            sys.prefix == sys.base_prefix or os.access(sys.prefix, os.W_OK),
            os.geteuid() == 0,
            util.find_spec("pip") is not None,
            shutil.which("uv") is not None,
            requirements(),
        )

    def install(self, name: str, before: str = "") -> str:
        """Return the command that installs a distribution here, see the function `install`."""
        command = f"{self._pip()} {self._word(name)}"
        return self._by_root(f"{before} && {command}" if before else command, bool(before))

    def repair(self, names: Sequence[str]) -> str:
        """Return the command that installs distributions again."""
        if self.prefix == DEBIAN:
            package = "dpkg -i FILE, where FILE is the Debian package of fsbridge for this release of the system"
            return self._by_root(package, True)
        return self._by_root(f"{self._pip()} --force-reinstall --no-cache-dir {' '.join(map(self._word, names))}")

    def _word(self, name: str) -> str:
        """Return the word for a distribution on a command line, with the versions that fsbridge can use."""
        return quote(self.requirements.get(name, name))

    def _pip(self) -> str:
        python = quote(self.python)
        if self.has_pip:
            return f"{python} -m pip install"
        if self.has_uv:
            return f"uv pip install --python {python}"
        return f"{python} -m ensurepip && {python} -m pip install"

    def _by_root(self, command: str, always: bool = False) -> str:
        """Return `command` with the words "as root" if this user may not run it."""
        return command if self.is_root or (self.is_ours and not always) else f"as root: {command}"


def install(name: str, before: str = "") -> str:
    """Return the command that installs a distribution where fsbridge runs. `before`: what root must do first.

    It names the versions that fsbridge can use. fsbridge itself is named nowhere: no index has it under its name.
    """
    return Installation.find().install(name, before)


def repair(names: Sequence[str]) -> str:
    """Return the command that installs again distributions that fsbridge cannot do without."""
    return Installation.find().repair(names)


def distribution(module: str) -> str | None:
    """Return the distribution that a module comes from, if fsbridge requires that distribution; None if it is unknown."""
    name = module.partition(".")[0].replace("_", "-")
    return name if name in requirements() else None


def requirements(package: str = "fsbridge-fuse") -> Mapping[str, str]:
    """Return what an installed package requires, extras included: names of distributions, with their versions."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires(package) or []
    except (PackageNotFoundError, OSError):  # run from its directory; or the package has been removed in the meantime
        return {}
    needed = [line.partition(";")[0].strip() for line in lines]
    return {re.split(r"[^\w.-]", line)[0]: line for line in needed}
