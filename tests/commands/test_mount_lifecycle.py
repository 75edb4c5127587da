"""The life of real mounts of an in-memory tree, until nothing is left. Not here: refusals, signals (`test_mount_*.py`)."""

from __future__ import annotations

import ctypes
import errno
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import posix_checks
import pytest
from commands_run import refused, run
from fake_mount import FakeMount, ended
from forking import environment
from mounting import fsbridge, mounted, mounts_at, without_log_notice
from waiting import until

from fsbridge import cli
from fsbridge.config import Config
from fsbridge.errors import SetupError
from fsbridge.mount import daemon, preflight

NOBODY = 65534


def test_the_command_returns_when_the_root_answers(fake: FakeMount) -> None:
    fake.start()
    assert "hello" in os.listdir(fake.path)
    assert (fake.path / "hello").read_bytes() == b"hello, world\n"
    pid = fake.daemon
    assert os.getsid(pid) == pid, "a session of its own"
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)] == ["/dev/null"] * 3


def test_the_mount_is_read_only_and_named(fake: FakeMount) -> None:
    fake.start()
    (found,) = mounts_at(fake.path)
    assert {"ro", "nosuid", "nodev"} <= found.options
    assert (found.fstype, found.source) == ("fuse.fsbridge", str(fake.disk))
    assert "default_permissions" in found.super_options
    assert "allow_other" not in found.super_options


@pytest.mark.parametrize("option", ["allow_other", "noatime", "noexec", "sync", "fsname=other"])
def test_kernel_options_reach_the_kernel(fake: FakeMount, option: str) -> None:
    fake.start("-o", option)
    (found,) = mounts_at(fake.path)
    assert option.removeprefix("fsname=") in found.options | found.super_options | {found.source}


def test_names_are_given_to_libfuse_once_and_as_it_takes_them() -> None:
    always = {"ro", "default_permissions"}
    shown = daemon.kernel_options(Config("/a!~ ä,b\\", "/m", allow_other=True))
    assert shown == always | {"allow_other", "subtype=fsbridge", r"fsname=/a!~\040\303\244\054b\134"}
    given = daemon.kernel_options(Config("/a", "/m", kernel_options=("fsname=x,y", "subtype=z", "noatime")))
    assert given == always | {"noatime", "subtype=z", r"fsname=x\054y"}


def test_a_path_with_odd_letters_is_mounted_and_unmounted(tmp_path: Path) -> None:
    where = tmp_path / 'ä b,c\\d"e'
    where.mkdir()
    fake = FakeMount(where)
    try:
        fake.start()
        assert mounted(fake.path)
        assert (fake.path / "hello").exists()
        preflight.unmount(str(fake.path))
        assert not mounted(fake.path)
    finally:
        fake.clear()


@pytest.mark.skipif(os.geteuid() != 0, reason="read-ahead can be set by root only")
def test_the_kernel_reads_a_mebibyte_ahead(fake: FakeMount) -> None:
    fake.start()
    device = os.stat(fake.path).st_dev
    setting = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    assert setting.read_text().strip() == "1024"


def test_a_missing_mount_point_is_refused(fake: FakeMount) -> None:
    fake.path.rmdir()
    assert f"{fake.path} does not exist\n  create it with: mkdir -p {fake.path}\n" in refused(fake)


def test_the_command_that_helps_can_be_copied_whatever_the_path(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"mkdir -p '.*/two words'$"):
        preflight.check(Config(source="", mountpoint=f"{tmp_path}/two words"))


def test_a_mount_point_that_is_a_link_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nothing")
    with pytest.raises(SetupError, match=f"{tmp_path}/link is a link to nothing, which does not exist$"):
        preflight.check(Config(source="", mountpoint=f"{tmp_path}/link"))


@pytest.fixture
def public() -> Iterator[FakeMount]:
    """A mount where every user may reach the mount point, which is an ordinary user's."""
    with tempfile.TemporaryDirectory() as where:
        mount = FakeMount(Path(where))
        os.chmod(where, 0o755)
        if os.geteuid() == 0:
            os.chown(mount.path, NOBODY, NOBODY)
        yield mount
        mount.clear()


def test_an_ordinary_user_mounts_and_unmounts(public: FakeMount) -> None:
    """Unmount by fusermount3. Root becomes a user who may reach this test's files, in a namespace with what users need."""
    path, fsbridge = shlex.quote(str(public.path)), shlex.join([sys.executable, "-m", "fsbridge"])
    disk = shlex.quote(str(public.disk))
    script = f"""set -e
"$@"
[ "$(stat -c %u {path}/hello)" = "$(id -u)" ]
cat {path}/hello
exec 3<{path}/hello
! {fsbridge} umount {path}
exec 3<&-
{fsbridge} umount {path}
! mountpoint -q {path}
"$@" --foreground &
while ! mountpoint -q {path}; do sleep 0.05; done
kill -TERM $!
wait $!
! mountpoint -q {path}
"""
    command = ["sh", "-c", script, "sh", *public.command()]
    if os.geteuid() == 0:
        machine = f"""set -e
mount -t tmpfs none {disk}
if [ "$(stat -c %a /dev/fuse)" != 666 ]; then
    mknod -m 666 {disk}/fuse c 10 229
    mount --bind {disk}/fuse /dev/fuse
fi
if ! [ -e /etc/mtab ]; then
    mkdir {disk}/etc
    ln -s /proc/self/mounts {disk}/etc/mtab
    mount -t overlay overlay -o lowerdir={disk}/etc:/etc /etc
fi
exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups --inh-caps=$0 --ambient-caps=$0 "$@"
"""
        command = ["unshare", "-m", "sh", "-c", machine, "-all,+dac_read_search", *command]
    done = run(*command)
    assert (done.returncode, done.stdout) == (0, "hello, world\n"), done.stderr
    busy, help = without_log_notice(done.stderr).splitlines()
    assert busy.endswith("Device or resource busy")
    assert f"fuser -vm {public.path}" in help


@pytest.mark.parametrize(
    ("said", "helps"),
    [
        ("/usr/bin/fusermount3: entry for /mnt not found in /etc/mtab", "only root, or the user who mounted it"),
        ("fusermount3: failed to open /etc/mtab: No such file or directory", "ln -s /proc/self/mounts /etc/mtab"),
        ("fusermount3: user has no write access to mountpoint /mnt", "of your own"),
        ("fuse: failed to exec fusermount3: No such file or directory", "apt-get install fuse3"),
        ("fusermount3: mount failed: Operation not permitted", "setuid root"),
        ("fuse: mount failed: Permission denied", "apparmor=unconfined"),
        ("Device or resource busy", "fuser -vm /mnt "),
        ("Input/output error", ""),
    ],
)
def test_what_helps_is_said(said: str, helps: str) -> None:
    """The words are those of libfuse 3.14 run as an ordinary user."""
    assert helps in preflight.hint(said, "/mnt")
    assert bool(helps) == bool(preflight.hint(said, "/mnt"))


def test_umount_ends_the_daemon(fake: FakeMount) -> None:
    fake.start()
    subprocess.run(["umount", fake.path], check=True)
    fake.gone()
    assert fake.log() == ""
    fake.start()
    done = fsbridge("umount", fake.path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    fake.gone()


def test_umount_of_the_store_or_of_what_is_below_the_mount_names_the_mount(
    fake: FakeMount, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.start()
    for meant in (fake.disk, fake.path / "a"):
        assert cli.main(["fsbridge", "umount", str(meant)]) == 32
        said = capsys.readouterr().err
        assert said == f"fsbridge: {meant} is not mounted\n  perhaps: fsbridge umount {fake.path}\n"
    assert cli.main(["fsbridge", "umount", str(fake.path.parent)]) == 32
    assert capsys.readouterr().err == f"fsbridge: {fake.path.parent} is not mounted\n  fsbridge list shows all mounts\n"
    assert fake.mounted


def test_umount_through_a_symlink(fake: FakeMount, tmp_path: Path) -> None:
    fake.start()
    (tmp_path / "link").symlink_to(fake.path)
    assert fsbridge("umount", tmp_path / "link").returncode == 0
    assert not fake.mounted


def test_umount_of_a_busy_mount_says_what_to_do(fake: FakeMount) -> None:
    fake.start()
    with open(fake.path / "hello"):
        done = fsbridge("umount", fake.path)
        assert done.returncode == 32
        assert "busy" in done.stderr
        assert f"fuser -vm {fake.path}" in done.stderr
        assert fsbridge("umount", fake.path, "--lazy").returncode == 0
        assert not fake.mounted
    fake.gone()


@pytest.mark.parametrize("programs", [None, "of nothing"])
def test_systemd_is_notified_also_where_the_path_has_no_programs(
    fake: FakeMount, tmp_path: Path, programs: str | None
) -> None:
    """Mounting said that the mounted root does not answer: No such file or directory."""
    path = {} if programs is None else {"PATH": str(tmp_path)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(20)
        process = fake.start_foreground(env={**environment(), "NOTIFY_SOCKET": str(tmp_path / "notify"), **path})
        assert listener.recv(100) == b"READY=1"
        process.send_signal(signal.SIGTERM)
        assert listener.recv(100) == b"STOPPING=1"
        assert process.wait(20) == 0


def test_p7_the_watchdog_is_answered_by_the_event_loop(fake: FakeMount, tmp_path: Path) -> None:
    """P7: systemd hears nothing from a daemon that hangs, and so restarts it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(20)
        asked = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
        process = fake.start_foreground(env={**environment(), **asked})
        assert listener.recv(100) == b"READY=1"
        for _ in range(3):
            status, watchdog = listener.recv(500).decode().split("\n")
            assert status.startswith(f"STATUS={fake.disk}: serving, cache ")
            assert watchdog == "WATCHDOG=1"
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(TimeoutError):  # noqa: PT012  # what was sent before it stopped is there still
            listener.settimeout(2)
            while True:
                listener.recv(500)
        process.send_signal(signal.SIGCONT)
        process.terminate()
        assert process.wait(20) == 0


def test_an_interrupt_in_the_middle_of_the_fork_is_not_lost(fake: FakeMount) -> None:
    """Python ignores what is raised in its own steps after a fork, as logging's."""
    program = (
        "import os, signal, sys, time; from fsbridge.cli import main; import fsbridge.mount.lifecycle as m\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "os.register_at_fork(after_in_parent=lambda: signal.raise_signal(signal.SIGINT))\n"
        "m.mount.__defaults__ = (lambda config: time.sleep(3600),)\n"
        "sys.exit(main(['fsbridge', 'mount', *sys.argv[1:]]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(fake.disk), str(fake.path)], env=environment(), stderr=subprocess.PIPE
    )
    try:
        assert (process.communicate(timeout=20)[1], process.returncode) == (b"", 8)
    finally:
        process.kill()


@pytest.mark.parametrize("early", [False, True], ids=["while it waits", "just before it waits"])
def test_the_caller_may_give_up_waiting(fake: FakeMount, early: bool) -> None:
    """An interrupted mount command leaves no daemon that mounts later.

    `early`: a call that waits goes on, as one does that has begun just after the interrupt.
    """
    program = (
        "import signal, sys, time; from fsbridge.cli import main; import fsbridge.mount.lifecycle as m\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a test run in the background inherits it ignored
        f"signal.siginterrupt(signal.SIGINT, {not early})\n"
        "m.mount.__defaults__ = (lambda config: time.sleep(3600),)\n"
        "sys.exit(main(['fsbridge', 'mount', *sys.argv[1:]]))"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(fake.disk), str(fake.path)], env=environment())
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until(lambda: children.read_text().strip())
        child = int(children.read_text())
        until(lambda: os.getsid(child) == child)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 8
    finally:
        process.kill()
        process.wait()
    until(lambda: ended(child))
    assert not fake.mounted


def test_p1_p2_posix_on_every_kind_of_node(fake: FakeMount) -> None:
    fake.start()
    for file, directory in (("big", "dir"), ("peek", "space"), ("hello", "."), ("space/7", "space"), ("slow", "dir")):
        assert posix_checks.check(fake.path / file, fake.path / directory) >= 50


def test_extended_attributes_are_shown_if_told(fake: FakeMount) -> None:
    fake.start("--xattrs")
    file = fake.path / "hello"
    assert os.listxattr(file) == ["user.fsbridge.test", "user.fsbridge.size"]
    assert os.getxattr(file, "user.fsbridge.test") == b"value"
    with pytest.raises(OSError, match="No data") as caught:
        os.getxattr(file, "user.other")
    assert caught.value.errno == errno.ENODATA
    library = ctypes.CDLL(None, use_errno=True)
    assert library.getxattr(os.fsencode(file), b"user.fsbridge.test", b"x" * 3, 3) == -1
    assert ctypes.get_errno() == errno.ERANGE


def test_p7_p8_hung_and_broken_files_leave_the_rest_alive(fake: FakeMount) -> None:
    fake.start()
    readers = [subprocess.Popen(["cat", fake.path / "hang"], stderr=subprocess.DEVNULL) for _ in range(20)]
    with pytest.raises(OSError, match="Input/output"):
        (fake.path / "broken").read_bytes()
    assert len(os.listdir(fake.path / "space")) == 1000
    assert (fake.path / "peek").read_bytes() == bytes(range(256)) * 4096
    fake.signal(signal.SIGTERM)
    for reader in readers:
        assert reader.wait(20) == 1
    assert fake.log().count("unexpected ZeroDivisionError in read of /broken") == 1


@pytest.mark.parametrize("kind", ["keyed", "plain"])
def test_p9_a_new_open_sees_the_file_as_it_is_now(fake: FakeMount, kind: str) -> None:
    """`keyed`: the outdated inode answers ESTALE and the kernel looks the path up again by itself."""
    fake.start("--metadata-ttl", "60")
    size = 300_000

    def put(content: bytes) -> None:
        (fake.disk / "new").write_bytes(content * size)
        os.rename(fake.disk / "new", fake.disk / "file")

    path = fake.path / kind / "file"
    for content in (b"a", b"b", b"c"):
        put(content)
        for _ in range(3):
            assert path.read_bytes() == content * size
    old = os.open(path, os.O_RDONLY)
    assert os.pread(old, 10, 0) == b"c" * 10
    put(b"d")
    assert path.read_bytes() == b"d" * size
    assert os.pread(old, size, 0) == b"c" * size, "an open file keeps its version"
    os.close(old)
    assert path.read_bytes() == b"d" * size


def test_p9_the_page_cache_is_used_while_nothing_changes(fake: FakeMount) -> None:
    """A second read of an unchanged file asks the daemon for nothing."""
    fake.start("--metadata-ttl", "60")  # attributes are not asked for again, however busy the machine is
    (fake.path / "big").read_bytes()
    (fake.path / "big").read_bytes()
    with open(fake.path / "big", "rb") as file:
        pid = fake.daemon
        os.kill(pid, signal.SIGSTOP)
        try:
            assert os.pread(file.fileno(), 1 << 20, 0) == bytes(range(256)) * 4096
        finally:
            os.kill(pid, signal.SIGCONT)


def test_no_file_system_call_on_the_event_loops_thread(fake: FakeMount) -> None:
    """An audit hook in the daemon records every opening, listing and the like that the event loop's thread makes."""
    program = """
import sys, threading
import fake_tree, fsbridge.mount.daemon, fsbridge.kernel.filesystem
watched = []
calls = ("open", "os.", "shutil.", "subprocess.", "import")
def hook(event, args):
    if watched and threading.get_ident() == watched[0] and event.startswith(calls) and event != "os.kill":
        print("AUDIT", event, args, file=sys.stderr)
sys.addaudithook(hook)
original = fsbridge.mount.daemon.Daemon._main
async def main(self, early):
    original_main = fsbridge.mount.daemon.pyfuse3.main
    async def observed(**kwargs):
        watched.append(threading.get_ident())
        open("/dev/null").close()  # shows that the hook works
        try:
            await original_main(**kwargs)
        finally:
            watched.clear()
    fsbridge.mount.daemon.pyfuse3.main = observed
    await original(self, early)
fsbridge.mount.daemon.Daemon._main = main
sys.exit(fake_tree.main())
"""
    process = fake.start_foreground(program=program)
    for name in ("hello", "big", "peek", "slow", "space/7", "keyed", "plain", "dir"):
        path = fake.path / name
        os.listdir(path) if path.is_dir() else path.read_bytes()
    (fake.disk / "file").write_text("x")
    assert (fake.path / "keyed" / "file").read_text() == "x"
    assert not (fake.path / "absent").exists()
    with pytest.raises(OSError, match="Input/output"):
        (fake.path / "broken").read_bytes()
    os.statvfs(fake.path)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert "ZeroDivisionError" in err
    assert [line for line in err.splitlines() if "AUDIT" in line] == ["AUDIT open ('/dev/null', 'r', 524288)"]


def test_a_caller_without_standard_streams(fake: FakeMount) -> None:
    shell = 'exec "$0" "$@" 0<&- 1>&- 2>&-'
    assert run("sh", "-c", shell, *fake.command()).returncode == 0
    assert (fake.path / "hello").read_bytes() == b"hello, world\n"
    fake.signal(signal.SIGTERM)


def test_a_hung_daemon_can_be_unmounted(fake: FakeMount) -> None:
    """`fsbridge umount` never asks the mount itself."""
    fake.start()
    pid = fake.daemon
    os.kill(pid, signal.SIGSTOP)
    time.sleep(1.1)  # until the kernel would have to ask for the root's attributes
    assert fsbridge("umount", "--lazy", fake.path).returncode == 0
    assert not fake.mounted
    os.kill(pid, signal.SIGCONT)
    fake.gone()


@pytest.mark.parametrize("kind", ["keyed", "plain"])
def test_p9_readers_of_a_file_that_is_being_replaced_see_one_version_or_estale(fake: FakeMount, kind: str) -> None:
    size, done = 600_000, threading.Event()

    def put(value: int) -> None:
        (fake.disk / "new").write_bytes(bytes([value]) * size)
        os.rename(fake.disk / "new", fake.disk / "file")

    def write() -> None:
        value = 0
        while not done.is_set():
            value = (value + 1) % 256
            put(value)

    put(0)
    fake.start()
    found: list[object] = []

    def read() -> None:
        for _ in range(60):
            try:
                content = (fake.path / kind / "file").read_bytes()
            except OSError as error:
                found.append(error.errno)
            else:
                found.append("one version" if len(content) == size and len(set(content)) == 1 else "mixed")

    writer, readers = threading.Thread(target=write), [threading.Thread(target=read) for _ in range(4)]
    for thread in (writer, *readers):
        thread.start()
    for reader in readers:
        reader.join()
    done.set()
    writer.join()
    assert len(found) == 240
    assert set(found) <= {"one version", errno.ESTALE}
    assert found.count("one version") > 24


def test_without_proc_the_reason_is_said(tmp_path: Path) -> None:
    """The file is missing, as in a bare chroot."""
    with pytest.raises(SetupError, match="/mountinfo: No such file or directory\n  mount -t proc proc /proc"):
        preflight.list_mounts(str(tmp_path / "mountinfo"))


def test_a_store_and_a_folder_in_the_wrong_order_are_recognised(tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr/.zgroup").write_text('{"zarr_format": 2}')
    done = fsbridge("mount", tmp_path / "mnt", tmp_path / "a.zarr")
    assert done.returncode == 1
    assert f"fsbridge mount {tmp_path}/a.zarr {tmp_path}/mnt" in done.stderr


def test_a_mount_hides_no_files(tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    (tmp_path / "mnt/file").touch()
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr/.zgroup").write_text('{"zarr_format": 2}')
    done = fsbridge("mount", tmp_path / "a.zarr", tmp_path / "mnt")
    assert done.returncode == 1
    assert "is not empty" in done.stderr
    assert "--nonempty" in done.stderr
