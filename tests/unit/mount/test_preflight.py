"""Advice about what is mounted already, and the unmounting by an ordinary user."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsbridge.config import Config
from fsbridge.errors import SetupError
from fsbridge.mount import preflight
from fsbridge.mount.preflight import Mounted

FUSERMOUNT = """#!/bin/sh
echo "$@" >> {asked}
[ "$(wc -l < {asked})" = 1 ] && echo " busy" >&2
exit 1
"""


def test_an_ordinary_user_s_unmount_is_fusermount3_s(tmp_path: Path) -> None:
    program, asked, empty = tmp_path / "bin/fusermount3", tmp_path / "asked", tmp_path / "empty"
    program.parent.mkdir()
    empty.mkdir()
    program.write_text(FUSERMOUNT.format(asked=asked))
    program.chmod(0o755)
    assert preflight._unmount_as_user("-m", lazy=False, folders=str(program.parent)) == "busy"
    assert preflight._unmount_as_user("-m", lazy=True, folders=str(program.parent)) == f"{program} failed"
    assert asked.read_text().splitlines() == ["-u -- -m", "-u -z -- -m"]
    with pytest.raises(SetupError, match=r"fusermount3 is not installed\n  install it with: apt-get install fuse3"):
        preflight._unmount_as_user("/m", lazy=False, folders=str(empty))


@pytest.mark.parametrize(("path", "after"), [("/x", "/x:/usr/bin:/bin"), ("", "/bin:/usr/bin:/usr/bin:/bin")])
def test_programs_of_the_system_are_found_without_a_path(path: str, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", path)
    assert preflight.program_folders() == after


@pytest.mark.parametrize(("fstype", "advised"), [("proc", False), ("nfs4", False), ("fuse.fsbridge", True)])
def test_only_a_mount_of_fsbridge_is_to_be_unmounted(fstype: str, advised: bool) -> None:
    advice = preflight._place_advice(Mounted("0:1", "/", "/m", fstype, "there"), "/m")
    assert ("fsbridge umount /m" in advice) == advised
    assert "nonempty" in advice


def test_a_mount_of_another_file_system_is_not_to_be_unmounted() -> None:
    with pytest.raises(SetupError, match=r"^/proc is already a mount point \(of .*, type proc\)\n  name another") as caught:
        preflight.check(Config("/", "/proc"))
    assert "fsbridge umount" not in str(caught.value)
