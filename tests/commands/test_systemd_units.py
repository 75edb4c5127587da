"""The systemd units: systemd itself finds nothing wrong with them, nor with what it makes of lines of fstab."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from fsbridge.commands import mount

UNITS = sorted((ROOT / "packaging" / "systemd").iterdir())


def options(unit: Path) -> list[str]:
    return re.findall(r"^Options=(.*)$", unit.read_text(), re.MULTILINE)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_verifies_it(unit: Path, tmp_path: Path) -> None:
    """All of them in one folder, because an automount needs its mount; the program is this checkout's."""
    program = Path(sys.executable).with_name("fsbridge")
    for other in UNITS:
        (tmp_path / other.name).write_text(other.read_text().replace("/usr/bin/fsbridge", str(program)))
    name = unit.name.replace("@", "@brain")
    if name != unit.name:
        (tmp_path / name).symlink_to(tmp_path / unit.name)
    words = [
        "systemd-analyze",
        "verify",
        "--man=no",
        *(["--user"] if name.startswith("user-") else []),
        str(tmp_path / name),
    ]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    about = [line for line in done.stderr.splitlines() if "brain" in line or "fsbridge" in line]
    assert (done.returncode, about) == (0, []), done.stderr


def test_options_of_mount_units_are_options() -> None:
    found = [text for unit in UNITS for text in options(unit)]
    assert found
    for text in found:
        text = re.sub(r"env_file=[^,]*,?", "", text)
        mount.parse("mount.fsbridge", ["s3://bucket/x", "/mnt", "-o", text])


def test_they_watch_the_event_loop() -> None:
    services = [unit.read_text() for unit in UNITS if unit.suffix == ".service"]
    assert all("Type=notify" in text and "WatchdogSec=" in text and "--foreground" in text for text in services)
