"""`--dask`: the same results by the workers of a cluster, from disk and from object storage, although one of them dies."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr
from distributed import LocalCluster
from fake_s3 import BUCKET, FakeS3, Fault, Request
from in_process import fsbridge
from source_places import tree_of, write_each

from fsbridge.errors import SetupError
from fsbridge.unmounted.cluster import Cluster
from fsbridge.unmounted.units import WorkSources


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two worker processes on the loopback address."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1", silence_logs=50
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several units of elements, a few more arrays, a damaged chunk."""
    path = tmp_path_factory.mktemp("dask") / "a.zarr"
    root = zarr.open_group(path, mode="w")
    root.create_array("large", data=np.arange(16 << 20, dtype="<i4").reshape(16, 1024, 1024), chunks=(1, 512, 512))
    root.create_array("damaged", data=np.arange(8, dtype="<i4"), chunks=(2,))
    (path / "damaged/c/2").write_bytes(b"damage")
    return path


def both(cluster: LocalCluster, *words: str | os.PathLike[str]) -> tuple[int, str]:
    """Exit code and output of a command, which are those that it has without the cluster."""
    alone = fsbridge(*words)
    done = fsbridge(*words, "--dask", cluster.scheduler_address)
    assert (done.returncode, done.stdout, done.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    return done.returncode, done.stdout + done.stderr


def test_results_are_those_of_one_machine(cluster: LocalCluster, store: Path, tmp_path: Path) -> None:
    code, said = both(cluster, "verify", store)
    assert code == 1
    assert "damaged: /damaged: chunk [2]: " in said
    code, said = both(cluster, "digest", store)
    assert code == 1
    assert said.count("  /large\n") == 1
    assert said.count("fsbridge: /damaged: ") == 1
    shutil.copytree(store, tmp_path / "b.zarr")
    zarr.open_array(tmp_path / "b.zarr/large")[7, 3, 5] = 0
    code, said = both(cluster, "diff", f"{store}//large", f"{tmp_path}/b.zarr//large")
    assert (code, said) == (1, "/: 1 of 16,777,216 elements differ, the first at [7, 3, 5], largest difference 7343109\n")


def test_an_export_is_that_of_one_machine(cluster: LocalCluster, store: Path, tmp_path: Path) -> None:
    """A file of 64 MiB is written in ranges."""
    words: list[str | Path] = ["export", store, "--layout", "zarr3,files"]
    alone = fsbridge(*words, tmp_path / "alone")
    done = fsbridge(*words, tmp_path / "together", "--dask", cluster.scheduler_address)
    assert tree_of(tmp_path / "together") == tree_of(tmp_path / "alone")
    assert (done.returncode, alone.returncode) == (1, 1)  # the damaged chunk
    assert sorted(done.stderr.splitlines()) == sorted(alone.stderr.splitlines())


def test_an_export_to_object_storage(cluster: LocalCluster, server: FakeS3, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=np.arange(200), chunks=(5,))
    done = fsbridge(
        "export", tmp_path / "a.zarr", f"s3://{BUCKET}/out", *server.options, "--dask", cluster.scheduler_address
    )
    assert (done.returncode, done.stderr[:25]) == (0, "fsbridge: 41 files writte")
    fsbridge("export", tmp_path / "a.zarr", tmp_path / "alone")
    alone = {path: content for path, content in tree_of(tmp_path / "alone").items() if content is not None}
    assert {key[4:]: stored.data for key, stored in server.objects.items() if key.startswith("out/")} == alone


def test_each_format_has_the_same_digest_by_a_cluster(cluster: LocalCluster, tmp_path: Path) -> None:
    each = write_each(tmp_path)
    found = fsbridge("digest", *(each[name] for name in ("hdf5", "n5", "zarr2 zip")), "--dask", cluster.scheduler_address)
    assert found.returncode == 0, found.stderr
    assert len(set(found.stdout.splitlines())) == 1


def test_a_worker_that_is_killed_in_the_middle(cluster: LocalCluster, store: Path, server: FakeS3, tmp_path: Path) -> None:
    server.put_tree(store / "large", "large.zarr")
    victim = next(iter(cluster.workers.values())).pid
    chunks = itertools.count()

    def fault(request: Request) -> Fault | None:
        if request.kind == "GET" and "/c/" in request.key and next(chunks) == 20:
            os.kill(victim, signal.SIGKILL)
        return None

    server.fault = fault
    url = f"s3://{BUCKET}/large.zarr"
    done = fsbridge("digest", url, *server.options, "--dask", cluster.scheduler_address)
    assert done.returncode == 0, done.stderr
    assert next(chunks) > 20
    assert done.stdout.split()[0] == fsbridge("digest", f"{store}//large").stdout.split()[0]


def test_a_scheduler_that_does_not_answer_is_one_line() -> None:
    with pytest.raises(SetupError, match=r"^tcp://127.0.0.1:1: no Dask scheduler answers: .*\n  name it as in tcp://HOST"):
        Cluster(WorkSources([]), "tcp://127.0.0.1:1", connect_seconds=0.2)


def test_no_scheduler_is_one_line(store: Path, tmp_path: Path) -> None:
    lines: list[list[str | Path]] = [["verify", store], ["export", store, tmp_path / "out"]]
    for words in lines:
        done = fsbridge(*words, "--dask", "nonsense://127.0.0.1:1")  # is not waited for
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("fsbridge: nonsense://127.0.0.1:1: no Dask scheduler answers")
        assert done.stderr.endswith("\n  name it as in tcp://HOST:8786\n")
        assert done.stderr.count("\n") == 2
