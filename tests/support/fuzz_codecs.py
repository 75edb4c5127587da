"""Mutated chunks against every codec, in processes of their own: the promise is CorruptData or exactly the bytes asked for.

    python tests/support/fuzz_codecs.py [--count N] [--seed S] [--codec NAME ...]

Each codec gets N mutated chunks. The first of them run a second time, with another filling of the target and fresh memory
filled by glibc (MALLOC_PERTURB_): a different result contains bytes that were never written. A signal, an unexpected
exception, a wrong length, more memory than allowed or such a difference fails the run and prints the chunk at fault for
the corpus. What a child process decodes may end that child. It goes on after other damage, so that damage of its memory
would show in what follows.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1 << 16
ALLOWED_RSS = 96 << 20
"""Growth of the process over all mutations: samples are smaller than 16 KiB, so this is decoders' working memory."""
PERTURBED_SHARE, PERTURBED_LEAST = 50, 300
"""Filling fresh memory is slow where a decoder reserves a window of 128 MiB, so only few chunks get it."""
BYTE_ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")
INTERESTING = (0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 127, 128, 254, 255, 256, 4095, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1)


def mutate(rng: random.Random, stored: bytes, others: list[bytes]) -> bytes:
    """A damaged copy: a few changes of kinds that occur (bits, bytes, lengths) and that provoke (splices, big numbers)."""
    data = bytearray(stored)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not data:
            return bytes(data)
        near = rng.random() < 0.6
        position = rng.randrange(min(len(data), 40)) if near else rng.randrange(len(data))
        kind = rng.randrange(9)
        if kind <= 1:
            data[position] ^= 1 << rng.randrange(8)
        elif kind == 2:
            data[position] = rng.randrange(256)
        elif kind <= 4:
            width, order = rng.choice((1, 2, 4, 8)), rng.choice(BYTE_ORDERS)
            number = rng.choice(INTERESTING) + rng.choice((0, 0, -1, 1))
            data[position : position + width] = (number % (1 << 8 * width)).to_bytes(width, order)
        elif kind == 5:
            del data[position:]
        elif kind == 6:
            del data[position : position + rng.randrange(1, 9)]
        elif kind == 7:
            data[position:position] = rng.randbytes(rng.randrange(1, 9))
        else:
            other = rng.choice(others)
            data[position:] = other[rng.randrange(len(other) + 1) :]
    return bytes(data)


def attempts(name: str, seed: int, count: int) -> Iterator[tuple[bytes, int | None]]:
    """Damaged chunks and expected sizes; equal arguments give equal ones."""
    from codec_samples import cases

    case = cases()[name]
    rng = random.Random(f"{name}/{seed}")
    stored = [sample.stored for sample in case.samples]
    for _ in range(count):
        sample = rng.choice(case.samples)
        unknown = not case.sized and rng.random() < 0.25
        wrong = rng.random() < 0.05
        yield mutate(rng, sample.stored, stored), None if unknown else rng.randrange(8000) if wrong else sample.size


def run_codec(name: str, seed: int, count: int, head: int, fill: int) -> dict[str, object]:
    """All attempts on one codec in this process; the digest covers the results of the first `head`."""
    from codec_samples import cases

    from fsbridge.errors import FsbridgeError

    chain = cases()[name].chain
    digest, good, slowest = hashlib.blake2b(), 0, 0.0
    rng = random.Random(seed)
    for number, (data, size) in enumerate(attempts(name, seed, count)):
        start = time.perf_counter()
        try:
            result = attempt(chain, data, size, fill)
            if name.startswith("blosc") and size:
                check_range(rng, data, result)
            good += 1
        except FsbridgeError:
            result = b"refused"
        except BaseException:
            print(f"fuzz: {name} {size} {data.hex()}", file=sys.stderr)
            raise
        if number < head:
            digest.update(result)
        slowest = max(slowest, time.perf_counter() - start)
    return {"codec": name, "good": good, "count": count, "slowest": round(slowest, 4), "digest": digest.hexdigest()}


def attempt(chain: Any, data: bytes, size: int | None, fill: int) -> bytes:
    """Decode into a filled target and into new memory; both must be the same."""
    if size is None:
        result = bytes(chain.decode(data, None, LIMIT))
        assert len(result) <= LIMIT, f"{len(result)} bytes"
        return result
    out = memoryview(bytearray([fill]) * size)
    chain.decode_into(data, out, LIMIT)
    assert chain.decode(data, size, LIMIT) == out, "two results"
    return bytes(out)


def check_range(rng: random.Random, data: bytes, result: bytes) -> None:
    """A range of a Blosc frame that decodes is that range of the whole."""
    from fsbridge.codecs.blosc import Blosc

    start = rng.randrange(len(result))
    stop = rng.randrange(start, len(result)) + 1

    def read(offset: int, length: int) -> bytes:
        assert 0 <= offset <= offset + length <= len(data)
        return data[offset : offset + length]

    found = Blosc().decode_range(read, len(data), len(result), start, stop)
    assert found == result[start:stop], f"another range {start}:{stop}"


def child(names: list[str], seed: int, count: int, head: int, fill: int) -> None:
    """One JSON line per codec; without perturbed memory the process's own size is the last check."""
    import codec_samples

    from fsbridge.children.supervisor import Supervisor

    Supervisor.rest = lambda self: False  # type: ignore[method-assign]
    faulthandler.enable()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in names or list(codec_samples.cases()):
        print(json.dumps(run_codec(name, seed, count, head, fill)), flush=True)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert "MALLOC_PERTURB_" in os.environ or grown < ALLOWED_RSS, f"memory grew by {grown >> 20} MiB"


def fuzz(names: list[str], seed: int, count: int) -> list[dict[str, object]]:
    """Both runs; raises AssertionError with what went wrong."""
    head = min(count, max(PERTURBED_LEAST, count // PERTURBED_SHARE))
    perturbed = {"MALLOC_PERTURB_": "165", "PYTHONMALLOC": "malloc"}
    runs = []
    for fill, number, extra in ((0x5A, count, {}), (0xA5, head, perturbed)):
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"} | extra
        numbers = {"--child": fill, "--seed": seed, "--count": number, "--head": head}
        command = [sys.executable, __file__, *(str(word) for pair in numbers.items() for word in pair)]
        command += [word for name in names for word in ("--codec", name)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr[-4000:]}"
        runs.append([json.loads(line) for line in done.stdout.splitlines()])
    for one, two in zip(*runs, strict=True):
        assert one["digest"] == two["digest"], f"{one['codec']}: results contain bytes that were never written (seed {seed})"
    return runs[0]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("scripts/fuzz", description="Mutated chunks against every codec.")
    parser.add_argument("--count", type=int, default=50_000, help="mutations of each codec (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--codec", action="extend", nargs="+", default=[], metavar="NAME", help="only these")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--head", type=int, default=0, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    options = parser().parse_args()
    if options.child is not None:
        child(options.codec, options.seed, options.count, options.head, options.child)
        return
    for row in fuzz(options.codec, options.seed, options.count):
        print(f"{row['codec']:30} {row['good']:>7} of {row['count']} still decode, slowest {row['slowest']} s")


if __name__ == "__main__":
    main()
