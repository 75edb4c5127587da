"""The command line of `scripts/bench`."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from types import ModuleType

from benchmarks import costs, layouts, listing, machine, pictures, reading, remote, report, trees, unmounted, whole
from benchmarks.rounds import Row
from benchmarks.settings import Settings

SUITES = (costs, reading, trees, layouts, whole, pictures, unmounted, listing)
KINDS = "memory,without a mount,n5 gzip,layouts cropped,small files,list 100k dotted,tree hdf5"
"""One row of each kind of measurement, and below of those in object storage."""
REMOTE_KINDS = "requests,chunks 0,hdf5"
MIB = 1 << 20
METHOD = """\
Cold: a fresh mount, so neither the daemon nor the kernel's page cache holds anything of it; the stored files are in the page
cache for every contender. Warm: the same files again in the same mount. Readers are whole processes, timed from their first
file to their last byte (imports and opening the array are not timed), using read() with 1 MiB buffers; x2: two of them, each
with half of the files. "TensorStore" and "zarr-python" read the whole array at once; "TensorStore reused" reads slab after
slab into memory that was touched before. Contenders take turns (A B C A B C ...); a ratio is of one round; medians count."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; the table goes to standard output."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure fsbridge against in-process readers.")
    parser.add_argument("--remote", action="store_true", help="rows about stores in object storage, and no others")
    suites = (remote,) if "--remote" in (sys.argv[1:] if arguments is None else arguments) else SUITES
    names = [name for suite in suites for name in suite.names()]
    parser.add_argument(
        "--rows", default="", help=f"rows with names that begin so, separated by commas; all: {', '.join(names)}"
    )
    parser.add_argument("--size", type=size, default=1024 * MIB, help="bytes of the arrays (1G; a quarter for slow codecs)")
    parser.add_argument("--chunk-size", type=size, default=8 * MIB, help="bytes of a chunk (8M)")
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds (5)")
    parser.add_argument("--quick", action="store_true", help="128 MiB, three rounds, a tenth of the files")
    parser.add_argument(
        "--check", action="store_true", help="try one row of each kind, remote ones too, with tiny data: do they run at all?"
    )
    parser.add_argument("--scale", type=int, default=1, help="divide the numbers of files by this")
    parser.add_argument("--json", metavar="FILE", help="write every sample there")
    parser.add_argument("--dir", help="where to make the data (a directory on a local disk); kept there for the next run")
    given = parser.parse_args(arguments)
    if given.quick:
        given.size, given.rounds, given.scale = min(given.size, 128 * MIB), 3, 10
    if given.check:
        given.size, given.chunk_size, given.rounds, given.scale = MIB // 4, MIB // 64, 1, 1000
        given.rows = given.rows or (REMOTE_KINDS if given.remote else KINDS)
    wanted = tuple(filter(None, given.rows.split(",")))
    unknown = [prefix for prefix in wanted if not any(name.startswith(prefix) for name in names)]
    if unknown:
        parser.error(f"no row begins with {unknown[0]!r}; rows: {', '.join(names)}")
    with tempfile.TemporaryDirectory(prefix="fsbridge-bench-", dir="/var/tmp") as temporary:
        directory = given.dir or temporary
        os.makedirs(directory, exist_ok=True)
        settings = Settings(directory, given.size, given.chunk_size, given.rounds, given.scale, wanted, keep=bool(given.dir))
        run(settings, given.json, suites)
    return main(["--check", "--remote"]) if given.check and not given.remote else 0


def run(settings: Settings, json_path: str | None, suites: Sequence[ModuleType] = SUITES) -> None:
    """Measure, print the table, write the JSON."""
    what = machine.describe()
    before = machine.behaviour()
    rows: list[Row] = []
    for suite in suites:
        for row in suite.rows(settings):
            rows.append(row)
            print(report.table([row]), flush=True)
    after = machine.behaviour()
    what |= {"before": before, "after": after, "stolen": round(machine.stolen(before, after), 4)}
    print(f"\n{METHOD}\n\n{json.dumps(what)}")
    if json_path:
        with open(json_path, "w") as file:
            json.dump(report.document(what, asdict(settings), rows), file, indent=1)


def size(text: str) -> int:
    """`64M` as bytes."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 512M")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]


if __name__ == "__main__":
    sys.exit(main())
