"""The folder of control sockets: no other user may look into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsbridge.mount import control


def test_a_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    for place in ("open", "link", "good"):
        (tmp_path / place).mkdir()
    (tmp_path / "open" / "fsbridge").mkdir()
    (tmp_path / "open" / "fsbridge").chmod(0o777)
    (tmp_path / "link" / "fsbridge").symlink_to(tmp_path / "good")
    places = [f"{tmp_path}/{place}/fsbridge" for place in ("open", "link", "missing/there", "good")]
    assert control._choose_folder(places) == places[3]
    with pytest.raises(PermissionError):
        control._choose_folder(places[:2])
