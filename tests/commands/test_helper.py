"""`mount -t fsbridge`: the helper that `fsbridge install-helper` links, lines of fstab, credentials for the daemon.

And mounts that another program has made (`/dev/fd/N`).

What changes /sbin or /etc does so in a private mount namespace, never on the machine itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import PAGES
from fake_s3 import BUCKET, FakeS3
from forking import environment
from mounting import fsbridge, mounted, without_log_notice
from paths import ROOT
from small_stores import FORMATS
from waiting import until

from fsbridge.commands import mount
from fsbridge.errors import SetupError

SCRIPT = f"""#!{sys.executable}
import sys
sys.path.insert(0, {str(ROOT)!r})
from fsbridge.cli import main
sys.exit(main())
"""

WALL = """set -e
mount -t tmpfs tmpfs {aside}
mkdir {aside}/upper {aside}/work
mount -t overlay overlay -o lowerdir=$(readlink -f /sbin),upperdir={aside}/upper,workdir={aside}/work $(readlink -f /sbin)
"""
"""Makes /sbin of a private mount namespace one that may be changed."""


class Place:
    """A program, a store and a mount point."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.program = where / "bin" / "fsbridge"
        self.program.parent.mkdir()
        self.program.write_text(SCRIPT)
        self.program.chmod(0o755)
        self.store, self.point, self.aside = where / "store.n5", where / "mnt", where / "aside"
        FORMATS["n5"][1](self.store)
        self.point.mkdir()
        self.aside.mkdir()

    def private(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run `script` in a mount namespace of its own, where /sbin may be changed."""
        words = ["unshare", "-m", "sh", "-c", WALL.format(aside=self.aside) + script]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, cwd=self.where)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield Place(tmp_path)
    assert not os.path.lexists("/sbin/mount.fsbridge"), "the machine itself was changed"


def test_the_helper_is_linked_and_unlinked(place: Place) -> None:
    done = place.private(f"""
{place.program} install-helper
{place.program} install-helper
readlink /sbin/mount.fsbridge
mount -t fsbridge {place.store} {place.point} -o ro,cache_size=64M,_netdev,nofail,noauto,user,x-gvfs-hide,comment=mine
findmnt -n -o FSTYPE,SOURCE {place.point}
od -An -tx1 -N4 {place.point}/a/c/0/1
umount {place.point}
mount -f -t fsbridge {place.store} {place.point}
! mountpoint -q {place.point}
! mount -t fsbridge {place.store} {place.point} -o unknown_option
mount -s -t fsbridge {place.store} {place.point} -o unknown_option
umount {place.point}
{place.program} install-helper --remove
{place.program} install-helper --remove
! test -L /sbin/mount.fsbridge
""")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{place.program}\nfuse.fsbridge {place.store}\n 00 00 00 05\n"
    assert without_log_notice(done.stderr) == (
        "fsbridge: unknown mount option: unknown_option\n  fsbridge mount --help lists the options\n"
    )


def test_lines_of_fstab(place: Place) -> None:
    odd = place.where / "a, b"
    odd.mkdir()
    (place.where / "env").write_text("# credentials\nexport TOKEN='a b'\n\nOTHER=1\n")
    (place.where / "fstab").write_text(
        f"{place.store} {place.point} fsbridge noauto,user,_netdev,x-systemd.automount,env_file={place.where}/env 0 0\n"
        f"{place.store} {str(odd).replace(' ', chr(92) + '040')} fsbridge nofail,env.NAME=x,layout=zarr2+n5,"
        f'log_level=info,log_file="{place.where}/l,og" 0 0\n'
    )
    done = place.private(f"""
mount --bind {place.where}/fstab /etc/fstab
{place.program} install-helper
mount {place.point}
cat {place.point}/a/c/0/1 | od -An -tx1 -N4
umount {place.point}
mount -a
! mountpoint -q {place.point}
ls "{odd}"
umount "{odd}"
""")
    assert done.returncode == 0, done.stderr
    assert done.stdout == " 00 00 00 05\nn5\nzarr2\n"
    until(lambda: "was unmounted" in (place.where / "l,og").read_text())


def test_another_mount_namespace_is_entered(place: Place) -> None:
    done = place.private(f"""
{place.program} install-helper >/dev/null
unshare -m sh -c 'echo ready >{place.where}/ready; exec sleep 60' &
other=$!
while ! test -s {place.where}/ready; do sleep 0.01; done
mount -N $other -t fsbridge {place.store} {place.point}
mountpoint -q {place.point} && echo mounted here, too
nsenter -m -t $other od -An -tx1 -N4 {place.point}/a/c/0/1
nsenter -m -t $other umount {place.point}
kill $other
! /sbin/mount.fsbridge {place.store} {place.point} -N /dev/null
""")
    assert (done.returncode, done.stdout) == (0, " 00 00 00 05\n"), done.stderr
    assert "cannot enter the mount namespace /dev/null: Invalid argument" in done.stderr


def test_what_is_something_else_is_left_alone(place: Place) -> None:
    done = place.private(f"echo hello > /sbin/mount.fsbridge; {place.program} install-helper || cat /sbin/mount.fsbridge")
    assert (done.stdout, done.stderr.split("\n")[0]) == (
        "hello\n",
        "fsbridge: /sbin/mount.fsbridge exists, and is not a link to fsbridge",
    )
    done = place.private(f"echo hello > /sbin/mount.fsbridge; {place.program} install-helper --remove")
    assert done.returncode == 1


def test_only_root_can_install_it(place: Place) -> None:
    caps = "-all,+dac_read_search"  # so that it can read this Python wherever that is
    user = f"setpriv --reuid=nobody --clear-groups --inh-caps={caps} --ambient-caps={caps}"
    done = place.private(f"{user} {place.program} install-helper")
    assert done.returncode == 1
    assert done.stderr == (
        f"fsbridge: /sbin/mount.fsbridge: Permission denied\n  as root: sudo {place.program} install-helper\n"
    )


def test_credentials_come_with_the_options(tmp_path: Path, server: FakeS3) -> None:
    """systemd runs mount units without an environment; no secret stands in the list of processes."""
    (tmp_path / "mnt").mkdir()
    secrets = tmp_path / "secrets"
    secrets.write_text("AWS_ACCESS_KEY_ID=me\nAWS_SECRET_ACCESS_KEY=secret\n")
    options = f"ro,env_file={secrets},env.AWS_ENDPOINT_URL={server.endpoint},allow_http,region=us-east-1"
    words = [sys.executable, "-m", "fsbridge", f"s3://{BUCKET}/z", str(tmp_path / "mnt"), "-o", options]
    plain = {"PYTHONPATH": environment()["PYTHONPATH"]}
    server.put("z/zarr.json", b'{"zarr_format": 3, "node_type": "group"}', 1e9)
    done = subprocess.run(words, capture_output=True, text=True, env=plain, check=False, timeout=60)
    try:
        assert without_log_notice(done.stderr) == ""
        assert b'"group"' in (tmp_path / "mnt" / "zarr.json").read_bytes()
    finally:
        if mounted(tmp_path / "mnt"):
            subprocess.run(["umount", tmp_path / "mnt"], check=True)


def test_variables_of_options() -> None:
    given = mount.split_options('ro,env.A=1,env.B=x\\,y,env.C="p,q",env.A=2')
    assert mount.split_environment_options(given) == (["ro"], {"A": "2", "B": "x,y", "C": "p,q"})
    config = mount.parse("mount.fsbridge", ["/s", "/m", "-o", "env.SECRET=hush"])
    assert config.environment == (("SECRET", "hush"),)
    assert "hush" not in repr(config)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("env.1A=x", "'1A' is not the name of a variable"),
        ("env.=x", "'' is not the name of a variable"),
        ("env_file=/nowhere/env", "No such file"),
        ("env_file", "env_file ''"),
    ],
)
def test_variables_that_cannot_be(options: str, said: str) -> None:
    with pytest.raises(SetupError) as caught:
        mount.parse("mount.fsbridge", ["/s", "/m", "-o", options])
    assert said in str(caught.value)


def test_a_file_of_variables_is_read_as_systemd_reads_it(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("; c\n# c\n A=1 \nexport B=\"x y\"\nC='z'\nD=\nE=a=b\nF='\n")
    (tmp_path / "bad").write_text("A=1\nsecret words\n")
    found = mount.split_environment_options([f"env_file={tmp_path}/env"])[1]
    assert found == {"A": "1", "B": "x y", "C": "z", "D": "", "E": "a=b", "F": "'"}
    with pytest.raises(SetupError, match=r"line 2 is not NAME=VALUE$"):
        mount.split_environment_options([f"env_file={tmp_path}/bad"])


MOUNTED_FOR_IT = """
import ctypes, os, sys
device = os.open("/dev/fuse", os.O_RDWR)
os.set_inheritable(device, True)
libc = ctypes.CDLL(None, use_errno=True)
data = f"fd={device},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other".encode()
if libc.mount(b"store", sys.argv[1].encode(), b"fuse.fsbridge", 1 | 2 | 4, data):
    sys.exit(os.strerror(ctypes.get_errno()))
words = [word.replace("DEVICE", f"/dev/fd/{device}") for word in sys.argv[2:]]
os.execvp(words[0], words)
"""
"""Opens and mounts the device as a privileged part of a pod does, and runs the rest of its arguments."""


@pytest.mark.parametrize("how", ["--foreground", "--log-level=warning"], ids=["foreground", "background"])
def test_a_mount_made_by_another_program_needs_no_privilege(place: Place, how: str) -> None:
    """No capability is left, none can be had again (`no_new_privs`), and there is no fusermount3 in the PATH."""
    rights = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "env", "PATH=/nowhere"]
    words = [*rights, str(place.program), "mount", how, str(place.store), "DEVICE"]
    daemon = subprocess.Popen([sys.executable, "-c", MOUNTED_FOR_IT, place.point, *words], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: mounted(place.point) and _bytes(place.point / "a/c/0/1") == b"\0\0\0\5")
        if how == "--foreground":
            status = Path(f"/proc/{daemon.pid}/status").read_text()
            assert {"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} <= {*status.splitlines()}
        with pytest.raises(OSError, match="Read-only"):
            (place.point / "new").write_text("x")
    finally:
        subprocess.run(["umount", "-l", place.point], check=True)
    said = daemon.communicate(timeout=30)[1]
    assert (daemon.returncode, without_log_notice(said)) == (0, "")


def _bytes(path: Path) -> bytes:
    done = subprocess.run(["head", "-c", "4", path], capture_output=True, timeout=20)
    return done.stdout


def test_install_helper_says_what_it_does() -> None:
    assert "/sbin/mount.fsbridge" in fsbridge("install-helper", "--help").stdout


def test_the_parts_of_a_pod_that_the_page_shows(place: Place) -> None:
    """Both programs as they are printed, with other paths."""
    shown = re.findall(
        r"^```python\n(import (?:ctypes, )?os, socket  # the .*?)^```$", PAGES["docs/mounting.md"], re.MULTILINE | re.DOTALL
    )
    there = {"/mnt/brain": str(place.point), "/shared": str(place.where), "s3://bucket/brain.zarr": str(place.store)}
    there |= {'os.execvp("fsbridge"': f'os.execvp("{place.program}"'}
    mounts, serves = (re.sub("|".join(map(re.escape, there)), lambda found: there[found[0]], text) for text in shown)
    serving = subprocess.Popen([sys.executable, "-c", serves], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: (place.where / "device.sock").exists())
        until(lambda: subprocess.run([sys.executable, "-c", mounts], capture_output=True).returncode == 0)
        until(lambda: _bytes(place.point / "a/c/0/1") == b"\0\0\0\5")
    finally:
        while mounted(place.point):
            subprocess.run(["umount", "-l", place.point], check=True)
    assert (serving.communicate(timeout=30)[1], serving.returncode) == ("", 0)
