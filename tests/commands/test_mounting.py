"""The test machinery itself: a mount that does not come up fails with the daemon's own words."""

from __future__ import annotations

from pathlib import Path

import pytest
from mounting import Mount, mounted


def test_a_failing_mount_fails_the_test_with_the_log(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="before mounting"):
        Mount(tmp_path / "no-such-store", tmp_path / "here")
    assert not mounted(tmp_path / "here" / "mnt")
