"""Parts of `scripts/bench`: its rows, its data and its report. That it runs is seen by `scripts/bench --check`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

from benchmarks import data, reading, remote
from benchmarks.__main__ import KINDS, REMOTE_KINDS, SUITES, main
from benchmarks.programs import together
from benchmarks.report import table
from benchmarks.rounds import Bound, Contender, Pair, Row, alternate, ratio
from checks import Skipped
from remote.servers import SERVERS


def test_rounds_alternate_and_ratios_are_taken_within_a_round() -> None:
    order: list[str] = []

    def contender(name: str, seconds: float) -> Contender:
        def run() -> float:
            order.append(name)
            return seconds * len(order)

        return Contender(name, run)

    samples = alternate([contender("ours", 1), contender("theirs", 3)], 3, lambda words: None)
    assert order == ["ours", "theirs"] * 3
    found = ratio(samples, Pair("ours", "theirs"))
    assert (found.low, found.median, found.high) == (3.6, 4.0, 6.0)


def test_the_table_says_what_was_not_reached() -> None:
    row = Row("r", "MB/s", 10.0, {"a": [1.0], "b": [2.0]}, [Pair("a", "b", 3.0), Pair("b", "a", 0.5)], [Bound("a", 0.5)])
    text = table([row])
    assert "| a / b | 2.00x | 2.00 - 2.00 | >= 3 NOT REACHED |" in text
    assert "| b / a | 0.50x | 0.50 - 0.50 | >= 0.5 reached |" in text
    assert "<= 0.5 NOT REACHED" in text


@pytest.mark.parametrize(("format_", "codec"), reading.MATRIX)
def test_manifests_find_every_chunk(format_: str, codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "scripts"))
    geometry = data.Geometry.of(1 << 19, 1 << 14)
    stored = data.make(format_, codec, geometry, str(tmp_path))
    copy = tmp_path / "copy"
    data.local_copy(stored, str(copy))
    for number, slab in enumerate(data.slabs(geometry)):
        z, y, x = (edge // 2 for edge in geometry.chunk)
        chunk = slab[: 2 * z, 2 * y : 4 * y, 4 * x : 6 * x]
        content = chunk.tobytes(order="F" if format_ == "n5" else "C")
        if format_ == "n5":
            content = chunk.astype(">u2").tobytes(order="F")
        assert (copy / str(number) / "1" / "2").read_bytes() == content
    seconds, results = together("loop", [{"manifest": stored.manifest, "threads": 2}])
    assert seconds > 0
    assert results[0]["bytes"] == geometry.bytes


def test_the_rows_that_pages_and_the_check_name_exist() -> None:
    pages = re.findall(r"scripts/bench .*--rows '([^']*)'", (ROOT / "docs/performance.md").read_text())
    for suites, wanted in ((SUITES, [*pages, KINDS]), ((remote,), [REMOTE_KINDS])):
        names = [name for suite in suites for name in suite.names()]
        assert len(set(names)) == len(names)
        for prefix in ",".join(wanted).split(","):
            assert any(name.startswith(prefix) for name in names), prefix


def test_remote_check_says_what_it_would_install(tmp_path: Path) -> None:
    for server in SERVERS:
        with pytest.raises(Skipped, match="install"):
            server.prepare(tmp_path, False)


def test_an_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--rows", "zarr9"])
    assert "zarr9" in capsys.readouterr().err
