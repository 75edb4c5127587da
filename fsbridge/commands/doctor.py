"""`fsbridge doctor`: what keeps mounts from working here, and a command that helps for each cause.

A source is tried out: it is opened, and one chunk of each codec in it is decoded and timed. Nothing heavy is imported before
that, because libraries that cannot be loaded are a finding.

Not here: what else is looked at (`diagnosis.py`), reading all of a source (`verify.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, cast

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments
from fsbridge.commands.arguments import Parser
from fsbridge.commands.diagnosis import Diagnosis, check_all
from fsbridge.commands.output import show
from fsbridge.commands.sources import FAILED, CommandLine
from fsbridge.config import Config
from fsbridge.errors import FsbridgeError, NotFound, Unsupported, printable
from fsbridge.threads.deadlines import Stopwatch

if TYPE_CHECKING:
    from fsbridge.decoded.cache import ChunkCache
    from fsbridge.metadata import Index
    from fsbridge.model import Array, Group, Node

SIGNS = {"ok": "ok  ", "note": "note", "bad": "BAD "}

MEMBERS, SECONDS = 10_000, 30.0
"""Most members of a hierarchy that are looked at, and seconds after which no further array is tried."""


def make_parser(program: str) -> Parser:
    """Return the parser of `doctor`."""
    parser = Parser(
        prog=program,
        description="Find what keeps mounts from working on this machine. With SOURCE, also open it and decode one chunk of "
        "each codec.",
        epilog="example: fsbridge doctor s3://bucket/brain.zarr --region eu-west-1\n"
        "exit codes: 0 nothing is bad; 1 something is bad, or wrong usage",
    )
    parser.add_argument("source", type=types.path, metavar="SOURCE", nargs="?", help=arguments.SOURCE)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    arguments.add_shared(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Print all findings."""
    line = CommandLine(make_parser(program), argv)
    args = line.args
    look: Callable[[], Iterator[Diagnosis]] | None = None
    path = ""
    if args.source is not None:
        config = line.resolve_mount(args.source)
        path = config.source
        look = partial(_try_source, config)
    results = []
    for finding in check_all(path, look):
        results.append(finding)
        if not args.json:
            show(f"{SIGNS[finding.state]}  {printable(finding.subject)}: {printable(finding.words)}", FAILED)
            if finding.mend and finding.state != "ok":
                show(f"        {printable(finding.mend)}", FAILED)
    code = FAILED if any(finding.state == "bad" for finding in results) else 0
    if args.json:
        show(json.dumps([asdict(finding) for finding in results], indent=2), code)
    if "://" in path:  # the interpreter's own end aborts while a thread is still inside the client library
        os._exit(code)
    return code


def _try_source(config: Config) -> Iterator[Diagnosis]:
    """Open the source of `config`. Yield one finding about the source, and one about each codec."""
    from fsbridge.decoded.cache import ChunkCache
    from fsbridge.formats.open import open_source

    begun = Stopwatch()
    source = open_source(config.source, config)
    try:
        yield Diagnosis(config.source, "ok", f"{source.format.name}, opened in {begun.seconds * 1000:.0f} ms")
        tried = set[str]()
        cache = ChunkCache(config.cache_size)
        for path, array in islice(_walk_arrays("", source.root, config.limits.depth), MEMBERS):
            codec = array.metadata.codec or "none"
            if codec in tried or begun.seconds > SECONDS:
                continue
            finding = _try_chunk(path or "/", array, codec, cache, config)
            if finding is not None:
                tried.add(codec)
                yield finding
    finally:
        source.close()


def _walk_arrays(path: str, node: Node, depth: int) -> Iterator[tuple[str, Array]]:
    from fsbridge.model import Link, as_array

    if isinstance(node, Link):
        return
    array = as_array(node)
    if array is not None:
        yield path, array
    elif depth >= 0:
        for child in sorted(cast("Group", node).children(), key=lambda child: child.name):
            try:
                member = cast("Group", node).child(child.name)
            except (FsbridgeError, OSError):
                continue  # `fsbridge info` names those that cannot be read
            yield from _walk_arrays(f"{path}/{child.name}", member, depth - 1)


def _try_chunk(path: str, array: Array, codec: str, cache: ChunkCache, config: Config) -> Diagnosis | None:
    """Decode the first stored chunk of `array` and return the finding; None if no chunk is stored."""
    from fsbridge.decoded.chunks import DecodedChunks

    subject = f"codec {codec}"
    if array.metadata.refused is not None:
        return Diagnosis(path, "bad", array.metadata.refused)  # it names the codec, and the command for a missing library
    try:
        index = _find_first_chunk(array)
        if index is None:
            return None
        begun = Stopwatch()
        data = DecodedChunks(array, cache, config.max_chunk).open(index)
        size = len(data.read(0, data.size))
    except NotFound:
        return None
    except Unsupported as error:
        return Diagnosis(subject, "bad", f"{path}: {error}")  # no copy is better
    except (FsbridgeError, OSError) as error:
        return Diagnosis(subject, "bad", f"{path}: {error}", "restore the array from a copy")
    milliseconds = begun.seconds * 1000
    return Diagnosis(subject, "ok", f"{path}: a chunk of {size:,} bytes read and decoded in {milliseconds:.1f} ms")


def _find_first_chunk(array: Array) -> Index | None:
    """Return the index of the first chunk that a listing names; None if there is none."""
    index: Index = ()
    for _ in array.metadata.grid.counts:
        coordinate = next((pairs[0][0] for pairs in array.chunks.scan(index) if pairs), None)
        if coordinate is None:
            return None
        index = (*index, coordinate)
    return index
