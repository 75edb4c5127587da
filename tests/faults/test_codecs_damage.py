"""Damage and malice, each in a process of its own: mutations, a corpus of chunks that broke decoders, and bombs."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import codec_samples
import fuzz_codecs
import fuzz_documents
import fuzz_states
import fuzz_stores
import fuzz_verify
import pytest
from fuzz_codecs import ROOT, fuzz
from paths import DATA

from fsbridge.errors import CorruptData

MUTATIONS = 200
PARTS = 4
"""The tests of child processes are several, so that processors share them."""
LIMIT = 1 << 20
CORPUS = sorted((DATA / "corpus").glob("codec-*.json"))
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests/support'}", "MALLOC_PERTURB_": "165"}


def run(program: str, *arguments: str, environment: dict[str, str] | None = None) -> str:
    """Output of a Python program in a process of its own, which must end well."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment or ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr[-2000:]}"
    return done.stdout


FUZZERS: dict[str, tuple[Any, str, list[str]]] = {
    "": (fuzz_codecs, "codec", ["blosc", "zlib", "gzip"]),
    "stores": (fuzz_stores, "kind", ["n5", "hdf5"]),
    "documents": (fuzz_documents, "kind", ["n5", "hdmf"]),
    "verify": (fuzz_verify, "kind", ["virtual", "hdf5"]),
    "states": (fuzz_states, "kind", ["n5", "around-n5"]),
}


@pytest.mark.parametrize("name", FUZZERS)
def test_the_fuzzers_take_as_many_names_as_their_usage_says(name: str) -> None:
    fuzzer, option, names = FUZZERS[name]
    options = fuzzer.parser().parse_args([f"--{option}", *names, "--count", "5"])
    assert (getattr(options, option), options.count) == (names, 5)
    assert fuzzer.parser().parse_args([f"--{option}", names[0], f"--{option}", names[1]]) == fuzzer.parser().parse_args(
        [f"--{option}", *names[:2]]
    )


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--count", "1", "--help"]])
def test_the_fuzzers_say_how_they_are_used(words: list[str]) -> None:
    done = subprocess.run([ROOT / "scripts/fuzz", *words], capture_output=True, text=True, check=True)
    assert all(f"scripts/fuzz {name}".strip() in done.stdout for name in FUZZERS)
    for name, (fuzzer, option, names) in FUZZERS.items():
        usage = " ".join(fuzzer.parser().format_help().split())
        assert f"usage: scripts/fuzz {name}".strip() in usage
        assert option == "codec" or all(kind in usage for kind in names)


def test_mutated_chunks_are_refused_or_give_bytes_that_were_really_decoded() -> None:
    names = [name for name in codec_samples.cases() if name not in codec_samples.confined()]
    rows = fuzz(names, 1, MUTATIONS)
    assert len(rows) > 50
    assert all(row["count"] == MUTATIONS for row in rows)


@pytest.mark.parametrize("part", range(PARTS))
def test_p8_mutated_chunks_that_child_processes_decode(part: int) -> None:
    """A few of those that `scripts/fuzz` has, of each codec with a sample."""
    names = sorted(codec_samples.confined())[part::PARTS]
    rows = fuzz(names, 1, MUTATIONS // 10)
    assert [row["codec"] for row in rows] == names


@pytest.mark.parametrize("part", range(PARTS))
def test_chunks_that_are_cut_are_refused_or_complete(part: int) -> None:
    """A library that makes up what is missing does so twice: two fillings of the memory around do not show it."""
    found = {}
    for name in sorted(codec_samples.cases())[part::PARTS]:
        case = codec_samples.cases()[name]
        for sample in case.samples:
            whole = bytes(case.chain.decode(sample.stored, sample.size, LIMIT))
            for length in {*(len(sample.stored) * quarters // 4 for quarters in (1, 2, 3)), len(sample.stored) - 1}:
                with contextlib.suppress(CorruptData):
                    if bytes(case.chain.decode(sample.stored[:length], sample.size, LIMIT)) != whole:
                        found[name, length] = f"other numbers than from {len(sample.stored)} bytes"
    assert found == {}


@pytest.mark.parametrize("part", range(PARTS))
def test_bytes_after_the_end_of_a_chunk_are_refused_or_change_nothing(part: int) -> None:
    """Only what docs/formats.md names takes no notice of them."""
    for name in sorted(codec_samples.cases())[part::PARTS]:
        case = codec_samples.cases()[name]
        for sample in case.samples:
            whole = bytes(case.chain.decode(sample.stored, sample.size, LIMIT))
            for more in (b"\0", b"\xff", b"more", bytes(64), sample.stored):
                with contextlib.suppress(CorruptData):
                    assert bytes(case.chain.decode(sample.stored + more, sample.size, LIMIT)) == whole, (name, more)
                    assert name.startswith("imagecodecs_") or name in TAKES_MORE, (name, more)


TAKES_MORE = ("flac", "wavpack", "zfp", "zfpy", "pcodec", "hdf5 nbit")
"""Cases that take no notice of bytes after the end, beside those of imagecodecs. HDF5 itself writes one after nbit."""


REPLAY = """
import base64, faulthandler, json, sys
from codec_samples import cases
from fsbridge.errors import FsbridgeError
faulthandler.enable()
for path in sys.argv[1:]:
    case = json.load(open(path))
    try:
        result = cases()[case["codec"]].chain.decode(base64.b64decode(case["data"]), case["size"], 1 << 20)
        print("decoded", base64.b64encode(bytes(result)).decode(), flush=True)
    except FsbridgeError as error:
        print(type(error).__name__, error, flush=True)
"""


@pytest.fixture(scope="module")
def outcomes() -> dict[Path, str]:
    """Return the outcome for each chunk of the corpus."""
    return dict(zip(CORPUS, run(REPLAY, *map(str, CORPUS)).splitlines(), strict=True))


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_chunks_that_were_wrong_once_are_decoded_or_refused(outcomes: dict[Path, str], path: Path) -> None:
    case = json.loads(path.read_text())
    outcome, _, rest = outcomes[path].partition(" ")
    assert outcome == case["outcome"], (case["why"], rest)
    if outcome == "decoded":
        assert base64.b64decode(rest) == base64.b64decode(case["result"])


BOMB_SIZE = 1 << 20
BOMBS = """
import re, sys
from pathlib import Path
from typing import Any
import codec_bombs
from fsbridge.codecs import native
from fsbridge.errors import FsbridgeError
def memory(name):
    return int(re.search(rf"{name}:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
native.warm_up()
for name, make in codec_bombs.BOMBS.items():
    decoder, data = make()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the highest memory use so far
    before = memory("VmRSS")
    for size in (int(sys.argv[1]), None):
        try:
            decoder.decode(data, size, int(sys.argv[1]), None)
        except FsbridgeError:
            pass
        else:
            sys.exit(f"{name} was decoded")
    print(memory("VmHWM") - before, name, flush=True)
"""


def test_bombs_cost_no_more_than_was_expected() -> None:
    plain = {key: value for key, value in ENVIRONMENT.items() if key != "MALLOC_PERTURB_"}
    lines = run(BOMBS, str(BOMB_SIZE), environment=plain).splitlines()
    assert len(lines) >= 16
    for line in lines:
        grown, _, name = line.partition(" ")
        assert int(grown) < BOMB_SIZE + (16 << 20), f"{name} took {int(grown) >> 20} MiB"
