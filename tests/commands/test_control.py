"""`fsbridge list`, `status`, `errors`, `log-level`, `access-log`: real mounts asked through their control sockets."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forking
import in_process
import pytest
from mounting import Mount, MountFunction, fsbridge
from prometheus_client.parser import text_string_to_metric_families
from small_stores import FORMATS
from waiting import until

from fsbridge import __version__
from fsbridge.mount import control, running


@pytest.fixture(autouse=True)
def sockets(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the control sockets of the test's own mounts."""
    where = tmp_path_factory.mktemp("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(where))
    return where / "fsbridge"


def n5_store(where: Path) -> Path:
    """A store with the array `a` of 3 x 2 chunks."""
    where.mkdir(exist_ok=True)
    FORMATS["n5"][1](where / "store.n5")
    return where / "store.n5"


def listed(*points: Mount) -> list[dict[str, Any]]:
    """Return what `fsbridge list --json` says of the mounts on `points`: others may be mounted, too."""
    done = fsbridge("list", "--json")
    assert done.returncode == 0, done.stderr
    return [row for row in json.loads(done.stdout) if row["mountpoint"] in {str(point.path) for point in points}]


def status(point: Mount) -> dict[str, Any]:
    done = fsbridge("status", point.path, "--json")
    assert done.returncode == 0, done.stderr
    row: dict[str, Any]
    (row,) = json.loads(done.stdout)
    return row


def test_the_socket_is_for_its_user_alone(tmp_path: Path, mount: MountFunction, sockets: Path) -> None:
    mount(n5_store(tmp_path))
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    assert sorted(path.suffix for path in sockets.iterdir()) == [".json", ".sock"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in sockets.iterdir()} == {0o600}


def test_nothing_is_left_of_it_after_the_unmount(tmp_path: Path, mount: MountFunction, sockets: Path) -> None:
    point = mount(n5_store(tmp_path))
    subprocess.run(["umount", point.path], check=True)
    until(lambda: point.process.poll() is not None)
    assert list(sockets.iterdir()) == []


def test_a_folder_with_a_long_path_has_a_socket(
    tmp_path: Path, mount: MountFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / ("x" * 200)
    where.mkdir(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(where))
    assert status(mount(n5_store(tmp_path)))["state"] == "serving"


def test_list_names_what_is_mounted(tmp_path: Path, mount: MountFunction) -> None:
    first, second = mount(store := n5_store(tmp_path)), mount(store, "--layout", "zarr2,files")
    rows = {row["mountpoint"]: row for row in listed(first, second)}
    assert {name: rows[str(second.path)][name] for name in ("source", "format", "layout", "pid")} == {
        "source": str(store),
        "format": "n5",
        "layout": "zarr2,files",
        "pid": second.process.pid,
    }
    assert time.time() - rows[str(first.path)]["started"] < 600
    assert rows[str(first.path)]["state"] == "serving"
    table = fsbridge("list").stdout
    line = rf"^{re.escape(str(first.path))} +{re.escape(str(store))} +n5 +zarr3 +{first.process.pid} .* serving$"
    assert re.search(line, table, re.M)


def test_status_counts_requests_bytes_and_errors(tmp_path: Path, mount: MountFunction) -> None:
    point = mount(n5_store(tmp_path))
    before = status(point)
    size = len((point / "a" / "c" / "0" / "0").read_bytes())
    after = status(point)
    assert after["requests"]["open"] > before["requests"].get("open", 0)
    assert after["bytes_decoded"] - before["bytes_decoded"] >= size
    assert after["cache"]["size"] == 256 << 20
    assert (after["errors"], after["last_error"], after["state"]) == ({}, None, "serving")
    assert 0 <= before["uptime"] < after["uptime"]
    words = fsbridge("status", point.path).stdout
    assert f"{point.path}: serving" in words
    assert "errors    none" in words


def test_errors_are_reported_with_their_reasons(tmp_path: Path, mount: MountFunction) -> None:
    store = n5_store(tmp_path)
    damaged = store / "a" / "1" / "0"
    damaged.write_bytes(damaged.read_bytes()[:20])
    point = mount(store)
    shown = point / "a" / "c" / "1" / "0"
    assert fsbridge("errors", point.path).stdout == "no errors\n"
    with pytest.raises(OSError, match="Input/output error"):
        shown.read_bytes()
    point.allow(str(damaged))
    (error,) = json.loads(fsbridge("errors", point.path, "--json").stdout)
    assert error["errno"] == "EIO"
    assert str(damaged) in error["reason"]
    for path in ("a/c/1/0", shown, "a", "/a"):
        assert str(damaged) in fsbridge("errors", point.path, path).stdout, path
    assert fsbridge("errors", point.path, "b").stdout == "no errors\n"
    assert status(point)["errors"]["EIO"] >= 1
    assert str(damaged) in fsbridge("status", point.path).stdout


def test_p7_a_mount_that_hangs_is_named_within_a_second(tmp_path: Path, mount: MountFunction) -> None:
    """P7: one daemon is stopped, another waits for it, a third serves: each is told of, and none waits for the others."""
    stopped = mount(n5_store(tmp_path), "--layout", "n5")
    waiting, serving = mount(stopped.path), mount(n5_store(tmp_path / "other"))
    for point in (waiting, serving):
        point.allow("the store did not answer|still hangs")
    os.kill(stopped.process.pid, signal.SIGSTOP)
    try:
        reader = subprocess.Popen(["find", waiting.path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: _states(waiting) == ["waits for the store"])
        begun = time.monotonic()
        until(  # a busy machine may need several looks
            lambda: _states(stopped, waiting, serving) == ["does not answer", "waits for the store", "serving"]
        )
        assert time.monotonic() - begun < 20
        done = fsbridge("status")
        assert done.returncode == 2
        assert f"{stopped.path}: does not answer\n" in done.stdout
        assert re.search(rf"{waiting.path}: waits for the store for \d+ s \(\d+ requests\)\n", done.stdout)
        done = fsbridge("errors", stopped.path)
        words = f"fsbridge: {stopped.path}: its daemon (pid {stopped.process.pid}) does not answer"
        assert (done.returncode, done.stderr.split("\n")[0]) == (2, words)
    finally:
        os.kill(stopped.process.pid, signal.SIGCONT)
    reader.wait(60)


def _states(*points: Mount) -> list[str]:
    daemons = [daemon for point in points for daemon in running.find_serving(str(point.path))]
    return [answer.state for answer in running.ask(daemons, {"ask": "status"})]


def test_a_killed_daemon_is_listed_until_its_mount_is_cleared(tmp_path: Path, mount: MountFunction, sockets: Path) -> None:
    point = mount(n5_store(tmp_path))
    point.kill()
    done = fsbridge("status", point.path)
    assert (done.returncode, done.stdout.splitlines()[0]) == (2, f"{point.path}: daemon has ended")
    assert f"fsbridge umount {point.path}" in done.stdout
    assert re.search(rf"^{re.escape(str(point.path))} .* daemon has ended$", fsbridge("list").stdout, re.M)
    assert [row["state"] for row in listed(point)] == ["daemon has ended"]
    done = fsbridge("errors", point.path)
    assert (done.returncode, done.stderr) == (
        2,
        f"fsbridge: {point.path}: its daemon (pid {point.process.pid}) has ended\n"
        f"  unmount it with: fsbridge umount {point.path}\n",
    )
    assert fsbridge("umount", point.path).returncode == 0
    assert listed(point) == []
    assert list(sockets.iterdir()) == []


def test_status_of_what_is_no_mount_is_an_error(tmp_path: Path) -> None:
    done = fsbridge("status", tmp_path)
    assert done.returncode == 32
    assert done.stderr.startswith(f"fsbridge: {tmp_path}: fsbridge has no store mounted there\n")


def test_the_level_of_the_log_is_changed_while_it_runs(tmp_path: Path, mount: MountFunction) -> None:
    point = mount(n5_store(tmp_path), "--log-level", "error")
    assert status(point)["log_level"] == "error"
    assert fsbridge("ctl", "log-level", point.path, "info").returncode == 0
    assert status(point)["log_level"] == "info"
    point.process.terminate()
    point.told("SIGTERM: unmounting")
    point.allow("SIGTERM: unmounting|store")
    done = fsbridge("ctl", "log-level", point.path, "loud")
    assert done.returncode == 1
    assert "invalid choice: 'loud'" in done.stderr


def test_each_line_of_a_log_in_json_is_a_document(tmp_path: Path, mount: MountFunction) -> None:
    point = mount(n5_store(tmp_path), "--log-level", "info", "--log-format", "json")
    (line,) = point.told("is mounted on")
    point.allow('"level": "info"')
    said = json.loads(line)
    assert (said["level"], said["message"]) == ("info", f"{tmp_path / 'store.n5'} is mounted on {point.path}")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", said["time"])


@pytest.mark.parametrize("layout", ["zarr3", "zarr2", "n5"])
def test_the_access_log_is_switched_on_and_off(tmp_path: Path, mount: MountFunction, layout: str) -> None:
    point = mount(n5_store(tmp_path), "--layout", layout)
    files = [path for path in sorted(point.path.rglob("*")) if path.is_file()]
    record = tmp_path / "accesses"
    assert fsbridge("ctl", "access-log", point.path, record).returncode == 0
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    for path in files:
        path.read_bytes()
    until(lambda: {f"/{path.relative_to(point.path)}" for path in files} <= {line["path"] for line in _lines(record)})
    opened = next(line for line in _lines(record) if line["what"] == "open")
    assert opened["size"] == (point.path / opened["path"][1:]).stat().st_size
    assert 0 < opened["milliseconds"] < 60_000
    assert fsbridge("ctl", "access-log", point.path, "--off").returncode == 0
    before = len(_lines(record))
    files[0].read_bytes()
    assert not status(point)["access_log"]
    assert len(_lines(record)) == before


def _lines(record: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in record.read_text().splitlines()]


def test_the_access_log_may_begin_with_the_mount(tmp_path: Path, mount: MountFunction) -> None:
    record = tmp_path / "accesses"
    point = mount(n5_store(tmp_path), "--access-log", str(record))
    (point / "zarr.json").read_bytes()
    until(lambda: [line["path"] for line in _lines(record)] == ["/zarr.json"])


def test_prometheus_reads_the_metrics(tmp_path: Path, mount: MountFunction) -> None:
    odd = n5_store(tmp_path).rename(tmp_path / 'a "quoted" \\ name')
    point = mount(odd)
    (point / "zarr.json").read_bytes()
    text = fsbridge("status", point.path, "--prometheus").stdout
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (up,) = families["fsbridge_up"].samples
    assert (up.value, up.labels) == (1, {"mountpoint": str(point.path), "source": str(odd)})
    requests = {sample.labels["request"]: sample.value for sample in families["fsbridge_requests"].samples}
    assert requests["open"] == 1
    assert families["fsbridge_cache_size_bytes"].samples[0].value == 256 << 20


def test_a_watched_status_is_printed_until_an_interrupt(tmp_path: Path, mount: MountFunction) -> None:
    point = mount(n5_store(tmp_path))
    words = ("status", point.path, "--watch", "0.1", "--json")
    watching = forking.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert watching.stdout is not None
    looks = [json.loads(watching.stdout.readline()) for _ in range(3)]
    watching.send_signal(signal.SIGINT)
    assert watching.wait(30) == 0
    assert watching.communicate()[1] == ""
    assert [look[0]["state"] for look in looks] == ["serving"] * 3


def test_a_watched_status_has_rates(tmp_path: Path, mount: MountFunction) -> None:
    point = mount(n5_store(tmp_path))
    watching = forking.start("status", point.path, "--watch", "0.1", stdout=subprocess.PIPE)
    assert watching.stdout is not None
    assert any("/s)" in watching.stdout.readline() for _ in range(30))
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=30)


@pytest.mark.parametrize("question", [b"", b"\n", b"{}\n", b"[1]\n", b'{"ask": []}\n', b"[" * 60_000, b'{"ask": "kill"}\n'])
def test_p8_nonsense_on_the_socket_does_no_harm(
    tmp_path: Path, mount: MountFunction, sockets: Path, question: bytes
) -> None:
    """P8: whatever is sent, the daemon goes on and answers the next one."""
    point = mount(n5_store(tmp_path))
    (path,) = sockets.glob("*.sock")
    with socket.socket(socket.AF_UNIX) as asking, control.short_address(str(path)) as address:
        asking.settimeout(30)
        asking.connect(address)
        asking.sendall(question)
        asking.shutdown(socket.SHUT_WR)
        assert b"does not know this request" in asking.recv(4096)
    assert status(point)["state"] == "serving"


def test_a_silent_client_of_the_socket_delays_no_other_one(tmp_path: Path, mount: MountFunction, sockets: Path) -> None:
    point = mount(n5_store(tmp_path))
    (path,) = sockets.glob("*.sock")
    with socket.socket(socket.AF_UNIX) as silent, control.short_address(str(path)) as address:
        silent.connect(address)
        assert status(point)["state"] == "serving"


def test_another_user_gets_no_answer(tmp_path: Path, mount: MountFunction) -> None:
    point = mount(n5_store(tmp_path))
    found = [mount for mount in running.list_running() if mount.mountpoint == str(point.path)]
    words = f"import os, socket; os.setuid(65534); socket.socket(socket.AF_UNIX).connect({found[0].socket!r})"
    done = subprocess.run(["python3", "-c", words], capture_output=True, text=True, check=False)
    assert "PermissionError" in done.stderr


ANSWER: dict[str, Any] = {
    "state": "serving",
    "uptime": 1.0,
    "requests": {"open": 3},
    "under_way": 0,
    "slow": {"requests": 1, "seconds": 7.0},
    "bytes_read": 8192,
    "bytes_decoded": 0,
    "cache": {"size": 1 << 20, "used": 0, "chunks": 0, "hits": 1, "misses": 1},
    "errors": {"EIO": 1},
    "last_error": {"path": "a", "errno": "EIO", "reason": "damaged", "last": 1e9, "times": 1},
}


@pytest.mark.parametrize("fact", ["format", "layout", "version"])
def test_a_daemon_of_another_version_may_say_less_of_itself(fact: str, tmp_path: Path) -> None:
    facts = {"mountpoint": str(tmp_path), "source": "/s", "format": "n5", "layout": "zarr3", "version": "9.8"}
    del facts[fact]
    daemon = control.Control(facts, {"status": lambda question, descriptors: {"state": ""}})
    try:
        said = in_process.fsbridge("status", str(tmp_path)).stdout
        assert said.startswith(f"{tmp_path}: state unknown\n  source    /s")
        assert "does not understand its answer" in said
        assert str(os.getpid()) in in_process.fsbridge("list").stdout
    finally:
        daemon.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[[dict[str, object]], str]]:
    """Begins a control socket of a daemon of another version that gives an answer to everything; returns its mount point."""
    begun: list[control.Control] = []

    def begin(answer: dict[str, object]) -> str:
        for one in begun:
            one.close()
        facts = {"mountpoint": str(tmp_path), "source": "/s", "format": "n5", "layout": "zarr3", "version": "9.8"}
        begun.append(control.Control(facts, {ask: lambda question, descriptors: answer for ask in ("status", "errors")}))
        return str(tmp_path)

    yield begin
    for one in begun:
        one.close()


OTHER: list[object] = [None, {}, [], "x", "\x1b[2J", {"": {}}, 1e400, -1e308, 10**400]


def test_status_beside_a_daemon_of_another_version_shows_what_it_understands(
    daemon: Callable[[dict[str, object]], str],
) -> None:
    whole = in_process.fsbridge("status", daemon(ANSWER)).stdout
    assert "fsbridge 9.8, for 1 s" in whole
    assert "unknown" not in whole
    for name in [*ANSWER, *(f"cache.{name}" for name in ANSWER["cache"]), "slow.requests", "slow.seconds"]:
        for other in ["gone", *OTHER]:
            answer = json.loads(json.dumps(ANSWER))
            outer, _, inner = name.partition(".")
            target, key = (answer[outer], inner) if inner else (answer, outer)
            target[key] = other
            if other == "gone":
                del target[key]
            point = daemon(answer)
            done = in_process.fsbridge("status", point)
            assert (done.returncode, done.stderr) == (0, ""), (name, other)
            assert "\x1b" not in done.stdout
            if other == "gone" and name != "state":
                assert f"the daemon is fsbridge 9.8, and this command, {__version__}, does not understand" in done.stdout
                missing = [line for line in whole.splitlines() if line not in done.stdout]
                assert 1 <= len(missing) <= 2, name
            text = in_process.fsbridge("status", point, "--prometheus")
            assert (text.returncode, text.stderr) == (0, "")
            list(text_string_to_metric_families(text.stdout))
            assert 'fsbridge_up{mountpoint="' in text.stdout


def test_list_says_which_mounts_another_version_serves(daemon: Callable[[dict[str, object]], str], tmp_path: Path) -> None:
    daemon(ANSWER)
    line = rf"^{re.escape(str(tmp_path))} +/s +n5 +zarr3 .* serving, of fsbridge 9\.8$"
    assert re.search(line, in_process.fsbridge("list").stdout, re.M)
    rows = json.loads(in_process.fsbridge("list", "--json").stdout)
    assert [(row["state"], row["version"]) for row in rows if row["mountpoint"] == str(tmp_path)] == [("serving", "9.8")]


def test_status_of_a_daemon_whose_answer_says_nothing(daemon: Callable[[dict[str, object]], str]) -> None:
    done = in_process.fsbridge("status", daemon({}))
    assert (done.returncode, done.stderr) == (0, "")
    assert "state unknown" in done.stdout
    assert "the daemon is fsbridge 9.8" in done.stdout


@pytest.mark.parametrize(
    "answer", [{}, {"errors": None}, {"errors": [{"path": "a"}]}, {"errors": [{"last": "x"}]}, {"errors": 1}]
)
def test_errors_of_a_daemon_of_another_version_are_one_clear_message(
    daemon: Callable[[dict[str, object]], str], answer: dict[str, object]
) -> None:
    point = daemon(answer)
    done = in_process.fsbridge("errors", point)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"fsbridge: {point}: the daemon is fsbridge 9.8, and this command, {__version__}, does not understand its answer\n"
        f"  use the version that mounted it, or mount it again: fsbridge umount {point}\n"
    )


def test_a_daemon_that_does_not_know_a_question_says_so(daemon: Callable[[dict[str, object]], str]) -> None:
    done = in_process.fsbridge("ctl", "log-level", daemon({}), "debug")
    assert done.returncode == 1
    assert "it may be another version of fsbridge" in done.stderr


@pytest.mark.parametrize(
    ("mounted", "asked"), [("link/m", "real/m"), ("real/m", "link/m"), ("real/l", "real/m"), ("link/m", "link/l")]
)
def test_a_mount_point_reached_through_a_link_is_one_mount(mounted: str, asked: str, tmp_path: Path) -> None:
    (tmp_path / "real/m").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real/l").symlink_to("m")
    real = os.path.realpath(tmp_path / "real/m")
    store = n5_store(tmp_path)
    damaged = store / "a" / "1" / "0"
    damaged.write_bytes(damaged.read_bytes()[:20])
    assert fsbridge("mount", store, tmp_path / mounted).returncode == 0
    try:
        mounts = [mount.mountpoint for mount in running.list_running()]
        assert [point for point in mounts if point.startswith(os.path.realpath(tmp_path))] == [real]
        assert [mount.format for mount in running.find_serving(str(tmp_path / asked))] == ["n5"]
        assert in_process.fsbridge("ctl", "log-level", f"{tmp_path}/{asked}", "critical").returncode == 0
        with pytest.raises(OSError, match="Input/output error"):
            (tmp_path / mounted / "a/c/1/0").read_bytes()
        for path in ("a/c/1/0", tmp_path / mounted / "a/c/1/0", tmp_path / asked / "a/c/1/0"):
            assert str(damaged) in in_process.fsbridge("errors", f"{tmp_path}/{asked}", path).stdout, path
        for path in ("b", tmp_path / mounted / "b", tmp_path / asked / "b"):
            assert in_process.fsbridge("errors", f"{tmp_path}/{asked}", path).stdout == "no errors\n", path
    finally:
        assert fsbridge("umount", real).returncode == 0
