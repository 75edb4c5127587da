"""The daemon's log: what becomes of its thread and its lines when there is no place for them."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import allow_no_processes, in_fork

from fsbridge.config import Config
from fsbridge.errors import SetupError
from fsbridge.mount import logs
from fsbridge.mount.logs import Log
from fsbridge.mount.preflight import SYSLOG


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Write to the log file during the test; afterwards what `Log` sets in the logging module is as before."""
    level, raises = logging.getLogger().level, logging.raiseExceptions
    (tmp_path / "logs").mkdir()
    yield tmp_path / "logs"
    logging.getLogger().setLevel(level)
    logging.raiseExceptions = raises


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


def test_a_system_without_room_for_threads_is_said_in_one_line(tmp_path: Path) -> None:
    def begin() -> None:
        allow_no_processes()
        with pytest.raises(SetupError, match=r"can't start new thread: the limit of processes"):
            Log(Config(source=str(tmp_path), mountpoint=str(tmp_path), foreground=True))

    assert in_fork(begin) == ""


def test_a_mount_in_the_background_logs_to_the_system_s_log_if_there_is_one(tmp_path: Path) -> None:
    config, syslog = Config("/s", "/m"), str(tmp_path / "syslog")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(syslog)
        handler = logs._handler(config, syslog)
        handler.handle(logging.LogRecord("x", logging.WARNING, "", 0, "%s: bad", ("a\nb",), None))
        said = listening.recv(1000).decode()
        handler.close()
    assert re.match(rf"<\d+>fsbridge\[{os.getpid()}\]: WARNING a", said)
    assert "\n" not in said
    assert isinstance(logs._handler(config, str(tmp_path / "nothing")), logging.NullHandler)
    assert SYSLOG == "/dev/log"


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
