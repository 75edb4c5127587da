"""Write the Hangar repositories of tests/data/hangar/ with Hangar itself, and what its own checkout reads from them.

    python3.11 -m venv hangarenv
    hangarenv/bin/pip install hangar==0.5.2 numpy==1.23.5 'protobuf<3.21' 'h5py<3.12'
    hangarenv/bin/python tests/data/make_hangar.py

Makes `main.tar.xz` (every backend and compression, nested, str and bytes columns, two branches, a merge, deletions, four
writer sessions, staged data), `crashed.tar.xz` (the writer died after its commit), `partial.tar.xz` (a clone that fetched
the records and one column's data), and for each an `.npz` and a `.json` with the values. Not for `fsbridge`'s own code.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import warnings
from pathlib import Path

import numpy as np
from hangar import Repository
from hangar.remote.server import serve

OUT = Path(__file__).parent / "hangar"
BLOSC = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")


def options(complib, complevel, shuffle):
    return {"complib": complib, "complevel": complevel, "shuffle": shuffle}


COMPRESSIONS = {
    **{
        f"blosc_{name}": options(f"blosc:{name}", 5, shuffle)
        for name, shuffle in zip(BLOSC, (None, "byte", "byte", "bit", "bit"), strict=True)
    },
    "lzf": options("lzf", None, False),
    "lzf_shuffle": options("lzf", None, True),
    "gzip": options("gzip", 5, False),
    "gzip_shuffle": options("gzip", 9, True),
}
"""Columns of both HDF5 backends."""

DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64", "bool")


def values(rng, shape, dtype, random=False):
    """Random bytes, which compressors give up on, or a ramp, which they shrink."""
    size = int(np.prod(shape))
    data = rng.integers(0, 200, size) if random else np.arange(size) % 97
    data = data.reshape(shape)
    return np.asarray(data / 2 if dtype.startswith("float") else data, dtype)


def add_columns(checkout):
    """The columns of the main repository."""
    for number, (name, opts) in enumerate(COMPRESSIONS.items()):
        dtype = DTYPES[number % len(DTYPES)]
        checkout.add_ndarray_column(f"fixed00_{name}", shape=(5, 7), dtype=dtype, backend="00", backend_options=opts)
        checkout.add_ndarray_column(
            f"fixed01_{name}", shape=(3, 4, 5), dtype=DTYPES[-1 - number], backend="01", backend_options=opts
        )
    checkout.add_ndarray_column("variable00", shape=(20, 5, 3), dtype="int32", variable_shape=True, backend="00")
    checkout.add_ndarray_column(
        "wide00",
        shape=(60000,),
        dtype="float64",
        variable_shape=True,
        backend="00",
        backend_options=options("blosc:zstd", 9, "byte"),
    )
    checkout.add_ndarray_column(
        "large01", shape=(300, 701), dtype="float64", backend="01", backend_options=options("blosc:zstd", 9, "byte")
    )
    checkout.add_ndarray_column("table10", shape=(4,), dtype="uint16")
    checkout.add_ndarray_column("variable10", shape=(3, 4), dtype="float32", variable_shape=True, backend="10")
    checkout.add_ndarray_column("scalar10", shape=(), dtype="float64", backend="10")
    checkout.add_ndarray_column("scalar00", shape=(), dtype="int64", backend="00", backend_options=COMPRESSIONS["lzf"])
    checkout.add_ndarray_column("scalar01", shape=(), dtype="int64", backend="01", backend_options=COMPRESSIONS["lzf"])
    checkout.add_ndarray_column("long00", shape=(6, 7), dtype="longdouble", backend="00")
    checkout.add_ndarray_column("long01", shape=(6, 7), dtype="longdouble", backend="01")
    checkout.add_ndarray_column("long10", shape=(6, 7), dtype="longdouble", backend="10")
    checkout.add_ndarray_column("tiny01", shape=(2,), dtype="uint8", backend="01")
    checkout.add_ndarray_column("nested00", shape=(30, 30), dtype="uint8", variable_shape=True, contains_subsamples=True)
    checkout.add_ndarray_column("nested10", shape=(6,), dtype="int64", contains_subsamples=True)
    checkout.add_str_column("text")
    checkout.add_bytes_column("blobs")
    checkout.add_str_column("nested_text", contains_subsamples=True)
    checkout.add_bytes_column("nested_blobs", contains_subsamples=True)


def fill(checkout, rng, keys, leave_out="-"):
    """A sample for each of `keys` in each column (but some); random and regular data, all zeros once.

    Every session in which a column is written to makes a file.
    """
    for name in list(checkout.keys()):
        if name.startswith(leave_out):
            continue
        column = checkout[name]
        for number, key in enumerate(keys):
            if name.startswith("nested"):
                column[key] = {sub: sample(column, name, rng, number + n) for n, sub in enumerate(("left", 3, "r.2-x_"))}
            else:
                column[key] = sample(column, name, rng, number)


def sample(column, name, rng, number):
    if column.column_type == "str":
        return ("", "plain", "wörld \N{SNOWMAN} \0 tail", "long " * 40)[number % 4] + str(int(rng.integers(1000)))
    if column.column_type == "bytes":
        return rng.bytes(int(rng.integers(1, 60))) + bytes([number])
    shape = column.shape
    if column.schema_type == "variable_shape" and number % 3:
        shape = tuple(max(1, extent - number % extent) for extent in shape)
    if number % 5 == 4:
        return np.zeros(shape, column.dtype)
    return values(rng, shape, column.dtype.name, random=number % 2 == 0 and np.prod(shape) < 5000)


def read(checkout, prefix, arrays, texts):
    """Return what Hangar's checkout returns, by `prefix|column|sample[|subsample]`, keys as Hangar's records spell them.

    Of the many rows of table10 each 120th.
    """
    for name in checkout:
        column = checkout[name]
        for key in column:
            if column.contains_subsamples:
                found = {(key, sub): column[key][sub] for sub in column[key]}
            else:
                found = {(key,): column[key]}
            for path, value in found.items():
                place = "|".join([prefix, name, *(f"#{k}" if isinstance(k, int) else k for k in path)])
                if isinstance(value, np.ndarray):
                    if not (re.fullmatch(r"row\d+", str(key)) and int(key[3:]) % 120):
                        arrays[place] = value
                else:
                    texts[place] = {"str": value} if isinstance(value, str) else {"bytes": value.hex()}


def record(repo, name, root, *, skip_remote=False):
    """Archive the repository as it is, then read it with Hangar and keep the values."""
    archive(root, OUT / f"{name}.tar.xz")
    arrays, texts, branches, commits = {}, {}, {}, {}
    for branch in repo.list_branches():
        log = repo.log(branch=branch, return_contents=True)
        branches[branch] = log["head"]
        for digest in log["order"]:
            commits[digest] = {**log["specs"][digest], "parents": log["ancestors"][digest]}
    for digest in commits:
        checkout = repo.checkout(commit=digest)
        if skip_remote:
            read_local(checkout, digest, arrays, texts)
        else:
            read(checkout, digest, arrays, texts)
        checkout.close()
    finish(name, arrays, texts, {"branches": branches, "commits": commits})


def finish(name, arrays, texts, rest):
    """`.npz`: each different array once, numbered; `.json`: their numbers by place, the texts by place, and `rest`."""
    unique, places = {}, {}
    for place, array in arrays.items():
        number, _ = unique.setdefault((array.dtype.str, array.shape, array.tobytes()), (len(unique), array))
        places[place] = number
    np.savez_compressed(OUT / f"{name}.npz", **{str(number): array for number, array in unique.values()})
    document = {**rest, "texts": texts, "arrays": places}
    (OUT / f"{name}.json").write_text(json.dumps(document, indent=0, sort_keys=True) + "\n")


def read_local(checkout, digest, arrays, texts):
    class Local:
        def __iter__(self):
            return iter(name for name in checkout if not checkout[name].contains_remote_references)

        def __getitem__(self, name):
            return checkout[name]

    read(Local(), digest, arrays, texts)


def archive(root, target):
    """A deterministic tar: LMDB's sparse files are almost all zeros, which xz removes."""
    with lzma.open(target, "wb", preset=9 | lzma.PRESET_EXTREME) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for path in sorted(root.rglob("*")):
            info = tar.gettarinfo(str(path), str(path.relative_to(root)))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime = 1_600_000_000
            with open(path, "rb") if path.is_file() else open(os.devnull, "rb") as file:
                tar.addfile(info, file)


def main_repository(root):
    rng = np.random.default_rng(5)
    repo = Repository(root, exists=False)
    repo.init("Ada Example", "ada@example.org")
    checkout = repo.checkout(write=True)
    add_columns(checkout)
    fill(checkout, rng, ["first", "2", 2, 7, "a.b-c_d", 1000000])
    checkout.commit("first samples")
    checkout.close()

    repo.create_branch("experiment")
    checkout = repo.checkout(write=True, branch="experiment")
    fill(checkout, rng, ["only-here"], "fixed")
    checkout.commit('more, on a branch: "quoted" ünïcode')
    fill(checkout, rng, [8], "fixed")
    checkout.commit("a second commit of one session")
    checkout.close()

    checkout = repo.checkout(write=True, branch="master")
    for name in list(checkout.keys()):
        del checkout[name]["first"]
    checkout.columns.delete("tiny01")
    checkout["table10"]["row"] = checkout["table10"]["2"]
    for row in range(1200):  # two NUMPY_10 files: one holds 1000 rows
        checkout["table10"][f"row{row}"] = np.array([row, row + 1, row * row % 65536, 7], "uint16")
    checkout.commit("deleted samples and a column; many rows")
    checkout.merge("the merge", "experiment")
    checkout.close()

    repo.create_branch("empty-end")
    checkout = repo.checkout(write=True, branch="empty-end")
    for name in list(checkout.keys()):
        checkout.columns.delete(name)
    checkout.commit("nothing left")
    checkout.close()

    checkout = repo.checkout(write=True, branch="master")
    checkout["variable00"]["staged"] = values(rng, (4, 4, 3), "int32")
    checkout["text"]["staged"] = "not committed"
    del checkout["table10"]["row"]
    checkout.close()
    return repo


def write_crashed(root):
    repo = Repository(root, exists=False)
    repo.init("Ada Example", "ada@example.org")
    checkout = repo.checkout(write=True)
    checkout.add_ndarray_column("array", shape=(40, 20), dtype="int32", variable_shape=True)
    checkout.add_ndarray_column("volume", shape=(4, 20, 20), dtype="int16", backend="01")
    checkout.add_str_column("text")
    fill(checkout, np.random.default_rng(6), ["a", "b", 3])
    checkout.commit("before the crash")
    os._exit(9)


def crashed_repository(root):
    code = subprocess.run([sys.executable, __file__, "--crash", str(root)]).returncode
    assert code == 9
    return Repository(root)


def partial_repository(root):
    """A clone that has all records and the data of the column `fetched`."""
    origin = root.parent / "origin"
    origin.mkdir()
    repo = Repository(origin, exists=False)
    repo.init("Ada Example", "ada@example.org")
    checkout = repo.checkout(write=True)
    checkout.add_ndarray_column("fetched", shape=(5, 6), dtype="float32", variable_shape=True)
    checkout.add_ndarray_column("remote_fixed", shape=(5, 6), dtype="float32")
    checkout.add_ndarray_column("remote_variable", shape=(5, 6), dtype="float64", variable_shape=True)
    checkout.add_str_column("remote_text")
    fill(checkout, np.random.default_rng(7), ["a", "b"])
    checkout.commit("on the server")
    checkout.close()

    served = root.parent / "served"
    served.mkdir()
    address = "127.0.0.1:50123"
    server, hangar_server, _ = serve(str(served), overwrite=True, channel_address=address)
    server.start()
    try:
        repo.remote.add("origin", address)
        repo.remote.push("origin", "master")
        clone = Repository(root, exists=False)
        clone.clone("Bob Example", "bob@example.org", address)
        clone.remote.fetch_data("origin", branch="master", column_names=["fetched"])
    finally:
        hangar_server.close()
        server.stop(0.1).wait()
    return clone


def main():
    if sys.argv[1:2] == ["--crash"]:
        write_crashed(Path(sys.argv[2]))
    warnings.simplefilter("ignore")
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, make in (("main", main_repository), ("crashed", crashed_repository), ("partial", partial_repository)):
            root = Path(folder) / name
            root.mkdir()
            repo = make(root)
            record(repo, name, root, skip_remote=name == "partial")
            shutil.rmtree(root)


if __name__ == "__main__":
    threading.excepthook = lambda *_: None
    main()
