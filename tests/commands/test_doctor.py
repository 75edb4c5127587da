"""`fsbridge doctor`: each fault is found, and the line that mends it is said."""

from __future__ import annotations

import json
import os
import resource
import shutil
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import forking
import pytest
from fake_s3 import BUCKET, FakeS3
from forking import environment
from mounting import MountFunction, fsbridge
from small_stores import FORMATS

from fsbridge.children import landlock
from fsbridge.commands import diagnosis
from fsbridge.commands.diagnosis import Diagnosis
from fsbridge.errors import SetupError
from fsbridge.installing import repair
from fsbridge.mount import preflight
from fsbridge.store.local import descriptors


def found(subject: str) -> Diagnosis:
    return next(finding for finding in diagnosis.machine() if finding.subject == subject)


def test_this_machine_is_fit_for_mounts() -> None:
    done = fsbridge("doctor", "--json")
    findings = {finding["subject"]: finding for finding in json.loads(done.stdout)}
    assert findings["/dev/fuse"]["state"] == "ok"
    assert f"numpy {version('numpy')}" in findings["versions"]["words"]
    assert all(finding["mend"] for finding in findings.values() if finding["state"] == "bad")


def no_device() -> None:
    raise SetupError("/dev/fuse does not exist", "load the module with: modprobe fuse")


def not_installed(name: str) -> str:
    raise PackageNotFoundError(name)


FAULTS: list[tuple[str, Callable[[pytest.MonkeyPatch], object], str, str, str]] = [
    ("/dev/fuse", lambda p: p.setattr(preflight, "check_device", no_device), "bad", "does not exist", "modprobe fuse"),
    (
        "fusermount3",
        lambda p: p.setattr(shutil, "which", lambda *_, **__: None),
        "bad",
        "not installed",
        "apt-get install fuse3",
    ),
    (
        "fusermount3",
        lambda p: p.setattr(shutil, "which", lambda *_, **__: "/bin/true"),
        "bad",
        "setuid",
        "chmod u+s /bin/true",
    ),
    (
        "--allow-other",
        lambda p: p.setattr("builtins.open", no_conf),
        "note",
        "root only",
        "user_allow_other >> /etc/fuse.conf",
    ),
    ("mount -t fsbridge", lambda p: None, "note", "not installed", "fsbridge install-helper"),
    ("Landlock", lambda p: p.setattr(landlock, "version", lambda: 0), "note", "only their own checks", "5.13"),
    ("openat2", lambda p: p.setattr(descriptors, "HAVE_OPENAT2", False), "note", "step by step", "5.6"),
    (
        "libraries",
        lambda p: p.setattr(diagnosis, "IMPORTED", "import h5py_no"),
        "bad",
        "h5py_no",
        "pip install --force-reinstall",
    ),
    (
        "libraries",
        lambda p: p.setattr(diagnosis, "IMPORTED", "raise ImportError('libfuse3.so.3: no such file')"),
        "bad",
        "libfuse3.so.3",
        "apt-get install fuse3",
    ),
    ("zfpy", lambda p: p.setattr(diagnosis, "version", not_installed), "note", "compressed by zfpy", "-m pip install 'zfpy"),
    ("open files", lambda p: p.setattr(resource, "getrlimit", lambda _: (64, 4096)), "note", "64 at most", "ulimit -n 4096"),
    ("clock", lambda p: p.setattr(time, "time", lambda: 1e9), "bad", "before fsbridge was installed", "set-ntp true"),
    ("log", lambda p: p.setattr(preflight, "SYSLOG", "/nowhere"), "note", "no syslog", "--log-file"),
]


def no_conf(*_: object, **__: object) -> None:
    raise FileNotFoundError("/etc/fuse.conf")


@pytest.mark.parametrize(
    ("subject", "fault", "state", "words", "mend"), FAULTS, ids=[f"{fault[0]}: {fault[3]}" for fault in FAULTS]
)
def test_each_fault_is_found(
    subject: str,
    fault: Callable[[pytest.MonkeyPatch], object],
    state: str,
    words: str,
    mend: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    fault(monkeypatch)
    look = {
        "/dev/fuse": diagnosis._device,
        "fusermount3": diagnosis._fusermount,
        "--allow-other": diagnosis._allow_other,
        "mount -t fsbridge": diagnosis._helper,
        "Landlock": diagnosis._kernel,
        "openat2": diagnosis._kernel,
        "libraries": diagnosis._imports,
        "zfpy": diagnosis._optional,
        "open files": diagnosis._files,
        "clock": diagnosis._clock,
        "log": diagnosis._log,
    }[subject]
    finding = next(finding for finding in look() if finding.subject == subject)
    monkeypatch.undo()
    assert finding.state == state
    assert words in finding.words
    assert mend in finding.mend


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = version
    monkeypatch.setattr(diagnosis, "version", lambda name: not_installed(name) if name == "lmdb" else real(name))
    missing = [finding for finding in diagnosis._libraries() if finding.state == "bad"]
    assert [(finding.words, finding.mend) for finding in missing] == [("not installed: lmdb", repair(["lmdb"]))]


def test_a_stale_mount_is_found(tmp_path: Path, mount: MountFunction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    FORMATS["n5"][1](tmp_path / "store.n5")
    point = mount(tmp_path / "store.n5")
    point.kill()
    done = fsbridge("doctor")
    assert done.returncode == 1
    assert (
        f"BAD   {point.path}: is stale: its daemon (pid {point.process.pid}) has ended\n"
        f"        fsbridge umount {point.path}\n" in done.stdout
    )


def test_a_source_is_tried_codec_by_codec(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    for name in ("n5", "zarr2", "zarr3", "sharded"):
        FORMATS[name][1](tmp_path / "all" / name)
    done = fsbridge("doctor", tmp_path / "all", "--json")
    findings = [finding for finding in json.loads(done.stdout) if finding["subject"].startswith("codec")]
    assert {finding["state"] for finding in findings} == {"ok"}
    assert {finding["words"].partition(":")[0] for finding in findings} >= {"/n5/a", "/zarr2/a", "/zarr3/a"}
    assert all("a chunk of " in finding["words"] for finding in findings)


def test_damage_of_a_source_is_found(tmp_path: Path) -> None:
    FORMATS["n5"][1](tmp_path / "store.n5")
    chunk = tmp_path / "store.n5" / "a" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:20])
    done = fsbridge("doctor", tmp_path / "store.n5")
    assert done.returncode == 1
    assert f"ok    {tmp_path / 'store.n5'}: n5, opened in " in done.stdout
    assert f"BAD   codec gzip: /a: {chunk}: " in done.stdout
    assert "restore the array from a copy" in done.stdout


@pytest.mark.parametrize(
    ("source", "words"),
    [("nothing", "nothing: no such file or directory"), (f"s3://{BUCKET}/z", "no credentials")],
)
def test_a_source_that_cannot_be_reached(source: str, words: str, tmp_path: Path, server: FakeS3) -> None:
    plain = {name: value for name, value in environment().items() if not name.startswith("AWS_")}
    options = ["--endpoint", server.endpoint] if "://" in source else []
    done = forking.run("doctor", source, *options, cwd=tmp_path, env={**plain, "HOME": str(tmp_path)}, timeout=120)
    assert done.returncode == 1
    assert words in done.stdout
    assert "Traceback" not in done.stderr


def test_a_source_elsewhere_is_tried(server: FakeS3, tmp_path: Path) -> None:
    FORMATS["zarr3"][1](tmp_path / "store")
    server.put_tree(tmp_path / "store", "store")
    done = fsbridge("doctor", f"s3://{BUCKET}/store", *server.options)
    assert "codec gzip+crc32c: /a: a chunk of 80 bytes" in done.stdout, done.stdout + done.stderr
