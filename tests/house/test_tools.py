"""Ordinary file tools and file-reading Python on a real mount: what they print and copy is right, with no error from any."""

from __future__ import annotations

import filecmp
import hashlib
import json
import mmap
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr
from mounting import Mount, MountFunction
from stores import kvstore

SHAPE, BLOCK = (300, 200, 70), (128, 100, 70)
"""Chunks of 1.8 MB: several read requests each, the last a partial page."""
FILES = ["zarr.json", "raw/zarr.json", *(f"raw/c/{x}/{y}/0" for x in range(3) for y in range(2))]


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 999, SHAPE, np.uint16)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory, module_mount: MountFunction, values: np.ndarray) -> Mount:
    import tensorstore

    store = tmp_path_factory.mktemp("tools") / "brain.n5"
    metadata = {"dimensions": list(SHAPE), "blockSize": list(BLOCK), "dataType": "uint16", "compression": {"type": "gzip"}}
    spec = {"driver": "n5", "kvstore": kvstore(store / "raw"), "metadata": metadata}
    tensorstore.open(spec, create=True).result().write(values).result()
    (store / "attributes.json").write_text('{"n5": "2.0.0", "species": "Drosophila melanogaster"}')
    return module_mount(store)


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a tool; it must succeed and say nothing on stderr."""
    result = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stderr) == (0, ""), f"{command}: {result.stderr}"
    return result.stdout


def chunk(values: np.ndarray, x: int, y: int) -> bytes:
    """The decoded bytes of one chunk: big-endian, N5's first dimension fastest, padded to the full block."""
    part = values[x * BLOCK[0] : (x + 1) * BLOCK[0], y * BLOCK[1] : (y + 1) * BLOCK[1]]
    full = np.zeros(BLOCK, ">u2")
    full[tuple(map(slice, part.shape))] = part
    return full.tobytes("F")


def chunks(values: np.ndarray) -> Iterator[tuple[str, bytes]]:
    for x in range(3):
        for y in range(2):
            yield f"raw/c/{x}/{y}/0", chunk(values, x, y)


def test_find_lists_every_file_once(tree: Mount) -> None:
    found = run("find", ".", "-type", "f", cwd=tree.path).split()
    assert sorted(found) == sorted(f"./{name}" for name in FILES)


def test_ls_shows_sizes(tree: Mount) -> None:
    line = run("ls", "-l", tree / "raw/c/0/0/0").split()
    assert line[0].startswith("-r--r--r--")
    assert int(line[4]) == 2 * 128 * 100 * 70


def test_grep_searches_metadata(tree: Mount) -> None:
    assert run("grep", "-rl", "Drosophila", tree.path).strip() == str(tree / "zarr.json")
    assert "melanogaster" in run("grep", "-h", "species", tree / "zarr.json")


def test_jq_reads_metadata(tree: Mount) -> None:
    assert json.loads(run("jq", ".shape", tree / "raw/zarr.json")) == list(SHAPE)
    assert run("jq", "-r", ".attributes.species", tree / "zarr.json").strip() == "Drosophila melanogaster"


def test_du_counts_what_there_is(tree: Mount) -> None:
    total = sum((tree / name).stat().st_size for name in FILES)
    apparent = int(run("du", "-s", "--apparent-size", "--block-size=1", tree.path).split()[0])
    blocks = int(run("du", "-s", "--block-size=512", tree.path).split()[0])
    assert total <= apparent <= total + 8192 * 16
    assert blocks * 512 >= total  # tar -S and cp --sparse take fewer blocks than bytes for a hole


def test_cmp_and_sha256sum_agree_with_the_array(tree: Mount, values: np.ndarray, tmp_path: Path) -> None:
    for name, content in chunks(values):
        assert run("sha256sum", tree / name).split()[0] == hashlib.sha256(content).hexdigest()
    (tmp_path / "chunk").write_bytes(chunk(values, 1, 1))
    assert run("cmp", tree / "raw/c/1/1/0", tmp_path / "chunk") == ""


def test_dd_reads_a_range(tree: Mount, values: np.ndarray, tmp_path: Path) -> None:
    source, target = tree / "raw/c/2/1/0", tmp_path / "part"
    run("dd", "status=none", f"if={source}", f"of={target}", "bs=1000", "skip=701", "count=3")
    assert target.read_bytes() == chunk(values, 2, 1)[701_000:704_000]


def test_od_prints_elements(tree: Mount, values: np.ndarray) -> None:
    printed = run("od", "-A", "n", "-t", "u2", "--endian=big", "-N", "8", tree / "raw/c/0/0/0")
    assert list(map(int, printed.split())) == list(values[:4, 0, 0])


def assert_copied(copy: Path, values: np.ndarray) -> None:
    assert sorted(str(p.relative_to(copy)) for p in copy.rglob("*") if p.is_file()) == sorted(FILES)
    for name, content in chunks(values):
        assert (copy / name).read_bytes() == content


@pytest.mark.parametrize("options", [("-r",), ("-a",), ("-r", "--sparse=always")], ids=" ".join)
def test_cp_copies_every_byte(tree: Mount, values: np.ndarray, tmp_path: Path, options: tuple[str, ...]) -> None:
    run("cp", *options, f"{tree.path}/.", tmp_path / "copy")
    assert_copied(tmp_path / "copy", values)
    run("chmod", "-R", "u+w", tmp_path / "copy")


def test_a_copy_is_a_zarr_store(tree: Mount, values: np.ndarray, tmp_path: Path) -> None:
    run("cp", "-r", tree.path, tmp_path / "copy.zarr")
    assert np.array_equal(zarr.open_array(tmp_path / "copy.zarr/raw", mode="r")[...], values)
    run("chmod", "-R", "u+w", tmp_path / "copy.zarr")


def test_rsync_copies_once(tree: Mount, values: np.ndarray, tmp_path: Path) -> None:
    run("rsync", "-a", f"{tree.path}/", tmp_path / "copy")
    assert_copied(tmp_path / "copy", values)
    again = run("rsync", "-a", "--itemize-changes", f"{tree.path}/", tmp_path / "copy")
    assert again == "", "sizes and times are stable: nothing is copied twice"
    run("rsync", "-a", "--checksum", "--itemize-changes", f"{tree.path}/", tmp_path / "copy")
    run("chmod", "-R", "u+w", tmp_path / "copy")


@pytest.mark.parametrize("options", ["cf", "cSf"])
def test_tar_copies_every_byte(tree: Mount, values: np.ndarray, tmp_path: Path, options: str) -> None:
    run("tar", options, tmp_path / "copy.tar", "-C", tree.path, ".")
    (tmp_path / "copy").mkdir()
    run("tar", "xf", tmp_path / "copy.tar", "-C", tmp_path / "copy")
    assert_copied(tmp_path / "copy", values)
    run("chmod", "-R", "u+w", tmp_path / "copy")


def test_diff_of_the_mount_with_its_copy(tree: Mount, tmp_path: Path) -> None:
    run("cp", "-r", tree.path, tmp_path / "copy")
    assert run("diff", "-r", tree.path, tmp_path / "copy") == ""
    assert filecmp.dircmp(tree.path, tmp_path / "copy").diff_files == []
    run("chmod", "-R", "u+w", tmp_path / "copy")


def test_np_fromfile_reads_a_chunk(tree: Mount, values: np.ndarray) -> None:
    block = np.fromfile(tree / "raw/c/0/1/0", ">u2").reshape(BLOCK, order="F")
    assert np.array_equal(block, values[:128, 100:])


def test_np_memmap_maps_a_chunk(tree: Mount, values: np.ndarray) -> None:
    block = np.memmap(tree / "raw/c/1/0/0", ">u2", "r", shape=BLOCK, order="F")
    assert np.array_equal(block[:, ::7, 3:], values[128:256, :100:7, 3:])


def test_a_shared_mapping_shows_a_chunk(tree: Mount, values: np.ndarray) -> None:
    with open(tree / "raw/c/2/0/0", "rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as view:
        assert view[5000:9000] == chunk(values, 2, 0)[5000:9000]
        assert len(view) == len(chunk(values, 2, 0))


def test_stat_and_file_types(tree: Mount) -> None:
    assert run("stat", "-c", "%F %a", tree / "raw/c").strip() == "directory 555"
    assert run("stat", "-c", "%F %a", tree / "zarr.json").strip() == "regular file 444"
    assert "fuse.fsbridge" in run("findmnt", "-n", "-o", "FSTYPE", tree.path)
