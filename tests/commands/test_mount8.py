"""The mount command of util-linux, with private fstab files: what /sbin/mount.fuse passes on, and what comes back.

Real stores, real mount(8). The machine's own fstab and helpers are never touched: the program is named by its full path
(`-t fuse./path/of/program`), and a helper is put beside /sbin's only inside a private mount namespace.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mounting import mounted, mounts_at, without_log_notice
from paths import ROOT
from waiting import until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mount(8) mounts by its helpers only for root")

SCRIPT = f"""#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
import sys
sys.path.insert(0, {str(ROOT)!r})
from fsbridge.cli import main
sys.exit(main())
"""
"""A script for sh and for Python, as pip writes it where the interpreter's path has a space."""


class Machine:
    """A store, a mount point and the program; everything mounted there is gone at the end."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.program = self.script("fsbridge")
        self.store = where / "store.zarr"
        self.path = where / "mnt"
        self.path.mkdir()
        self.store.mkdir()
        document = {
            "zarr_format": 2,
            "shape": [4],
            "chunks": [2],
            "dtype": "<u2",
            "order": "C",
            "fill_value": 0,
            "compressor": None,
            "filters": None,
        }
        (self.store / ".zarray").write_text(json.dumps(document))
        (self.store / "0").write_bytes(b"\1\0\2\0")

    def script(self, name: str) -> Path:
        path = self.where / name
        path.write_text(SCRIPT)
        path.chmod(0o755)
        return path

    def mount(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        command = ["mount", *(os.fspath(word) for word in words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=self.where)

    def fstab(self, options: str) -> Path:
        table = self.where / "fstab"
        escaped = [str(path).replace(" ", "\\040") for path in (self.store, self.path, self.program)]
        table.write_text(f"{escaped[0]}  {escaped[1]}  fuse.{escaped[2]}  {options}  0 0\n")
        return table

    @property
    def serving(self) -> bool:
        """Tell if the mount shows the store."""
        return mounted(self.path) and (self.path / "c" / "0").read_bytes() == b"\1\0\2\0"

    def options(self) -> set[str]:
        """The kernel's options of the mount, and its type and source."""
        (found,) = mounts_at(self.path)
        return {*found.options, found.fstype, found.source, *found.super_options}

    def umount(self) -> None:
        """Unmount with umount(8); the daemon must end."""
        subprocess.run(["umount", self.path], check=True)
        until(lambda: not self.daemons())

    def daemons(self) -> list[str]:
        words = ["pgrep", "-f", f" {self.path}( |$)|{self.program}"]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    while mounted(machine.path):
        subprocess.run(["umount", "-l", machine.path], check=True)


def succeeded(done: subprocess.CompletedProcess[str]) -> bool:
    assert (done.returncode, done.stdout, without_log_notice(done.stderr)) == (0, "", "")
    return True


def test_mount_and_umount(machine: Machine) -> None:
    assert succeeded(machine.mount("-t", f"fuse.{machine.program}", machine.store, machine.path))
    assert machine.serving
    assert {"ro", "nosuid", "nodev", "fuse.fsbridge", str(machine.store)} <= machine.options()
    machine.umount()


def test_a_relative_source(machine: Machine) -> None:
    assert succeeded(machine.mount("-t", f"fuse.{machine.program}", "store.zarr", "mnt"))
    assert machine.serving
    assert str(machine.store) in machine.options()
    machine.umount()


def test_the_old_style(machine: Machine) -> None:
    assert succeeded(machine.mount("-t", "fuse", f"{machine.program}#{machine.store}", machine.path))
    assert machine.serving
    machine.umount()


def test_the_program_in_a_folder_with_a_dot_as_the_readme_names_it(machine: Machine) -> None:
    """mount(8) cuts the type off at the last dot: it says "wrong fs type" of `fuse./opt/fsbridge/.venv/bin/fsbridge`."""
    (machine.where / ".venv" / "bin").mkdir(parents=True)
    program = machine.script(".venv/bin/fsbridge")
    assert succeeded(machine.mount("-t", "fuse", f"{program}#{machine.store}", machine.path))
    assert machine.serving
    machine.umount()


def test_options_of_mount_reach_the_daemon(machine: Machine) -> None:
    ours = "cache_size=64M,xattrs,metadata_ttl=5,immutable,log_level=info"
    options = f"ro,noatime,noexec,allow_other,{ours},log_file={machine.where / 'log'}"
    assert succeeded(machine.mount("-t", f"fuse.{machine.program}", machine.store, machine.path, "-o", options))
    assert machine.serving
    assert {"noatime", "noexec", "allow_other"} <= machine.options()
    assert os.getxattr(machine.path, "user.fsbridge.format") == b"zarr2"
    machine.umount()
    assert "is mounted on" in (machine.where / "log").read_text()


def test_commas_in_values(machine: Machine) -> None:
    for spelling in (f"{machine.where}/a\\,b", f'"{machine.where}/a,b"'):
        options = f"log_level=info,log_file={spelling}"
        assert succeeded(machine.mount("-t", f"fuse.{machine.program}", machine.store, machine.path, "-o", options))
        machine.umount()
        (machine.where / "a,b").unlink()


@pytest.mark.parametrize(
    "options",
    [
        "defaults",
        "ro,noauto,user",
        "ro,noauto,user,_netdev,nofail,x-systemd.automount,x-systemd.idle-timeout=10min,comment=of_mine,noatime",
        "rw,users,relatime,lazytime,cache_size=1GiB,no_verify",  # mount(8) 2.39 fails with `group`, whatever is mounted
    ],
)
def test_lines_of_an_fstab_mount(machine: Machine, options: str) -> None:
    table = machine.fstab(options)
    assert succeeded(machine.mount("-T", table, machine.path))
    assert machine.serving
    assert "ro" in machine.options()
    machine.umount()


def test_mount_all_of_a_private_fstab(machine: Machine) -> None:
    assert succeeded(machine.mount("-T", machine.fstab("nofail"), "-a"))
    assert machine.serving
    machine.umount()


def test_an_unknown_option_is_named(machine: Machine) -> None:
    done = machine.mount("-t", f"fuse.{machine.program}", machine.store, machine.path, "-o", "ro,cash_size=64M")
    assert done.returncode == 1
    assert (
        done.stderr
        == "fsbridge: unknown mount option: cash_size=64M\n  perhaps cache_size? fsbridge mount --help lists the options\n"
    )
    assert not mounted(machine.path)


def test_a_store_that_is_not_there(machine: Machine) -> None:
    done = machine.mount("-t", f"fuse.{machine.program}", machine.where / "absent", machine.path)
    assert done.returncode in (1, 32)
    assert done.stderr.startswith("fsbridge: ")
    assert str(machine.where / "absent") in done.stderr
    assert not mounted(machine.path)


def test_a_second_mount_is_refused_unless_asked_for(machine: Machine) -> None:
    words: list[str | Path] = ["-t", f"fuse.{machine.program}", machine.store, machine.path]
    assert succeeded(machine.mount(*words))
    done = machine.mount(*words)
    assert done.returncode == 32
    assert "already a mount point" in done.stderr
    assert succeeded(machine.mount(*words, "-o", "nonempty"))
    assert len(mounts_at(machine.path)) == 2
    subprocess.run(["umount", machine.path], check=True)
    machine.umount()


def test_p1_remounting_rw_changes_nothing(machine: Machine) -> None:
    assert succeeded(machine.mount("-t", f"fuse.{machine.program}", machine.store, machine.path))
    subprocess.run(["mount", "-i", "-o", "remount,rw", machine.path], capture_output=True, check=False)
    before = sorted(os.listdir(machine.store))
    changes: list[Callable[[], object]] = [
        lambda: (machine.path / "new").write_text("x"),
        lambda: (machine.path / "new").mkdir(),
        lambda: (machine.path / "c" / "0").unlink(),
        lambda: (machine.path / "c" / "0").rename(machine.path / "other"),
        lambda: os.truncate(machine.path / "c" / "0", 0),
        lambda: os.chmod(machine.path / "c" / "0", 0o600),
        lambda: os.setxattr(machine.path / "c" / "0", "user.a", b"b"),
        lambda: os.symlink("a", machine.path / "link"),
    ]
    for change in changes:
        with pytest.raises(OSError, match=r"Read-only|Permission|not supported"):
            change()
    assert sorted(os.listdir(machine.store)) == before
    assert machine.serving
    machine.umount()


def test_root_may_give_up_its_privileges(machine: Machine) -> None:
    """`drop_privileges`: mount.fuse mounts and passes /dev/fd/N as the mount point."""
    options = "ro,setuid=root,drop_privileges"
    done = machine.mount("-t", f"fuse.{machine.program}", machine.store, machine.path, "-o", options)
    assert succeeded(done)
    assert machine.serving
    machine.umount()


def test_an_empty_environment_will_do(machine: Machine) -> None:
    """systemd runs mount units without HOME and PATH."""
    words: list[str | Path] = [machine.program, machine.store, machine.path, "-o", "rw,dev,suid"]
    done = subprocess.run(words, capture_output=True, text=True, env={}, check=False, timeout=60, cwd="/")
    assert succeeded(done)
    assert machine.serving
    machine.umount()


def test_a_helper_of_its_own(machine: Machine) -> None:
    """/sbin/mount.fsbridge, which mount(8) runs with -s, -f, -n, -v; seen only inside a private mount namespace."""
    helper = machine.script("mount.fsbridge")
    overlay = machine.where / "sbin"
    overlay.mkdir()
    helper.rename(overlay / "mount.fsbridge")
    script = f"""set -e
mount -t overlay overlay -o lowerdir={overlay}:$(readlink -f /sbin) $(readlink -f /sbin)
mount -f -t fsbridge {machine.store} {machine.path}
! mountpoint -q {machine.path}
mount -v -n -t fsbridge {machine.store} {machine.path} -o ro,user,_netdev,nofail,noauto,x-systemd.automount
od -An -tx1 {machine.path}/c/0
umount {machine.path}
mount -s -t fsbridge {machine.store} {machine.path} -o unknown_option
umount {machine.path}
"""
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == " 01 00 02 00\n"
