"""Where a mount in the background is told of, and what is said if no daemon can be forked."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from forked import allow_no_processes, in_fork

from fsbridge.config import Config
from fsbridge.errors import SetupError
from fsbridge.mount import lifecycle
from fsbridge.mount.preflight import Mounted


def test_without_room_for_a_process_the_reason_is_said() -> None:
    def begin() -> None:
        allow_no_processes()
        with pytest.raises(SetupError, match="the limit of processes is reached") as caught:
            lifecycle._in_background(Config("", ""), lifecycle.open_tree)
        assert caught.value.exit_code == 2
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()), "an interrupt is let through again"

    assert in_fork(begin) == ""


def test_a_missing_syslog_is_told_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    mounts: list[Mounted] = []
    for number in range(3):
        mounts.append(Mounted("0:1", "/", f"/mnt/{number}", "fuse.fsbridge", "s"))
        lifecycle._say_where(Config("/s", f"/mnt/{number}"), str(tmp_path / "syslog"), lambda: mounts)
    assert capsys.readouterr().err.count("there is no syslog") == 1
