"""The contenders: whole processes that read an array or files and tell when they began and ended.

`python -m benchmarks.programs NAME ARGUMENTS` imports and opens what it needs, says `ready`, waits for a line, works, and
prints one JSON line with the times of the system-wide monotonic clock. Not here: what is compared.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

BUFFER = 1 << 20
Work = Callable[[], dict[str, Any]]


def cat(path: str) -> float:
    """Seconds that one reader takes from opening a file to its last byte, in this process."""
    buffer = bytearray(BUFFER)
    began = time.monotonic()
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.monotonic() - began


def together(name: str, arguments: Sequence[dict[str, Any]]) -> tuple[float, list[dict[str, Any]]]:
    """Run one process per element of `arguments` at the same time: seconds from the first start to the last end."""
    command = [sys.executable, "-m", "benchmarks.programs", name]
    running = [
        subprocess.Popen([*command, json.dumps(given)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for given in arguments
    ]
    for process in running:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{name} failed to start with {arguments}")
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    results = []
    for process in running:
        output, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{name} failed with {arguments}")
        results.append(json.loads(output))
    return max(result["end"] for result in results) - min(result["start"] for result in results), results


def chunk_paths(root: str) -> Iterator[str]:
    """Files below `root`, coordinates (`4` or `0.4.1`) in numeric order: the order of a listing, and of the grid."""
    with os.scandir(root) as found:
        chunks = [entry for entry in found if entry.name[0].isdigit()]  # no documents
    entries = sorted(chunks, key=lambda entry: tuple(map(int, entry.name.split("."))))
    for entry in entries:
        if entry.is_dir():
            yield from chunk_paths(entry.path)
        else:
            yield entry.path


def files(root: str, part: int, parts: int, verify: bool = False, listed: bool = False) -> Work:
    """`cat` of the chunk files in the `part`th of `parts` contiguous shares, into one reused buffer of 1 MiB.

    `listed`: their paths are known beforehand.
    """
    buffer = bytearray(BUFFER)
    view = memoryview(buffer)
    known = list(chunk_paths(root)) if listed else None

    def work() -> dict[str, Any]:
        total, sums = 0, []
        paths = list(chunk_paths(root)) if known is None else known
        for path in paths[part * len(paths) // parts : (part + 1) * len(paths) // parts]:
            crc = 0
            fd = os.open(path, os.O_RDONLY)
            while count := os.readv(fd, [buffer]):
                total += count
                if verify:
                    crc = zlib.crc32(view[:count], crc)
            os.close(fd)
            sums.append(crc)
        return {"bytes": total, "crc": sums if verify else None}

    return work


def loop(manifest: str, threads: int, copy: str | None = None) -> Work:
    """Plain numcodecs: every stored chunk read and decoded into a reused buffer; `copy`: kept as files, with checksums."""
    from benchmarks import decode

    with open(manifest) as file:
        chunks = json.load(file)
    plan = decode.plan(chunks)

    def share(number: int) -> None:
        buffer = bytearray(chunks["decoded"])
        for position in range(number, len(plan), threads):
            plan[position](buffer)

    def work() -> dict[str, Any]:
        if copy is not None:
            return {"bytes": 0, "crc": decode.copy(chunks, plan, copy)}
        workers = [threading.Thread(target=share, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return {"bytes": chunks["decoded"] * len(plan)}

    return work


def zarr_python(path: str) -> Work:
    """The whole array, as zarr-python's users read it."""
    import zarr

    array = zarr.open_array(path, mode="r")

    def work() -> dict[str, Any]:
        content: Any = array[...]
        return {"bytes": content.nbytes}

    return work


def tensorstore(path: str, driver: str, order: Literal["C", "F"] = "C", slab: int = 0) -> Work:
    """The whole array, as TensorStore's users read it, in the memory order that costs it least.

    `slab`: instead, so many planes at a time, into memory that has been touched before.
    """
    import numpy as np
    import tensorstore as ts

    array = ts.open({"driver": driver, "kvstore": {"driver": "file", "path": path}}, read=True).result()
    if not slab:
        return lambda: {"bytes": array.read(order=order).result().nbytes}
    memory = np.ones((slab, *array.shape[1:]), array.dtype.numpy_dtype, order)
    target = ts.array(memory)

    def work() -> dict[str, Any]:
        for start in range(0, array.shape[0], slab):
            target.write(array[start : start + slab].translate_to[0]).result()
        return {"bytes": memory.nbytes * (array.shape[0] // slab)}

    return work


def zarr_remote(endpoint: str, bucket: str, prefix: str, path: str) -> Work:
    """The whole array of a store in a bucket, by zarr-python over obstore."""
    import zarr
    from obstore.store import S3Store

    store = S3Store(
        bucket,
        prefix=prefix,
        endpoint=endpoint,
        region="us-east-1",
        skip_signature=True,
        client_options={"allow_http": True},
    )
    array = zarr.open_array(zarr.storage.ObjectStore(store, read_only=True), path=path, mode="r")

    def work() -> dict[str, Any]:
        content: Any = array[...]
        return {"bytes": content.nbytes}

    return work


def tensorstore_remote(endpoint: str, bucket: str, prefix: str, path: str) -> Work:
    """The whole array of a Zarr v3 store in a bucket, by TensorStore."""
    import tensorstore as ts

    kvstore = {
        "driver": "s3", "bucket": bucket, "path": f"{prefix}/{path}/", "endpoint": endpoint, "aws_region": "us-east-1",
        "aws_credentials": {"type": "anonymous"},
    }  # fmt: skip
    array = ts.open({"driver": "zarr3", "kvstore": kvstore}, read=True).result()
    return lambda: {"bytes": array.read().result().nbytes}


def get_once(endpoint: str, bucket: str, key: str) -> Work:
    """One bare GET by obstore, over a connection that is open already."""
    from obstore.store import S3Store

    store = S3Store(bucket, endpoint=endpoint, region="us-east-1", skip_signature=True, client_options={"allow_http": True})
    store.get(key).bytes()
    return lambda: {"bytes": len(store.get(key).bytes())}


def h5py_whole(path: str, member: str) -> Work:
    """The whole dataset."""
    import h5py

    dataset = h5py.File(path, "r")[member]
    return lambda: {"bytes": dataset[...].nbytes}


def _h5py_over_obstore(endpoint: str, bucket: str, key: str) -> Any:
    """An HDF5 object as h5py opens it over a file of blocks of 1 MiB, of which 32 are kept (fsspec's `blockcache`)."""
    import io

    import h5py
    from obstore.store import S3Store

    store = S3Store(bucket, endpoint=endpoint, region="us-east-1", skip_signature=True, client_options={"allow_http": True})
    size = store.head(key)["size"]

    @functools.lru_cache(maxsize=32)
    def block(number: int) -> memoryview:
        start = number * BUFFER
        return memoryview(store.get_range(key, start=start, end=min(start + BUFFER, size)))

    class Blocks(io.RawIOBase):
        position = 0

        def seek(self, offset: int, whence: int = 0) -> int:
            self.position = offset if whence == os.SEEK_SET else size + offset
            return self.position

        def tell(self) -> int:
            return self.position

        def readinto(self, out: Any) -> int:
            view, got = memoryview(out).cast("B"), 0
            while got < len(view) and self.position < size:
                part = block(self.position // BUFFER)[self.position % BUFFER :][: len(view) - got]
                view[got : got + len(part)] = part
                got += len(part)
                self.position += len(part)
            return got

    return h5py.File(Blocks(), "r")


def h5py_remote(endpoint: str, bucket: str, key: str, member: str) -> Work:
    """The whole dataset of a file in a bucket."""
    dataset = _h5py_over_obstore(endpoint, bucket, key)[member]
    return lambda: {"bytes": dataset[...].nbytes}


def h5py_remote_visit(endpoint: str, bucket: str, key: str) -> Work:
    """Open a file in a bucket and visit all of its objects, with their attributes."""
    import h5py  # noqa: F401  # its import is not measured

    def work() -> dict[str, Any]:
        seen: list[Any] = []
        with _h5py_over_obstore(endpoint, bucket, key) as file:
            file.visititems(lambda name, found: seen.append((name, getattr(found, "shape", None), dict(found.attrs))))
        return {"bytes": 0, "objects": len(seen)}

    return work


def many_files(root: str, pause: float = 0.0) -> Work:
    """List all, then open, read and close each file once, after `pause` seconds, which the caller takes off."""
    buffer = bytearray(BUFFER)

    def work() -> dict[str, Any]:
        total = 0
        paths = list(chunk_paths(root))
        time.sleep(pause)
        for path in paths:
            fd = os.open(path, os.O_RDONLY)
            total += os.readv(fd, [buffer])
            os.close(fd)
        return {"bytes": total, "files": len(paths)}

    return work


def random_reads(path: str, offsets: Sequence[int], size: int, before: str) -> Work:
    """`size` bytes at each of `offsets` of one open file.

    `before`: "page cache" reads the file first; "decoded" reads it and drops its pages; "unread" does nothing.
    """
    buffer = bytearray(size)
    fd = os.open(path, os.O_RDONLY)
    if before != "unread":
        while os.read(fd, BUFFER):
            pass
    if before == "decoded":
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def work() -> dict[str, Any]:
        return {"bytes": sum(os.preadv(fd, [buffer], offset) for offset in offsets)}

    return work


PROGRAMS: dict[str, Callable[..., Work]] = {
    "files": files,
    "loop": loop,
    "zarr": zarr_python,
    "tensorstore": tensorstore,
    "h5py": h5py_whole,
    "zarr_remote": zarr_remote,
    "tensorstore_remote": tensorstore_remote,
    "h5py_remote": h5py_remote,
    "h5py_remote_visit": h5py_remote_visit,
    "get_once": get_once,
    "many_files": many_files,
    "random_reads": random_reads,
}


def main() -> None:
    """One contender: prepare, wait, work, tell."""
    work = PROGRAMS[sys.argv[1]](**json.loads(sys.argv[2]))
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.monotonic()
    result = work()
    result |= {"start": start, "end": time.monotonic()}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
