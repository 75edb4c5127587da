"""The daemon's log: what becomes of its thread and its lines when there is no place for them."""

from __future__ import annotations

import logging
import logging.handlers
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsbridge.config import Config
from fsbridge.errors import SetupError
from fsbridge.mount import logs
from fsbridge.mount.logs import Log


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write to the log file during the test; afterwards the root logger is as before."""
    monkeypatch.setattr(logging, "raiseExceptions", True)
    level = logging.getLogger().level
    (tmp_path / "logs").mkdir()
    yield tmp_path / "logs"
    logging.getLogger().setLevel(level)


def test_p8_the_log_goes_on_after_a_reopening_in_vain(folder: Path, tmp_path: Path) -> None:
    """SIGHUP while the log's folder is not there: lines are lost and counted until it is, not for ever."""
    config = Config(source=str(tmp_path), mountpoint=str(tmp_path), log_file=str(folder / "log"))
    record, log = Log(config), logging.getLogger("test")
    log.warning("one")
    record.reopen()
    while not (folder / "log").exists() or "one" not in (folder / "log").read_text():
        pass
    folder.rename(tmp_path / "away")
    record.reopen()
    log.warning("two")
    while record._queued.lost == 0:
        assert record._listener._thread is not None
        assert record._listener._thread.is_alive()
    folder.mkdir()
    log.warning("three")
    assert record.close(20.0)
    for handler in record._listener.handlers:
        handler.close()
    assert (tmp_path / "away/log").read_text().endswith("WARNING one\n")
    lines = (folder / "log").read_text().splitlines()
    assert [line.partition("WARNING ")[2] for line in lines] == [
        "three",
        "the log could not be written in time, so 1 lines are lost",
    ]


def test_a_system_without_room_for_threads_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(SetupError, match=r"can't start new thread: the limit of processes"):
        Log(Config(source=str(tmp_path), mountpoint=str(tmp_path), foreground=True))


def test_a_mount_in_the_background_logs_to_the_system_s_log_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Syslog(logging.Handler):
        def __init__(self, address: str) -> None:
            super().__init__()
            asked.append(address)

    monkeypatch.setattr(logging.handlers, "SysLogHandler", Syslog)
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/dev/log")
    handler = logs._handler(Config("/s", "/m"))
    record = logging.LogRecord("x", logging.WARNING, "", 0, "%s: bad", ("a\nb",), None)
    assert handler.format(record).startswith(f"fsbridge[{os.getpid()}]: WARNING a")
    assert "\n" not in handler.format(record)
    assert asked == ["/dev/log"]
    monkeypatch.setattr(os.path, "exists", lambda _: False)
    assert isinstance(logs._handler(Config("/s", "/m")), logging.NullHandler)


def test_a_log_file_that_cannot_be_opened_is_one_line() -> None:
    with pytest.raises(SetupError, match=r"^log file /no/such/log: No such file or directory$"):
        Log(Config("/s", "/m", log_file="/no/such/log"))


def test_mount_prints_the_warnings_of_opening_the_store() -> None:
    log = logging.getLogger("test")
    with logs.Warnings() as warned:
        log.warning("%s", "one\ntwo")
        log.info("not this")
    log.warning("nor this")
    assert len(warned.lines) == 1
    assert warned.lines[0].startswith("fsbridge: one")
    assert "\n" not in warned.lines[0]
