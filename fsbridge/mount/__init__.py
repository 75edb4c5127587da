"""The life of a mount. Here: `fsbridge.mounted`, a mount for as long as a `with` block lasts.

That mount is made by the command in a process of its own, so a program with threads may use it. Not here: mounting itself
(`lifecycle.py`), the kernel's requests (`kernel/`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from fsbridge.errors import SetupError
from fsbridge.mount.preflight import find_mount, unmount

Value: TypeAlias = str | int | float | bool | os.PathLike[str] | Sequence[str] | None


@contextmanager
def mounted(source: str | os.PathLike[str], layout: str | None = None, **options: Value) -> Iterator[Path]:
    """Mount `source`, give the path of the mount's root, and unmount at the end, even while files are open.

    `options` are those of `fsbridge mount`: `cache_size="1G"`, `files=["npy", "nii"]`, `anonymous=True`. SetupError says
    what `fsbridge mount` would print.
    """
    folder = Path(tempfile.mkdtemp(prefix="fsbridge-"))
    try:
        _mount(source, folder, {"layout": layout, **options})
        try:
            yield folder
        finally:
            if find_mount(os.fspath(folder)) is not None:  # it was not unmounted by hand
                unmount(os.fspath(folder), lazy=True)
    finally:
        with suppress(OSError):  # something is still mounted on it
            folder.rmdir()


def words(options: dict[str, Value]) -> list[str]:
    """Return options as words of the command line."""
    arguments = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            arguments.append(option)
        elif value not in (None, False):
            several = not isinstance(value, str | os.PathLike | int | float)
            text = ",".join(value) if several else str(value)  # type: ignore[arg-type]
            repeated = several and name in ("allow_external", "hdf5_plugins", "include", "exclude")
            arguments += [f"{option}={one}" for one in value] if repeated else [f"{option}={text}"]  # type: ignore[union-attr]
    return arguments


def _mount(source: str | os.PathLike[str], folder: Path, options: dict[str, Value]) -> None:
    path = os.pathsep.join(filter(None, [os.fspath(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "fsbridge", "mount", *words(options), "--", os.fspath(source), os.fspath(folder)]
    said = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    if said.returncode:
        text = said.stderr.decode("utf-8", "replace").strip().removeprefix("fsbridge: ")
        message, _, hint = text.partition("\n  ")
        raise SetupError(message or f"fsbridge mount ended with exit code {said.returncode}", hint, max(1, said.returncode))
