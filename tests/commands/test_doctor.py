"""`fsbridge doctor`: each fault is found, and the line that mends it is said."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import forking
import pytest
from fake_s3 import BUCKET, FakeS3
from forking import environment
from mounting import MountFunction, fsbridge
from small_stores import FORMATS

from fsbridge.commands.diagnosis import Diagnosis, Machine, check_machine
from fsbridge.installing import repair


def test_this_machine_is_fit_for_mounts() -> None:
    done = fsbridge("doctor", "--json")
    findings = {finding["subject"]: finding for finding in json.loads(done.stdout)}
    assert findings["/dev/fuse"]["state"] == "ok"
    assert f"numpy {version('numpy')}" in findings["versions"]["words"]
    assert all(finding["mend"] for finding in findings.values() if finding["state"] == "bad")


def not_installed(name: str) -> str:
    raise PackageNotFoundError(name)


def version_without_lmdb(name: str) -> str:
    return not_installed(name) if name == "lmdb" else version(name)


Findings = list[list[Diagnosis]]


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """What is found on two machines on which next to nothing is right."""
    empty, broken, other = (tmp_path_factory.mktemp(name) for name in ("empty", "broken", "other"))
    (broken / "fusermount3").write_text("#!/bin/sh\n")
    (broken / "fusermount3").chmod(0o755)
    (broken / "h5py.py").write_text("import h5py_no\n")
    (broken / "mount.fsbridge").symlink_to("nowhere")
    (other / "pyfuse3.py").write_text("raise ImportError('libfuse3.so.3: no such file')\n")
    bare = Machine(
        user=1000,
        device=str(empty / "fuse"),
        program_folders=str(empty),
        fuse_conf=str(empty / "fuse.conf"),
        helper=str(empty / "mount.fsbridge"),
        syslog=str(empty / "log"),
        landlock=0,
        has_openat2=False,
        open_files=(64, 4096),
        version=not_installed,
        now=lambda: 1e9,
    )
    helpless = replace(
        bare, program_folders=str(broken), helper=str(broken / "mount.fsbridge"), version=version_without_lmdb
    )
    both = []
    for machine, modules in ((bare, other), (helpless, broken)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(modules), prepend=os.pathsep)
            both.append(list(check_machine(machine)))
    return both


@pytest.mark.parametrize(
    ("machine", "subject", "state", "words", "mend"),
    [
        (0, "/dev/fuse", "bad", "does not exist", "modprobe fuse"),
        (0, "fusermount3", "bad", "not installed", "apt-get install fuse3"),
        (1, "fusermount3", "bad", "setuid", "chmod u+s "),
        (0, "--allow-other", "note", "root only", "user_allow_other >> /"),
        (0, "mount -t fsbridge", "note", "not installed", "fsbridge install-helper"),
        (1, "mount -t fsbridge", "bad", "leads to nowhere, which does not exist", "fsbridge install-helper"),
        (0, "Landlock", "note", "only their own checks", "5.13"),
        (0, "openat2", "note", "step by step", "5.6"),
        (0, "libraries", "bad", "libfuse3.so.3", "apt-get install fuse3"),
        (1, "libraries", "bad", "h5py_no", "pip install --force-reinstall"),
        (0, "zfpy", "note", "compressed by zfpy", "-m pip install 'zfpy"),
        (0, "open files", "note", "64 at most", "ulimit -n 4096"),
        (0, "clock", "bad", "2001-09-09 is before fsbridge was installed", "set-ntp true"),
        (0, "log", "note", "no syslog", "--log-file"),
    ],
)
def test_each_fault_is_found(machine: int, subject: str, state: str, words: str, mend: str, findings: Findings) -> None:
    finding = next(finding for finding in findings[machine] if finding.subject == subject)
    assert finding.state == state
    assert words in finding.words
    assert mend in finding.mend


def test_a_missing_library_is_named(findings: Findings) -> None:
    missing = [finding for finding in findings[1] if finding.words.startswith("not installed: ")]
    assert [(finding.state, finding.words, finding.mend) for finding in missing] == [
        ("bad", "not installed: lmdb", repair(["lmdb"]))
    ]


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
def test_a_source_that_cannot_be_reached_is_a_finding(source: str, words: str, tmp_path: Path, server: FakeS3) -> None:
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
