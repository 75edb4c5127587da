"""`fsbridge export` to object storage: the mount's tree as objects, resumable, whole or not at all, in parts if large."""

from __future__ import annotations

import os
import re
import subprocess
import time
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import forking
import h5py
import numpy as np
import pytest
import tensorstore
import zarr
from fake_s3 import BUCKET, FakeS3, Fault
from in_process import fsbridge
from numpy.typing import NDArray
from source_places import numbers, tree_of, write_each
from zarr.core.buffer import default_buffer_prototype

OLD = 10**18
"""Nanoseconds: what has just been written is exported again the next time."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Twelve chunks, and other files."""
    root = zarr.open_group(tmp_path / "a.zarr", mode="w")
    root.create_array("g/a", data=numbers(), chunks=(3, 2, 4), attributes={"unit": "µm"})
    return aged(tmp_path / "a.zarr")


def aged(store: Path) -> Path:
    for path in (store, *store.rglob("*")):
        os.utime(path, ns=(OLD, OLD))
    return store


def export(server: FakeS3, *words: str | os.PathLike[str]) -> tuple[int, int]:
    """Files written and kept by an export that goes well."""
    done = fsbridge("export", *words, *server.options)
    assert done.returncode == 0, done.stderr
    return told(done.stderr)


def told(text: str) -> tuple[int, int]:
    found = re.search(r"([\d,]+) files? written .*, ([\d,]+) kept", text)
    assert found is not None, text
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))


def elements(array: object) -> NDArray[Any]:
    assert isinstance(array, zarr.Array)
    return np.asarray(array[...])


def objects(server: FakeS3, prefix: str) -> dict[str, bytes]:
    return {key[len(prefix) + 1 :]: stored.data for key, stored in server.objects.items() if key.startswith(f"{prefix}/")}


def files(store: Path, *options: str) -> dict[str, bytes]:
    """Return what an export to a directory has, which is the mount's tree."""
    with TemporaryDirectory() as folder:
        assert fsbridge("export", store, folder, *options).returncode == 0
        return {path: content for path, content in tree_of(folder).items() if content is not None}


def test_p12_an_export_to_objects_is_that_to_a_directory(server: FakeS3, tmp_path: Path) -> None:
    each = write_each(tmp_path / "each")
    for name in ("hdf5", "n5"):
        place = each[name]
        export(server, place, f"s3://{BUCKET}/out/{name}", "--layout", "zarr3,files")
        assert objects(server, f"out/{name}") == files(place, "--layout", "zarr3,files"), name


def test_other_readers_read_it(server: FakeS3, store: Path) -> None:
    export(server, store, f"s3://{BUCKET}/deep/out")
    spec = {"driver": "zarr3", "kvstore": {"driver": "http", "base_url": server.url("deep/out/g/a/")}}
    assert (tensorstore.open(spec).result().read().result() == numbers()).all()
    found = zarr.open_group(
        {
            f"x/{key}": default_buffer_prototype().buffer.from_bytes(data)
            for key, data in objects(server, "deep/out").items()
        },
        path="x",
        mode="r",
    )
    assert found["g/a"].attrs["unit"] == "µm"
    assert (elements(found["g/a"]) == numbers()).all()


def test_a_second_export_writes_what_is_missing_or_has_changed(server: FakeS3, store: Path) -> None:
    url, all_files = f"s3://{BUCKET}/out", len(files(store))
    assert export(server, store, url) == (all_files, 0)
    assert export(server, store, url) == (0, all_files)
    chunks = sorted(key for key in server.objects if "/c/" in key)
    del server.objects[chunks[0]]
    server.put(chunks[1], b"x" * len(server.objects[chunks[1]].data))  # written by another program, of the same size
    server.put(chunks[2], b"cut")
    zarr.open_array(store / "g/a", mode="r+")[-1, -1, -1] = 7
    assert export(server, store, url) == (4, all_files - 4)
    assert objects(server, "out") == files(store)


def test_p9_whole_arrays_are_compared_by_their_bytes(server: FakeS3, store: Path) -> None:
    words = (store, f"s3://{BUCKET}/out", "--layout", "files")
    assert export(server, *words)[0] == export(server, *words)[1]
    array = zarr.open_array(store / "g/a", mode="r+")
    array[0, 0, 0] = 99
    aged(store)
    assert export(server, *words)[0] >= 1
    assert server.objects["out/g/a.npy"].data.endswith(elements(array).tobytes())


def test_another_source_with_the_same_sizes_and_times_is_not_taken_for_it(
    server: FakeS3, store: Path, tmp_path: Path
) -> None:
    export(server, store, f"s3://{BUCKET}/out")
    root = zarr.open_group(tmp_path / "b.zarr", mode="w")
    root.create_array("g/a", data=numbers() + 1, chunks=(3, 2, 4), attributes={"unit": "µm"})
    export(server, aged(tmp_path / "b.zarr"), f"s3://{BUCKET}/out")
    assert objects(server, "out") == files(tmp_path / "b.zarr")


def test_a_large_file_goes_in_parts(server: FakeS3, tmp_path: Path) -> None:
    data = np.arange(5 << 20, dtype="<i4").reshape(20, 512, 512)
    zarr.create_array(tmp_path / "a.zarr", data=data, chunks=(2, 512, 512), compressors=None)
    words = (aged(tmp_path / "a.zarr"), f"s3://{BUCKET}/out", "--files", "raw", "--include", "*.raw")
    assert export(server, *words) == (1, 0)
    assert list(objects(server, "out").values()) == [data.tobytes()]
    parts = [request for request in server.requests if "partNumber" in request.query]
    assert len(parts) == 3
    assert export(server, *words) == (0, 1)
    server.objects.clear()
    server.fault = lambda request: Fault(status=400) if request.query.get("partNumber") == "2" else None
    done = fsbridge("export", *words, *server.options)
    assert (done.returncode, done.stderr.count("\n")) == (1, 2)
    assert "status 400" in done.stderr
    assert not server.objects
    assert not server.uploads.begun


def test_killed_in_the_middle_and_resumed(server: FakeS3, store: Path) -> None:
    server.latency = 0.1
    words: tuple[str | Path, ...] = (store, f"s3://{BUCKET}/out", *server.options)
    with forking.start("export", *words, stderr=subprocess.DEVNULL) as running:
        while len(objects(server, "out")) < 2:
            assert running.poll() is None
            time.sleep(0.005)
        running.kill()
    server.latency = 0.0
    expected = files(store)
    left = objects(server, "out")
    assert left.items() <= expected.items()
    written, kept = export(server, *words[:2])
    assert written + kept == len(expected)
    assert kept >= 2
    assert objects(server, "out") == expected


def test_what_fails_is_a_line_and_hides_nothing_else(server: FakeS3, store: Path) -> None:
    whole = len(files(store))
    (store / "g/a/c/1/0/0").write_bytes(b"damage")
    server.fault = lambda request: Fault(status=400) if request.kind == "PUT" and request.key.endswith("c/0/0/0") else None
    done = fsbridge("export", store, f"s3://{BUCKET}/out", *server.options)
    assert done.returncode == 1
    assert re.search(r"c/0/0/0: the server answers with status 400$", done.stderr, re.MULTILINE)
    assert "c/1/0/0: " in done.stderr
    assert done.stderr.count("\n") == 3
    assert "2 failed" in done.stderr
    assert len(objects(server, "out")) == whole - 2
    assert "out/g/a/c/1/0/0" not in server.objects


@pytest.mark.parametrize(
    ("status", "code", "said"), [(403, "AccessDenied", "refused"), (404, "NoSuchBucket", "does not exist")]
)
def test_a_bucket_that_takes_nothing_is_one_line(server: FakeS3, store: Path, status: int, code: str, said: str) -> None:
    body = f"<Error><Code>{code}</Code></Error>".encode()
    server.fault = lambda request: Fault(status=status, body=body) if request.kind == "PUT" else None
    done = fsbridge("export", store, f"s3://{BUCKET}/out", *server.options)
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 2


def test_links_are_lines_and_no_objects(server: FakeS3, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("g/data", data=[1, 2, 3])
        file["soft"] = h5py.SoftLink("/g/data")
    done = fsbridge("export", tmp_path / "a.h5", f"s3://{BUCKET}/out", *server.options)
    assert done.returncode == 1
    assert "soft: a link to g/data" in done.stderr
    assert "1 failed" in done.stderr
    assert not any("soft" in key for key in server.objects)
    export(server, tmp_path / "a.h5", f"s3://{BUCKET}/out", "--exclude", "soft")


def test_from_object_storage_in_parts_and_one_file(server: FakeS3, store: Path) -> None:
    server.put_tree(store, "a.zarr")
    source = f"s3://{BUCKET}/a.zarr"
    for part in range(1, 4):
        export(server, source, f"s3://{BUCKET}/out", "--part", f"{part}/3")
    assert objects(server, "out") == files(store)
    export(server, f"{source}//g/a.npy", f"s3://{BUCKET}/b.npy", "--layout", "files")
    assert server.objects["b.npy"].data.endswith(numbers().tobytes())
    export(server, f"{source}//g/a.npy", f"s3://{BUCKET}/below/", "--layout", "files")
    assert server.objects["below/a.npy"].data == server.objects["b.npy"].data


def test_p1_it_is_never_written_over_its_source(server: FakeS3, store: Path) -> None:
    server.put_tree(store, "x/a.zarr")
    before = dict(server.objects)
    for place in ("x/a.zarr/out", "x/a.zarr", "x", ""):
        done = fsbridge("export", f"s3://{BUCKET}/x/a.zarr", f"s3://{BUCKET}/{place}", *server.options)
        assert done.returncode == 1
        assert "is inside the store" in done.stderr
    assert server.objects == before


@pytest.mark.parametrize("url", ["https://example.org/x", "file:///tmp/x", "ftp://example.org/x"])
def test_where_nothing_can_be_written(store: Path, url: str) -> None:
    done = fsbridge("export", store, url)
    assert done.returncode == 1
    assert done.stderr.count("\n") <= 2
    assert "s3://" in done.stderr


def test_moto_takes_it(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server, which checks signatures' form and parts, and keeps metadata."""
    from moto.server import ThreadedMotoServer
    from obstore.store import S3Store

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    root = zarr.open_group(store, mode="r+")
    root.create_array("large", data=np.arange(9 << 18, dtype="<i4"), compressors=None)
    aged(store)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    try:
        endpoint = f"http://{host}:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/other", method="PUT"), timeout=10).close()
        words = ("export", store, "s3://other/a b/out", "--region", "us-east-1", "--endpoint", endpoint)
        done = fsbridge(*words)
        assert done.returncode == 0, done.stderr
        written, _ = told(done.stderr)
        assert told(fsbridge(*words).stderr) == (0, written)
        there = S3Store(
            "other", prefix="a b/out", endpoint=endpoint, region="us-east-1", client_options={"allow_http": True}
        )
        found = zarr.open_group(zarr.storage.ObjectStore(there, read_only=True), mode="r")
        assert (elements(found["g/a"]) == numbers()).all()
        assert (elements(found["large"]) == np.arange(9 << 18)).all()
    finally:
        moto.stop()
