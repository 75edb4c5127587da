"""Signals, crashes and cycles of real mounts leave nothing behind (P10, P11). Not here: refusals and what a mount shows."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from fake_mount import FakeMount
from forking import environment
from mounting import fsbridge, mounted
from observing import own_memory
from waiting import until

CYCLES = 20


def test_p10_sighup_reopens_the_log_or_ends_what_had_a_terminal(fake: FakeMount) -> None:
    fake.start("--log-level", "info")
    assert (fake.path / "broken").stat().st_size
    os.rename(fake.log_path, rotated := fake.log_path.with_suffix(".1"))
    os.kill(fake.daemon, signal.SIGHUP)
    until(lambda: "SIGHUP: dropping caches" in rotated.read_text())
    dropped = {"the cache is empty", "what is remembered is forgotten"}
    until(lambda: all(line in rotated.read_text() + fake.log() for line in dropped))
    with contextlib.suppress(OSError):
        (fake.path / "broken").read_bytes()
    until(lambda: "ZeroDivisionError" in fake.log())
    assert "ZeroDivisionError" not in rotated.read_text()
    assert (fake.path / "dir/3").read_bytes() == b"3\n"
    fake.signal(signal.SIGTERM)
    fake.start_foreground()
    assert fake.signal(signal.SIGHUP) < 2 + 8


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_p10_a_signal_unmounts_even_with_open_files(fake: FakeMount, number: int) -> None:
    fake.start()
    file = os.open(fake.path / "big", os.O_RDONLY)
    directory = os.open(fake.path / "dir", os.O_RDONLY)
    os.read(file, 10)
    assert fake.signal(number) < 2 + 8, "2 s promised, on an idle machine"
    with pytest.raises(OSError, match="Transport endpoint") as caught:
        os.pread(file, 10, 900_000)
    assert caught.value.errno == errno.ENOTCONN
    for fd in (file, directory):
        with contextlib.suppress(OSError):  # close(2) reports that there is no answer
            os.close(fd)
    assert os.listdir(fake.path) == []


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM])
def test_p10_a_signal_that_means_nothing_leaves_the_mount_alone(fake: FakeMount, number: int) -> None:
    fake.start()
    os.kill(fake.daemon, number)
    assert (fake.path / "hello").read_bytes() == b"hello, world\n"


def test_an_interrupt_while_the_command_is_imported_is_no_traceback() -> None:
    command = [sys.executable, "-c", "import sys; sys.modules['fsbridge.cli'] = None; import fsbridge.__main__ as entry\n"
               "import builtins\nreal = builtins.__import__\n"
               "def interrupted(name, *rest, **named):\n    if name == 'fsbridge.cli': raise KeyboardInterrupt\n"
               "    return real(name, *rest, **named)\n"
               "builtins.__import__ = interrupted\nsys.exit(entry.main())"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (8, "")


def test_p10_a_signal_unmounts_even_while_reads_hang(fake: FakeMount) -> None:
    fake.start()
    codes: list[int | None] = []

    def read(file: int) -> None:
        try:
            os.read(file, 10)
        except OSError as error:
            codes.append(error.errno)
        finally:
            with contextlib.suppress(OSError):  # the file system behind it has gone
                os.close(file)

    # Opened here: on a busy machine a later open would find the empty directory below the ended mount.
    readers = [threading.Thread(target=read, args=(os.open(fake.path / "hang", os.O_RDONLY),)) for _ in range(10)]
    for reader in readers:
        reader.start()
    time.sleep(0.5)
    assert (fake.path / "hello").read_bytes() == b"hello, world\n"
    assert fake.signal(signal.SIGTERM) < 2 + 8
    for reader in readers:
        reader.join(10)
    assert len(codes) == 10
    assert set(codes) <= {errno.ENOTCONN, errno.ECONNABORTED, errno.EIO}


def test_a_mount_in_the_foreground_says_when_it_begins_and_ends(fake: FakeMount) -> None:
    process = fake.start_foreground("--log-level", "info")
    assert (fake.path / "hello").exists()
    assert process.stderr is not None
    told = iter(process.stderr.readline, "")
    assert f"fsbridge: INFO {fake.disk} is mounted on {fake.path}\n" in told, "which takes a program of its own"
    process.send_signal(signal.SIGINT)
    assert f"fsbridge: INFO SIGINT: unmounting {fake.path}\n" in told
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "")
    assert not fake.mounted


def test_p10_a_signal_at_any_moment_leaves_no_mount(fake: FakeMount) -> None:
    """Also between the mount and the first request."""
    for delay in range(10):
        process = fake.start_foreground()
        time.sleep(delay / 500)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, process.communicate()
        assert not fake.mounted
        assert process.communicate() == ("", "")


def test_p10_what_never_began_leaves_no_mount(fake: FakeMount) -> None:
    """If the descriptors run out before its first answer, no mount is reported that would stay."""
    for descriptors in range(8, 64, 2):
        limited = ["prlimit", f"--nofile={descriptors}:{descriptors}", *fake.command("--log-file", str(fake.log_path))]
        done = subprocess.run(limited, capture_output=True, text=True, timeout=60, env=environment(), check=False)
        if done.returncode == 0:
            break
        assert not fake.mounted, (descriptors, done.stderr)
    assert done.returncode == 0, done.stderr


def test_p10_after_kill_readers_get_enotconn_until_it_is_cleared(fake: FakeMount) -> None:
    fake.start()
    os.kill(fake.daemon, signal.SIGKILL)
    fake.gone()
    assert fake.mounted
    codes = set()

    def refused() -> bool:
        with pytest.raises(OSError, match=str(fake.path)) as caught:
            os.listdir(fake.path)
        codes.add(caught.value.errno)
        return caught.value.errno == errno.ENOTCONN

    until(refused)
    assert codes <= {errno.ENOTCONN, errno.ECONNABORTED}, "the latter while the killed process is being taken down"
    done = fake.run()
    assert done.returncode == 32
    assert (
        f"{fake.path} is a stale mount: its daemon has ended\n  unmount it with: fsbridge umount {fake.path}" in done.stderr
    )
    fake.start("--force")
    assert (fake.path / "hello").exists()
    os.kill(fake.daemon, signal.SIGKILL)
    fake.gone()
    assert fsbridge("umount", fake.path).returncode == 0
    assert not fake.mounted
    fake.start()


def test_p11_cycles_leave_nothing(fake: FakeMount) -> None:
    for cycle in range(CYCLES):
        fake.start()
        assert (fake.path / "hello").read_bytes() == b"hello, world\n"
        if cycle % 2:
            fake.signal(signal.SIGTERM)
        else:
            subprocess.run(["umount", fake.path], check=True)
            fake.gone()
    assert not mounted(fake.path)


def test_p11_descriptors_threads_and_memory_return_to_their_start(fake: FakeMount) -> None:
    fake.start()
    pid = fake.daemon

    def use(times: int) -> None:
        for _ in range(times):
            (fake.path / "big").read_bytes()
            os.listdir(fake.path / "space")
            (fake.path / "space" / "7").read_bytes()

    def gauges() -> tuple[int, int]:
        return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))

    use(20)
    start, resident = gauges(), own_memory(pid)
    use(200)
    until(lambda: gauges() <= start)
    assert own_memory(pid) - resident < 20 << 20
