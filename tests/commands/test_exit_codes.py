"""Exit codes that programs rely on: verdicts without a reader, and errors that were not foreseen."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import zarr
from in_process import fsbridge

from fsbridge import cli
from fsbridge.commands.arguments import Parser
from fsbridge.mount.control import Control
from fsbridge.unmounted.comparing import Comparison


def spoilt(path: Path) -> Path:
    """A store with more damaged chunks than fit into a pipe's buffer, and a list of wrong digests."""
    array = zarr.create_array(path / "a.zarr", shape=(30,), chunks=(1,), dtype="i4")
    array[...] = 1
    shutil.copytree(path / "a.zarr", path / "good.zarr")
    array[...] = 2
    (path / "list").write_text(f"{'0' * 64}  /\n")
    shutil.copytree(path / "a.zarr", path / "bad.zarr")
    for chunk in (path / "bad.zarr/c").iterdir():
        chunk.write_bytes(b"damage")
    (path / "bad.zarr/g").mkdir()
    return path


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("verify {}/bad.zarr", 1),
        ("verify --json {}/bad.zarr", 1),
        ("verify --missing {}/holes.zarr", 1),
        ("diff {}/a.zarr {}/good.zarr", 1),
        ("digest --check {}/list {}/a.zarr", 1),
        ("digest {}/a.zarr", 0),
        ("info {}/broken.zarr", 1),
        ("ls {}/a.zarr", 0),
        ("cat {}/bad.zarr//c/0 {}/a.zarr//zarr.json", 1),
        ("doctor", 1),
        ("status {}", 0),
    ],
)
def test_a_verdict_without_a_reader_is_not_0(line: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify STORE | true` ends at the first line, before it knows that all is well."""
    spoilt(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    facts = {"mountpoint": str(tmp_path), "source": "/s"}
    zarr.create_array(tmp_path / "holes.zarr", shape=(3,), chunks=(1,), dtype="i4")
    (tmp_path / "broken.zarr").mkdir()
    (tmp_path / "broken.zarr/zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    (tmp_path / "broken.zarr/x").mkdir()
    (tmp_path / "broken.zarr/x/zarr.json").write_text("{")
    reading, writing = os.pipe()
    os.close(reading)
    with (
        contextlib.closing(Control(facts, {"status": lambda question, _: {"state": "serving"}})),
        open(writing, "w") as output,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(io.StringIO()) as words,
    ):
        assert cli.main(["fsbridge", *line.replace("{}", str(tmp_path)).split()]) == code
    assert "Traceback" not in words.getvalue()


@dataclass
class Failing:
    """A command that fails as was not foreseen."""

    error: Exception

    def make_parser(self, program: str) -> Parser:
        return Parser(prog=program)

    def run(self, program: str, argv: Sequence[str]) -> int:
        raise self.error


@pytest.mark.parametrize(
    "error", [KeyError("x"), RuntimeError("odd\x1b"), MemoryError(), OSError(28, "no space"), RecursionError()]
)
def test_an_unforeseen_error_is_a_sentence_and_exit_code_2(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """Python itself ends with 1 then, which means "they differ" to `diff` and "not well" to `verify`."""
    for name in ("diff", "verify", "ls", "doctor"):
        assert cli.main(["fsbridge", name], lambda _: Failing(error)) == 2
        shown, said = capsys.readouterr()
        assert shown == ""
        assert said.startswith("fsbridge: ")
        assert "Traceback" not in said
        assert "\x1b" not in said
        assert (type(error).__name__ in said) == (not isinstance(error, MemoryError | OSError))


def test_an_unforeseen_error_in_a_thread_of_diff_is_exit_code_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("by accident")

    spoilt(tmp_path)
    monkeypatch.setattr(Comparison, "do", staticmethod(fail))
    done = fsbridge("diff", tmp_path / "a.zarr", tmp_path / "good.zarr")
    assert (done.returncode, done.stdout) == (2, "")
    assert "unexpected ZeroDivisionError in test_exit_codes.py, line " in done.stderr
    assert "please report it" in done.stderr


class Unread(io.StringIO):
    """Standard error without a reader."""

    def write(self, _: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize(
    ("line", "code"),
    [("diff {}/nope {}/a.zarr", 2), ("diff {}/bad.zarr {}/a.zarr", 2), ("verify {}/good.zarr", 2), ("ls {}/nope", 1)],
)
def test_errors_without_a_reader_keep_their_exit_code(line: str, code: int, tmp_path: Path) -> None:
    spoilt(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(Unread()):
        assert cli.main(["fsbridge", *line.replace("{}", str(tmp_path)).split()]) == code
