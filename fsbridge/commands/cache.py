"""`fsbridge ctl cache`: what a block cache holds, by store. Not here: the cache itself (`store/remote/blocks.py`)."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence

from fsbridge.commands import argument_types as types
from fsbridge.commands.arguments import Parser, make_absolute
from fsbridge.commands.output import format_size, show
from fsbridge.errors import SetupError, printable


def make_parser(program: str) -> Parser:
    """Return the parser of `cache`."""
    parser = Parser(
        prog=program,
        description="Show how much of each store is in the block cache in DIR (the directory of --block-cache).",
        epilog="example: fsbridge ctl cache --clear /var/cache/fsbridge",
    )
    parser.add_argument("folder", type=types.path, metavar="DIR")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--clear", action="store_true", help="remove everything; mounts that use the cache fetch again")
    how.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Show or clear a block cache."""
    args = make_parser(program).parse_args(argv)
    from fsbridge.store.remote.blocks import blocks_in, open_private, store_of

    path = make_absolute(args.folder)
    if not os.path.isdir(path):
        raise SetupError(f"block cache {path}: no such directory", "give the directory that was given to --block-cache")
    folder = open_private(path)
    try:
        blocks = blocks_in(folder)
        if args.clear:
            for _, _, name in blocks:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
            show(f"{format_size(sum(block[1] for block in blocks))} in {len(blocks):,} blocks removed")
            return 0
        stores = dict[str, list[tuple[float, int]]]()
        for used, bytes_on_disk, name in blocks:
            stores.setdefault(store_of(folder, name), []).append((used, bytes_on_disk))
    finally:
        os.close(folder)
    rows = [
        {"store": store, "blocks": len(files), "bytes": sum(one[1] for one in files), "used": max(one[0] for one in files)}
        for store, files in sorted(stores.items())
    ]
    if args.json:
        show(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(float(str(row["used"]))))
        name = printable(str(row["store"])) or "(remains of old files, which are removed when room is needed)"
        show(f"{format_size(float(str(row['bytes']))):>9}  {row['blocks']:>8,} blocks  last used {when}  {name}")
    if not rows:
        show("empty")
    return 0
