"""Damaged stores that `fsbridge verify` calls well are read alike by every reader; `scripts/fuzz verify` tries more."""

from __future__ import annotations

from pathlib import Path

import fuzz_verify
import pytest

MUTATIONS = 8


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", fuzz_verify.KINDS)
def test_p3_verify_says_well_only_where_every_reader_agrees(kind: str, tmp_path: Path) -> None:
    run = fuzz_verify.Run(kind, 0, tmp_path)
    for number in range(MUTATIONS):
        run.once(number)
