"""The table: every server, and what became of each store on it. Exit code 1 if anything was read wrongly.

A mount of each store is compared with a mount of the same store on disk: all names, all bytes. Then what is absent must be
"No such file", and once the server has ended, everything an error that is not that.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import stores
from checks import Skipped, main, told
from mounting import Mount
from nwb_data import unpack

from remote.servers import SERVERS, Server, Started, stop

ROOTS = ("zarr.json", ".zgroup", "attributes.json")
"""Documents of a root: without one a store is only found by listing it."""

LAST = "zarr-python-v3"
"""The store of a server that ends while it is mounted."""


def write(folder: Path) -> list[str]:
    """One store per writer and format, and their names; Zarr stores with the metadata that servers without listings need.

    HDF5 files: one with its structure between its data, and an NWB file of pynwb's.
    """
    import h5py
    import numpy as np
    import zarr

    stores.write_collection(folder)
    names = sorted({case.store for case in stores.CASES})
    for name in names:
        if name.startswith("zarr-python"):
            zarr.consolidate_metadata(str(folder / name), zarr_format=2 if name.endswith("2") else 3)
    with h5py.File(folder / "h5py.h5", "w") as file:
        for number in range(60):
            values = np.random.default_rng(number).integers(0, 1000, (100, 300))
            options = {"chunks": (30, 100), "compression": "gzip"} if number % 3 else {}
            file.create_dataset(f"g{number % 4}/x{number}", data=values, **options).attrs["number"] = number
    (written,) = unpack("hdf5", folder / "unpacked").rglob("*.nwb")
    shutil.move(written, folder / "pynwb.nwb")
    shutil.rmtree(folder / "unpacked")
    return [*names, "h5py.h5", "pynwb.nwb"]


def contents(root: Path) -> dict[str, str]:
    """Every file of a mount with a digest of its bytes."""
    found = {}
    for place, _, files in os.walk(root, onerror=_raise):
        for name in files:
            path = Path(place) / name
            found[str(path.relative_to(root))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _raise(error: OSError) -> None:
    raise error


def compare(server: Server, mount: Path, wanted: dict[str, str]) -> str:
    """Return the differences between a mount and what it should hold."""
    if server.lists:
        seen = contents(mount)
        if set(seen) != set(wanted):
            return f"other names: {sorted(set(seen) ^ set(wanted))[:3]}"
    else:  # names that are known
        seen = {name: hashlib.sha256((mount / name).read_bytes()).hexdigest() for name in wanted}
    wrong = [name for name in wanted if seen[name] != wanted[name] and not (name == "zarr.json" and not server.lists)]
    if wrong:
        return f"other bytes: {wrong[:3]}"
    try:
        os.stat(mount / "there is no such member" / "c")
    except FileNotFoundError:
        return ""
    return "what is absent is there"


def ended(started: Started, name: str, wanted: dict[str, str], scratch: Path) -> str:
    """End the server under a mount: what was not read before must be an error, and not absent."""
    mount = mounted(started, name, scratch / "ended")
    chunks = [name for name in wanted if "/c/" in name]
    mount.allow("")
    try:
        (mount.path / chunks[0]).read_bytes()
        stop(started.process)
        time.sleep(1.5)  # what was known may be believed for a second
        (mount.path / chunks[-1]).read_bytes()
    except OSError as error:
        return "without the server a chunk is absent" if error.errno == errno.ENOENT else ""
    finally:
        mount.stop()
    return "a chunk is read without the server"


def mounted(started: Started, name: str, where: Path) -> Mount:
    """A mount of one store, with the server's keys in the environment."""
    previous = {key: os.environ.get(key) for key in started.variables}
    os.environ.update(started.variables)
    try:
        return Mount(f"{started.url}/{name}", where, started.options)
    finally:
        for key, value in previous.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def check_store(server: Server, started: Started, name: str, wanted: dict[str, str], scratch: Path) -> str:
    """Return the faults of one store on one server."""
    try:
        mount = mounted(started, name, scratch / f"{server.name}-{name}")
    except AssertionError as error:
        return f"not mounted: {str(error).strip().splitlines()[-1]}"
    mount.allow("")
    try:
        return compare(server, mount.path, wanted)
    except OSError as error:
        return f"{os.strerror(error.errno or 0)}: {error.filename}"
    finally:
        mount.stop()


def check(names: list[str], folder: Path, install: bool) -> bool:
    """Print the table; whether all is well."""
    wrong: list[str] = []
    skipped: list[str] = []
    with tempfile.TemporaryDirectory(prefix="fsbridge-remote-") as temporary:
        scratch = Path(temporary)
        members = write(scratch / "stores")
        wanted = {}
        for name in members:
            mount = Mount(scratch / "stores" / name, scratch / f"disk-{name}")
            wanted[name] = contents(mount.path)
            mount.stop()
        for server in SERVERS:
            if names and not any(name.lower() in server.name.lower() for name in names):
                continue
            place = scratch / server.name
            place.mkdir()
            try:
                started = server.start(server.prepare(folder, install), scratch / "stores", place)
            except Skipped as reason:
                skipped.append(f"{server.name}: {reason}")
                continue
            except Exception as error:  # a server's own failure, of any kind
                skipped.append(f"{server.name}: {str(error).strip()[:160]}")
                continue
            print(server.name, flush=True)
            try:
                for name in members:
                    store = scratch / "stores" / name
                    if not (server.lists or store.is_file() or any((store / root).exists() for root in ROOTS)):
                        print(f"    {name:20}  no: its root has no document, and the server lists nothing")
                        continue
                    said = check_store(server, started, name, wanted[name], scratch)
                    print(f"    {name:20}  {said or f'equal, {len(wanted[name])} files'}", flush=True)
                    if said:
                        wrong.append(f"{server.name}, {name}: {said}")
                said = ended(started, LAST, wanted[LAST], place)
                print(f"    without the server    {said or 'errors'}", flush=True)
                wrong += [f"{server.name}: {said}"] if said else []
            finally:
                stop(started.process)
                shutil.rmtree(place, ignore_errors=True)
    return told(skipped, wrong)


if __name__ == "__main__":
    sys.exit(main("remote", __doc__, "servers", check))
