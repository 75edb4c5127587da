"""What reads LMDB databases, in the test's own process. Not here: the process that runs it (`test_repository.py`)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fsbridge.children.client import error_of
from fsbridge.errors import AccessDenied, FsbridgeError, Unreachable
from fsbridge.formats.hangar.lmdb import Databases


@pytest.mark.parametrize(("number", "kind"), [(errno.EACCES, AccessDenied), (errno.EMFILE, Unreachable)])
def test_p3_a_database_that_cannot_be_opened_is_no_damage(crashed: Path, number: int, kind: type[FsbridgeError]) -> None:
    def refuse(root: int, path: str, flags: int) -> int:
        raise OSError(number, os.strerror(number), path)

    root = os.open(crashed / ".hangar", os.O_PATH)
    answer, _ = Databases(root, refuse).answer({"op": "get", "path": "ref.lmdb", "keys": []})
    os.close(root)
    error = error_of(answer)
    assert (type(error), str(error)) == (kind, f"ref.lmdb: {os.strerror(number)}")
