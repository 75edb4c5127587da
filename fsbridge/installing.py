"""The commands that install a package beside fsbridge, as they must be typed where this fsbridge runs.

Not here: which packages are missing (`codecs/table.py`, `commands/diagnosis.py`).
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from collections.abc import Sequence
from importlib import util
from shlex import quote

DEBIAN = "/opt/fsbridge"
"""The environment of the Debian package."""


def install(name: str, before: str = "") -> str:
    """Return the command that installs a distribution here. `before`: what root must do first.

    It names the versions that fsbridge can use. fsbridge itself is named nowhere: no index has it under its name.
    """
    command = f"{_pip()} {quote(_requirements().get(name, name))}"
    return _by_root(f"{before} && {command}" if before else command, bool(before))


def repair(names: Sequence[str]) -> str:
    """Return the command that installs again distributions that fsbridge cannot do without."""
    if sys.prefix == DEBIAN:
        return _by_root("dpkg -i FILE, where FILE is the Debian package of fsbridge for this release of the system", True)
    words = [quote(_requirements().get(name, name)) for name in names]
    return _by_root(f"{_pip()} --force-reinstall --no-cache-dir {' '.join(words)}")


def distribution(module: str) -> str | None:
    """Return which distribution that fsbridge requires has a module; None: that is not known."""
    name = module.partition(".")[0].replace("_", "-")
    return name if name in _requirements() else None


def _pip() -> str:
    python = quote(sys.executable)
    if util.find_spec("pip") is not None:
        return f"{python} -m pip install"
    if shutil.which("uv") is not None:
        return f"uv pip install --python {python}"
    return f"{python} -m ensurepip && {python} -m pip install"


def _by_root(command: str, always: bool = False) -> str:
    """Return `command` with the words "as root" if this user may not run it."""
    own = not always and (sys.prefix == sys.base_prefix or os.access(sys.prefix, os.W_OK))
    return command if own or os.geteuid() == 0 else f"as root: {command}"


@functools.cache
def _requirements() -> dict[str, str]:
    """Return what the installed fsbridge requires, extras included: names of distributions, with their versions."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("fsbridge-fuse") or []
    except (PackageNotFoundError, OSError):  # run from its directory; or the package has been removed in the meantime
        return {}
    needed = [line.partition(";")[0].strip() for line in lines]
    return {re.split(r"[^\w.-]", line)[0]: line for line in needed}
