"""A codec that needs a library that is not installed: every command says which one, and how to install it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from in_process import fsbridge

from fsbridge.codecs import table

SENTENCE = f"codec 'flac' needs a library that is not installed: {table.FLAC.install}"


@pytest.fixture(params=["zarr2", "zarr3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An array of four numbers by FLAC, and FLAC's library is missing."""
    monkeypatch.setitem(sys.modules, table.FLAC.module, None)  # as Python notes that an import fails
    folder = tmp_path / "s.zarr" / "a"
    common = {"shape": [4], "fill_value": 0}
    if request.param == "zarr2":
        (folder.parent).mkdir()
        (folder.parent / ".zgroup").write_text('{"zarr_format": 2}')
        told = {"zarr_format": 2, "chunks": [4], "dtype": "<i2", "order": "C", "filters": None, "compressor": {"id": "flac"}}
        name, key = ".zarray", "0"
    else:
        grid = {"name": "regular", "configuration": {"chunk_shape": [4]}}
        codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "numcodecs.flac"}]
        told = {"zarr_format": 3, "node_type": "array", "data_type": "int16", "chunk_grid": grid, "codecs": codecs}
        told |= {"chunk_key_encoding": {"name": "default"}}
        name, key = "zarr.json", "c/0"
    (folder / key).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(common | told))
    (folder / key).write_bytes(b"fLaC")
    return folder.parent


@pytest.mark.parametrize("command", ["info", "verify", "doctor", "cat"])
def test_each_command_names_the_codec_once_and_the_command_that_installs_it(store: Path, command: str) -> None:
    done = fsbridge(command, f"{store}//a/c/0" if command == "cat" else store)
    assert done.returncode == (1 if command != "info" else done.returncode)
    said = done.stdout + done.stderr
    assert SENTENCE in said
    assert all(line.count("codec ") == 1 for line in said.splitlines() if SENTENCE in line)


def test_the_metadata_are_readable_all_the_same(store: Path) -> None:
    assert json.loads(fsbridge("cat", f"{store}//a/zarr.json").stdout)["shape"] == [4]
