"""Mounts of stores that live elsewhere: what faults look like, no secret shows. Not here: costs (`test_requests.py`)."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import threading
import time
import urllib.request
import warnings
import zipfile
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import forking
import h5py
import in_process
import numpy as np
import pytest
import zarr
from fake_s3 import BUCKET, FakeS3, Fault
from forking import environment
from mounting import Mount, command, fsbridge, without_log_notice
from observing import errno_of
from paths import ROOT
from readers import read
from remote_mounts import VALUES, MountFunction, chunk, described, n5, serve_arrays
from waiting import until

from fsbridge.cli import INTERRUPTED
from fsbridge.config import Config
from fsbridge.unmounted import VirtualTree


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeS3]:
    server = serve_arrays(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def v3(server: FakeS3, mount: MountFunction) -> Iterator[Mount]:
    """The Zarr v3 store, mounted from its bucket."""
    mounted = mount(f"s3://{BUCKET}/v3", *server.options)
    yield mounted
    mounted.stop()  # before the server


@pytest.fixture
def hanging(server: FakeS3) -> FakeS3:
    """A store of 20,000 chunks. All parts of its long listing but the first hang."""
    for i in range(200):
        for j in range(100):
            server.put(f"hung/a/c/{i}/{j}", b"x", 1e9)
    server.put("hung/zarr.json", server.objects["v3/zarr.json"].data)
    server.put("hung/a/zarr.json", server.objects["v3/raw/zarr.json"].data.replace(b"64", b"3200"))
    server.fault = lambda request: Fault(stall=60.0) if request.query.get("start-after") else None
    return server


def await_silence(server: FakeS3, process: subprocess.Popen[bytes] | forking.Process) -> None:
    """Until some parts of a listing hang, which the client takes for so much time that the end does not wait for them."""
    until(lambda: any(request.query.get("start-after") for request in server.requests) or process.poll() is not None)
    assert process.poll() is None


def test_p7_p10_the_end_of_a_mount_does_not_wait_for_a_listing_that_hangs(hanging: FakeS3, mount: MountFunction) -> None:
    mounted = mount(f"s3://{BUCKET}/hung", *hanging.options)
    mounted.allow("no answer from the server")
    with subprocess.Popen(["find", mounted.path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as find:
        await_silence(hanging, find)
        mounted.process.terminate()
        mounted.process.wait(6)  # P10's two seconds, on a busy machine; the client gives up after nine
    mounted.stop()


def test_p7_an_interrupted_info_does_not_wait_for_a_listing_that_hangs(hanging: FakeS3) -> None:
    words = ("info", *hanging.options, f"s3://{BUCKET}/hung")
    with forking.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as info:
        await_silence(hanging, info)
        info.send_signal(signal.SIGINT)
        assert info.communicate(timeout=5) == ("", "")  # the client gives up after nine seconds
        assert info.returncode == INTERRUPTED


def test_p7_an_interrupted_info_does_not_wait_for_a_server(server: FakeS3) -> None:
    server.fault = lambda request: None if request.kind == "LIST" else Fault(stall=60.0)
    words = ("info", *server.options, f"s3://{BUCKET}/v3")
    with forking.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as info:
        while all(request.kind == "LIST" for request in server.requests):
            assert info.poll() is None
            time.sleep(0.01)
        info.send_signal(signal.SIGINT)
        assert info.communicate(timeout=5) == ("", "")
        assert info.returncode == INTERRUPTED


def test_http_without_listings(server: FakeS3, mount: MountFunction) -> None:
    mounted = mount(server.url("v3"))
    assert (mounted / "raw/c/1/2").read_bytes() == chunk(1, 2)
    assert (mounted / "shards/c/3/0").read_bytes() == chunk(3, 0)
    with pytest.raises(FileNotFoundError):
        os.stat(mounted / "raw/c/1/9")
    with pytest.raises(FileNotFoundError):
        os.stat(mounted / "nothing")
    mounted.allow("cannot be listed|too many to ask")
    with pytest.raises(OSError, match="Operation not supported"):
        os.listdir(mounted.path)  # no metadata tells its members
    del server.objects["v3/raw/c/2/2"]
    assert sorted(os.listdir(mounted / "raw/c")) == ["0", "1", "2", "3"]
    assert sorted(os.listdir(mounted / "raw/c/2")) == ["0", "1", "3"]
    assert sorted(os.listdir(mounted / "shards/c/2")) == ["0", "1", "2", "3"]
    document = server.objects["v3/raw/zarr.json"].data.replace(b"64", b"64000")
    server.put("v3/huge/zarr.json", document)
    with pytest.raises(OSError, match="Operation not supported"):
        os.listdir(mounted / "huge/c")
    mounted.stop()


class Quiet(SimpleHTTPRequestHandler):
    """What `python -m http.server` answers with."""

    def log_message(self, *words: object) -> None:
        pass


def test_info_counts_readable_chunks_of_a_server_that_ignores_ranges(tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=3)
    root.create_array("raw", data=VALUES, chunks=(16, 16))
    root.create_array("shards", data=VALUES, chunks=(16, 16), shards=(32, 32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(str(tmp_path / "s.zarr"), zarr_format=3)
    (tmp_path / "s.zarr/raw/c/1/1").unlink()
    handler = partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{serving.server_port}/s.zarr"
        found = in_process.fsbridge("info", "--json", place)
        with VirtualTree(Config(place, "")) as tree:
            parts = [bytes(tree.open(f"{path}/c/3/3").read(0, 1 << 20)) for path in ("raw", "shards")]
        serving.shutdown()
    assert found.returncode == 0, found.stderr
    members = {row["path"]: row for row in json.loads(found.stdout)["members"]}
    assert (members["/raw"]["stored"], members["/shards"]["stored"]) == (15, 16)
    assert parts == [chunk(3, 3)] * 2


def test_http_members_named_by_metadata_are_found(server: FakeS3, tmp_path: Path, mount: MountFunction) -> None:
    for version in (2, 3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # in Zarr v3 it is no part of the specification
            zarr.consolidate_metadata(str(tmp_path / f"v{version}"), zarr_format=version)
        server.put_tree(tmp_path / f"v{version}", f"c{version}")
        mounted = mount(server.url(f"c{version}"))
        assert set(os.listdir(mounted.path)) == {"zarr.json", "raw", *(["shards"] if version == 3 else [])}
        assert (mounted / "raw/c/1/2").read_bytes() == chunk(1, 2)
        found = subprocess.run(["find", mounted.path, "-type", "f"], capture_output=True, text=True, check=True).stdout
        assert len(found.splitlines()) == (17 + 1 if version == 2 else 2 * 17 + 1)
        mounted.stop()
    image = zarr.open_group(tmp_path / "image", mode="w", zarr_format=2)
    image.attrs["multiscales"] = [{"datasets": [{"path": "0"}, {"path": "1"}]}]
    for name in ("0", "1"):
        image.create_array(name, data=VALUES, chunks=(16, 16), chunk_key_encoding={"name": "v2", "separator": "/"})
    server.put_tree(tmp_path / "image", "image")
    mounted = mount(server.url("image"))
    assert set(os.listdir(mounted.path)) == {"zarr.json", "0", "1"}
    assert (mounted / "1/c/3/2").read_bytes() == chunk(3, 2)
    mounted.stop()


def test_n5_blocks_are_read_over_http_and_s3(server: FakeS3, tmp_path: Path, mount: MountFunction) -> None:
    n5(tmp_path, server)
    for url, options in ((server.url("x.n5"), []), (f"s3://{BUCKET}/x.n5", server.options)):
        mounted = mount(url, *options)
        assert (mounted / "a/c/1/2").read_bytes() == VALUES[16:32, 32:48].T.astype(">i4").tobytes()
        assert len(os.listdir(mounted / "a/c/3")) == 4
        mounted.stop()


@pytest.mark.parametrize("status", [403, 503])
def test_p3_p8_a_server_that_fails_makes_errors_and_recovers(server: FakeS3, v3: Mount, status: int) -> None:
    v3.allow(f"s3://{BUCKET}/v3/raw")  # its document, too, where a lifetime ends meanwhile
    assert (v3 / "raw/c/0/0").read_bytes() == chunk(0, 0)
    v3.settle(lambda: server.in_flight)
    server.fault = lambda request: Fault(status=status)
    with pytest.raises(OSError, match=os.strerror(errno.EACCES if status == 403 else errno.EIO)):
        (v3 / "raw/c/3/2").read_bytes()
    server.fault = lambda request: None
    assert (v3 / "raw/c/3/2").read_bytes() == chunk(3, 2)


def test_p9_a_replaced_chunk_is_read_again_except_through_open_files(server: FakeS3, v3: Mount) -> None:
    key = "v3/raw/c/2/2"
    assert (v3 / "raw/c/2/2").read_bytes() == chunk(2, 2)
    server.put(key, server.objects["v3/raw/c/0/3"].data)
    time.sleep(1.2)
    assert (v3 / "raw/c/2/2").read_bytes() == chunk(0, 3)
    time.sleep(1.2)
    with open(v3 / "shards/c/0/0", "rb", buffering=0) as file:  # small enough to be read while it is opened
        server.put("v3/shards/c/0/0", server.objects["v3/shards/c/1/1"].data)
        assert file.read() == chunk(0, 0)
    time.sleep(1.2)
    assert (v3 / "shards/c/0/0").read_bytes() == chunk(2, 2)


def descendants(pid: int) -> Iterator[int]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from descendants(child)


def test_secrets_show_nowhere(server: FakeS3, tmp_path: Path) -> None:
    """Not in logs, errors, mount tables, attributes, process titles, child processes or `fsbridge info`.

    Servers repeat tokens in their error texts.
    """
    key, secret, token = "AKIAPLANTEDKEY", "PLANTED/SECRET+KEY", "PLANTED-TOKEN"
    body = f"<Error><Code>AccessDenied</Code><Message>{secret} {token}</Message><Token>{token}</Token></Error>".encode()
    server.fault = lambda request: Fault(status=403, body=body) if request.key.endswith("c/3/3") else None
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["values"] = VALUES
    server.put("v3/x.h5", (tmp_path / "x.h5").read_bytes(), 1e9)
    server.put("v3/broken.h5", b"no HDF5 file", 1e9)
    server.put("many//odd", b"", 1e9)  # listings then have a signature in their URLs
    server.put("many/v3/zarr.json", server.objects["v3/zarr.json"].data, 1e9)
    for name in ("raw/zarr.json", "raw/c/0/0", "raw/c/3/3", "x.h5", "broken.h5"):
        server.put(f"many/{'v3/' if '/' in name else ''}{name}", server.objects[f"v3/{name}"].data, 1e9)
    point, log = tmp_path / "mnt", tmp_path / "log"
    point.mkdir()
    env = environment() | {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": token}
    reached = ["--region", "us-east-1", "--endpoint", server.endpoint]
    options = ["--foreground", "--xattrs", "--log-level", "debug", "--log-file", str(log), *reached]
    words = command("mount", *options, f"s3://{BUCKET}/many", point)
    with subprocess.Popen(words, env=env, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            # Until the program that the daemon starts to see its mount has begun: before, it shows the daemon's environment.
            until(lambda: log.exists() and "is mounted on" in log.read_text(), 30)
            assert (point / "v3/raw/c/0/0").read_bytes() == chunk(0, 0)
            assert server.requests[-1].headers["authorization"].startswith(f"AWS4-HMAC-SHA256 Credential={key}")
            assert any("X-Amz-Signature" in request.query for request in server.requests)
            with pytest.raises(PermissionError) as refused:
                (point / "v3/raw/c/3/3").read_bytes()
            assert (point / "x.h5/values/c/0/0").stat().st_size == VALUES.nbytes
            with pytest.raises(OSError, match="error") as broken:
                os.listdir(point / "broken.h5")
            shown = [os.getxattr(point / name, "user.fsbridge.source").decode() for name in ("", "v3/raw")]
            assert shown == [f"s3://{BUCKET}/many", f"s3://{BUCKET}/many/v3/raw"]
            shown += [str(refused.value), str(broken.value), os.fsdecode(Path("/proc/mounts").read_bytes())]
            shown += [Path(f"/proc/{process.pid}/cmdline").read_text()]
            before = len(shown)
            for child in descendants(process.pid):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                    shown += [(Path(f"/proc/{child}") / name).read_bytes().decode() for name in ("cmdline", "environ")]
            assert len(shown) > before  # what reads HDF5
        finally:
            process.terminate()
            shown.append(process.communicate(timeout=20)[1])
    shown.append(log.read_text())
    assert "c/3/3" in shown[-1]
    told = forking.run("info", *reached, f"s3://{BUCKET}/many", env=env)
    assert "v3/raw" in told.stdout
    shown += [told.stdout, told.stderr]
    for text in shown:
        for planted in (key, secret, token):
            assert planted not in text


def test_info_of_a_url(server: FakeS3) -> None:
    shown = fsbridge("info", *server.options, f"s3://{BUCKET}/v3")
    assert shown.returncode == 0, shown.stderr
    assert "raw" in shown.stdout
    assert "16/16" in shown.stdout.replace(" ", "")


MALFORMED = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>"
"""The answer of S3 to a signature for another region."""


@pytest.mark.parametrize(
    ("arguments", "fault", "text"),
    [
        (["s3://bucket/nothing"], None, "nothing below it"),
        (["s3://nobucket/v3"], None, "the bucket does not exist"),
        (["ftp://server/v3"], None, "no kind of store that fsbridge knows"),
        (["https://u:PLANTED@server/v3"], None, "holds a password or a signature"),
        (["https://u:PLANTED/with/slashes@server/v3"], None, "holds a password or a signature"),
        (["s3://AKIA:PLANTED/with/slashes@bucket/v3"], None, "holds a password or a signature"),
        (["s3://bucket/v3?X-Amz-Signature=PLANTED"], None, "holds a password or a signature"),
        (["--endpoint", "minio:9000", "s3://bucket/v3"], None, "endpoint minio:9000: not the URL of a server"),
        (["--endpoint", "127.0.0.1:9000", "s3://bucket/v3"], None, "endpoint 127.0.0.1:9000: not the URL of a server"),
        (["--endpoint", "http://u:PLANTED@server", "s3://bucket/v3"], None, "holds a password or a signature"),
        (["--profile", "x", "s3://bucket/v3"], None, "profile"),
        (["s3://bucket/v3"], Fault(status=400, body=MALFORMED), "wrong region: it is eu-west-1; say --region"),
        (["s3://bucket/v3"], Fault(status=403, body=b"<Error><Code>RequestTimeTooSkewed</Code></Error>"), "clock is wrong"),
        (
            ["s3://bucket/v3"],
            Fault(status=403, body=b"<Error><Code>InvalidAccessKeyId</Code></Error>"),
            "credentials are wrong",
        ),
        (["s3://bucket/zips/x.zarr.zip"], Fault(ignore_range=True), "the server ignores ranges"),
        (["s3://bucket/v3"], Fault(status=403, body=b"<Error><Code>AccessDenied</Code></Error>"), "refused"),
    ],
)
def test_mistakes_are_said_within_five_seconds(
    server: FakeS3, tmp_path: Path, arguments: list[str], fault: Fault | None, text: str
) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("zarr.json", server.objects["v3/zarr.json"].data + b" " * (1 << 20))
    server.put("zips/x.zarr.zip", (tmp_path / "x.zip").read_bytes())
    server.fault = lambda request: fault
    begun = time.monotonic()
    (tmp_path / "mnt").mkdir()
    done = fsbridge("mount", *server.options, *arguments, tmp_path / "mnt")
    assert done.returncode != 0
    assert text in done.stderr
    assert "PLANTED" not in done.stderr
    assert len(done.stderr.splitlines()) <= 3, done.stderr
    assert time.monotonic() - begun < 20  # on a loaded machine


def test_a_server_may_be_named_by_the_environment(server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of other programs name the server, and plain HTTP needs no further option."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    shown = fsbridge("info", "--anonymous", "--region", "us-east-1", f"s3://{BUCKET}/v3")
    assert "16/16" in shown.stdout.replace(" ", ""), shown.stderr
    monkeypatch.setenv("AWS_ENDPOINT_URL", "127.0.0.1:9")
    refused = fsbridge("info", "--anonymous", "--region", "us-east-1", f"s3://{BUCKET}/v3")
    assert refused.stderr.startswith("fsbridge: endpoint 127.0.0.1:9: not the URL of a server\n")


def test_mount_says_that_listing_is_not_allowed(server: FakeS3, tmp_path: Path) -> None:
    """It was in the log only, and `ls` said "Operation not supported" without a reason."""
    server.fault = lambda request: Fault(status=403) if request.kind == "LIST" else None
    mountpoint = tmp_path / "mnt"
    mountpoint.mkdir()
    done = fsbridge("mount", *server.options, f"s3://{BUCKET}/v3", mountpoint)
    try:
        assert done.returncode == 0, done.stderr
        said = without_log_notice(done.stderr)
        assert said == f"fsbridge: s3://{BUCKET}/v3: no permission to list: only members with a known name can be opened\n"
        assert (mountpoint / "raw/c/0/1").read_bytes() == chunk(0, 1)
    finally:
        fsbridge("umount", mountpoint)


@pytest.fixture
def many(server: FakeS3, tmp_path: Path) -> str:
    """The URL of a store with 24 arrays in a group."""
    group = zarr.open_group(tmp_path / "many", mode="w", zarr_format=3)
    for number in range(24):
        group.create_array(f"g/a{number}", data=VALUES[:16, :16], chunks=(16, 16))
    server.put_tree(tmp_path / "many", "many")
    return f"s3://{BUCKET}/many"


@pytest.mark.parametrize(("layout", "path"), [("files", "g"), ("n5", "g"), ("files", "g.h5")])
def test_members_that_must_be_opened_are_opened_many_at_a_time(
    server: FakeS3, many: str, mount: MountFunction, layout: str, path: str
) -> None:
    """One after the other, 1,000 of them at 30 ms take half a minute."""
    mounted = mount(many, *server.options, "--layout", layout, "--metadata-ttl", "60")
    with server.counted() as requests, server.gathered(9, lambda request: "/g/a" in request.key and "json" in request.key):
        assert len(os.listdir(mounted / path)) >= 24 if path == "g" else (mounted / path).stat().st_size > 24
    asked = [request.key for request in requests if "/g/a" in request.key and "json" in request.key]
    assert len(asked) == len(set(asked)) == 24, described(requests)
    mounted.stop()


def test_info_opens_members_many_at_a_time(server: FakeS3, many: str) -> None:
    with server.gathered(9, lambda request: "/g/a" in request.key and "json" in request.key):
        found = fsbridge("info", many, *server.options)
    assert [line.split()[0] for line in found.stdout.splitlines()[3:6]] == ["/g", "/g/a0", "/g/a1"]
    assert found.stdout.count(" 1/1") == 24


def test_a_member_that_fails_while_many_are_opened_hides_no_other(server: FakeS3, many: str, mount: MountFunction) -> None:
    mounted = mount(many, *server.options, "--layout", "files")
    mounted.allow("a7")
    server.put("many/g/a7/zarr.json", b"{")
    listed = os.listdir(mounted / "g")
    assert {f"a{number}.npy" for number in range(24) if number != 7} < set(listed)
    assert "a7" in listed
    assert errno_of(lambda: os.listdir(mounted / "g/a7")) == errno.EIO
    mounted.stop()


def test_requests_of_an_arrays_file_in_a_group_that_was_not_listed(server: FakeS3, many: str, mount: MountFunction) -> None:
    """Its listing tells that `a1.npy` is no array, which else four requests do. The array is asked for at the same time."""
    mounted = mount(many, *server.options, "--layout", "files", "--metadata-ttl", "60")
    with server.counted() as requests:
        assert (mounted / "g/a1[:, 3].npy").stat().st_size == 128 + 16 * VALUES.itemsize
    assert sorted(described(requests)) == ["GET many/g/a1/zarr.json ", "GET many/g/zarr.json ", "LIST many/g/ "]
    mounted.stop()


@pytest.mark.parametrize("listed", ["web server", "refused"])
def test_whole_arrays_of_a_group_that_cannot_be_listed(server: FakeS3, mount: MountFunction, listed: str) -> None:
    """They were "Operation not supported": a group was listed for each of them, to find members called like files."""
    if listed == "refused":
        server.fault = lambda request: Fault(status=403) if request.kind == "LIST" else None
    where = [server.url("v3")] if listed == "web server" else [f"s3://{BUCKET}/v3", *server.options]
    mounted = mount(*where, "--layout", "files")
    mounted.allow("list")
    with pytest.raises(OSError, match=r"not supported|Input/output"):
        os.listdir(mounted.path)
    np.testing.assert_array_equal(np.load(mounted / "raw.npy"), VALUES)
    np.testing.assert_array_equal(np.load(mounted / "raw[3:,::2].npy"), VALUES[3:, ::2])
    assert json.loads((mounted / "raw.json").read_text())["shape"] == list(VALUES.shape)
    assert not (mounted / "other.npy").exists()


def test_p8_a_key_without_a_name_hides_no_other(server: FakeS3, mount: MountFunction) -> None:
    server.put("v3//x", b"")
    mounted = mount(f"s3://{BUCKET}/v3", *server.options, "--layout", "files")
    mounted.allow("no path can have this name")
    assert "raw.npy" in os.listdir(mounted.path)
    np.testing.assert_array_equal(np.load(mounted / "raw.npy"), VALUES)


def test_a_file_url_is_a_local_path(tmp_path: Path, mount: MountFunction) -> None:
    zarr.open_group(tmp_path / "a b", mode="w", zarr_format=3).create_array("raw", data=VALUES, chunks=(16, 16))
    mounted = mount(f"file://{tmp_path}/a%20b")
    assert (mounted / "raw/c/0/1").read_bytes() == chunk(0, 1)


@pytest.mark.parametrize("url", ["s3", "http"])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_file_is_read_by_ranges(server: FakeS3, tmp_path: Path, mount: MountFunction, url: str, method: int) -> None:
    noise = np.random.default_rng(0).integers(0, 2**31, (512, 512), dtype="<i4")
    group = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=3)
    group.create_array("raw", data=noise, chunks=(256, 256), compressors=None)
    with zipfile.ZipFile(tmp_path / "x.zarr.zip", "w", method) as archive:
        for path in sorted((tmp_path / "x.zarr").rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(tmp_path / "x.zarr"))
    server.put("zips/x.zarr.zip", (tmp_path / "x.zarr.zip").read_bytes(), 1e9)
    where, options = (f"s3://{BUCKET}/zips", server.options) if url == "s3" else (server.url("zips"), [])
    mounted = mount(f"{where}/x.zarr.zip", *options)
    with server.counted() as requests:
        assert (mounted / "raw/c/1/0").read_bytes() == noise[256:, :256].tobytes()
    assert all(request.range or "if-none-match" in request.headers for request in requests)
    assert sorted(os.listdir(mounted / "raw/c/0")) == ["0", "1"]
    with open(mounted / "raw/c/0/1", "rb", buffering=0) as file:
        server.put("zips/x.zarr.zip", server.objects["zips/x.zarr.zip"].data + b"x", 2e9)
        time.sleep(1.2)
        with pytest.raises(OSError, match=r"Stale file handle|Input/output error"):
            file.read()
    mounted.allow("x.zarr.zip")
    mounted.stop()
    if url == "s3":
        server.put("zips/x.zarr.zip", (tmp_path / "x.zarr.zip").read_bytes(), 1e9)
        server.put_tree(tmp_path / "x.zarr", "zips/y.zarr")
        mounted = mount(where, *options)
        assert (mounted / "x.zarr.zip/raw/c/1/0").read_bytes() == (mounted / "y.zarr/raw/c/1/0").read_bytes()
        mounted.stop()


def test_eight_mounts_of_one_store_share_a_block_cache(server: FakeS3, tmp_path: Path, mount: MountFunction) -> None:
    """Eight mounts on one machine stand for eight nodes: all read right values together, and fetch each block once."""
    options = [*server.options, "--block-cache", str(tmp_path / "blocks"), "--immutable"]
    mounts = [mount(f"s3://{BUCKET}/v3", *options) for _ in range(8)]
    paths = [f"raw/c/{i}/{j}" for i in range(4) for j in range(4)]
    words = ["sha256sum", *paths]
    readers = [subprocess.Popen(words, cwd=mounted.path, stdout=subprocess.PIPE, text=True) for mounted in mounts]
    said = {reader.communicate(timeout=60)[0] for reader in readers}
    assert said == {"".join(f"{sha256(chunk(i, j)).hexdigest()}  raw/c/{i}/{j}\n" for i in range(4) for j in range(4))}
    for mounted in mounts:
        mounted.settle(lambda: server.in_flight)
    late = mount(f"s3://{BUCKET}/v3", *options)
    with server.counted() as requests:
        assert (late / "raw/c/2/1").read_bytes() == chunk(2, 1)
    assert not [request for request in requests if "/c/" in request.key], described(requests)
    for mounted in (*mounts, late):
        mounted.stop()


def test_what_moto_serves_is_read(
    server: FakeS3, tmp_path: Path, mount: MountFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server, which checks signatures' form, pages its listings and answers conditional requests."""
    from moto.server import ThreadedMotoServer
    from obstore.store import S3Store

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    other = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    other.start()
    host, port = other.get_host_and_port()
    try:
        endpoint = f"http://{host}:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/other", method="PUT"), timeout=10).close()
        store = S3Store("other", endpoint=endpoint, region="us-east-1", client_options={"allow_http": True})
        for key, stored in server.objects.items():
            store.put(key, stored.data)
        for i in range(1010):
            store.put(f"v3/many/c/{i}/0", b"x")
        store.put("v3/many/zarr.json", server.objects["v3/raw/zarr.json"].data.replace(b"64", b"64000"))
        mounted = mount("s3://other/v3", "--region", "us-east-1", "--endpoint", endpoint)
        found = read(mounted / "raw", "tensorstore")[""]
        np.testing.assert_array_equal(found.values, VALUES)
        assert (mounted / "shards/c/3/1").read_bytes() == chunk(3, 1)
        assert len(os.listdir(mounted / "many/c")) == 1010
        with pytest.raises(FileNotFoundError):
            os.stat(mounted / "raw/c/9/9")
        mounted.stop()
    finally:
        other.stop()
