"""`scripts/bench` runs, verifies what it reads and reports; no time is asserted. So does `scripts/remote-check`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mounting import ROOT, environment

sys.path.insert(0, str(ROOT / "scripts"))

from benchmarks import data, reading
from benchmarks.programs import together
from benchmarks.report import table
from benchmarks.rounds import Bound, Contender, Pair, Row, alternate, ratio
from checks import Skipped
from remote.servers import SERVERS

TINY = ["--size", "256K", "--chunk-size", "16K", "--rounds", "1", "--scale", "1000"]
ROWS = ["memory", "without a mount", "n5 gzip", "layouts cropped", "small files", "list 100k dotted", "tree hdf5"]
"""One row of each kind."""


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    variables = environment()
    variables["PYTHONPATH"] = os.pathsep.join(
        [variables["PYTHONPATH"], str(ROOT / "scripts"), str(ROOT / "tests" / "support")]
    )
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], capture_output=True, text=True, timeout=300, env=variables
    )


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


def test_a_tiny_run(tmp_path: Path) -> None:
    done = bench(*TINY, "--rows", ",".join(ROWS), "--json", str(tmp_path / "out.json"), "--dir", str(tmp_path / "data"))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    assert len(report["rows"]) == len(ROWS)
    for row in report["rows"]:
        assert row["samples"], row["name"]
        assert all(len(values) == len(next(iter(row["samples"].values()))) for values in row["samples"].values())
        assert f"## {row['name']}" in done.stdout
    assert report["machine"]["cores"] >= 1


def test_a_tiny_run_on_stores_in_object_storage(tmp_path: Path) -> None:
    done = bench("--remote", *TINY, "--rows", "requests,chunks 0,hdf5", "--json", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    hdf5 = ["hdf5 list 30 ms", "hdf5 chunks 30 ms"]
    assert [row["name"] for row in report["rows"]] == ["requests", "chunks 0 ms", *hdf5]
    assert report["rows"][1]["samples"]["TensorStore"]


def test_remote_check_says_what_it_would_install(tmp_path: Path) -> None:
    for server in SERVERS:
        with pytest.raises(Skipped, match="install"):
            server.prepare(tmp_path, False)


def test_an_unknown_row_is_refused() -> None:
    done = bench("--rows", "zarr9")
    assert done.returncode == 2
    assert "zarr9" in done.stderr
