"""Parsers of the values in Hangar's databases: backend records, schemas, commits. Not here: any I/O.

All text is UTF-8. Source of every syntax: hangar 0.5.2, `records/` and `backends/`, checked against repositories it
wrote. Releases before 0.5 spelled records differently (`00:2HvGf9$3 199*20 2 3`); those raise Unsupported.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from fsbridge.errors import CorruptData, NotFound, Unsupported
from fsbridge.metadata import JSON


@dataclass(frozen=True, slots=True)
class RowRecord:
    """A sample in a file of rows. `backend`: 00 and 01 (row `index` of HDF5 dataset `dataset`), 10 (row of a `.npy`)."""

    backend: str
    uid: str
    checksum: str
    dataset: str
    index: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TextRecord:
    """A str (`backend` 30) or bytes (31) sample under `key` in an LMDB environment."""

    backend: str
    uid: str
    checksum: str
    key: str


@dataclass(frozen=True, slots=True)
class RemoteRecord:
    """A sample (backend 50) with its data only on the remote server."""

    schema: str


Record: TypeAlias = RowRecord | TextRecord | RemoteRecord

_ROW = re.compile(r"(0[01]):([A-Za-z0-9]{1,64}):([0-9a-f]{16}):([0-9]{1,9}):([0-9]{1,9}):((?:[0-9]+(?: [0-9]+)*)?)")
_NUMPY = re.compile(r"(10):([A-Za-z0-9]{1,64}):([0-9a-f]{16}):([0-9]{1,9}):((?:[0-9]+(?: [0-9]+)*)?)")
_TEXT = re.compile(r"(3[01]):([A-Za-z0-9]{1,64}):([0-9A-Za-z]{4}):([0-9a-f]{16})")
_REMOTE = re.compile(r"50:(\S*)")
_BEFORE_05 = re.compile(r"[0-9]{2}:[A-Za-z0-9]+\$.*")


def parse_record(raw: bytes) -> Record:
    """Return a sample's backend record (value of `h:<digest>`).

    Raises Unsupported for other releases and unknown backends.
    """
    text = decode(raw, "backend record")
    if match := _ROW.fullmatch(text):
        backend, uid, checksum, dataset, index, shape = match.groups()
        return RowRecord(backend, uid, checksum, dataset, int(index), _parse_extents(shape))
    if match := _NUMPY.fullmatch(text):
        backend, uid, checksum, index, shape = match.groups()
        return RowRecord(backend, uid, checksum, "", int(index), _parse_extents(shape))
    if match := _TEXT.fullmatch(text):
        backend, uid, key, checksum = match.groups()
        return TextRecord(backend, uid, checksum, key)
    if match := _REMOTE.fullmatch(text):
        return RemoteRecord(match[1])
    if _BEFORE_05.fullmatch(text):
        raise Unsupported(f"backend record {text[:80]!r} is of a Hangar release before 0.5")
    if text[:3] in ("00:", "01:", "10:", "30:", "31:"):
        raise CorruptData(f"the backend record {text[:80]!r} is damaged")
    raise Unsupported(f"the record {text[:80]!r} has an unknown Hangar backend")


def _parse_extents(text: str) -> tuple[int, ...]:
    if len(text) > 1000:
        raise CorruptData(f"the shape in the backend record {text[:80]!r}... is damaged")
    return tuple(int(part) for part in text.split())


@dataclass(frozen=True, slots=True)
class Schema:
    """A column's schema. `kind`: ndarray, str or bytes; `shape` (the largest, if `variable`) and `dtype` of an ndarray."""

    nested: bool
    kind: str
    variable: bool
    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None
    document: Mapping[str, JSON]

    def check(self, record: RowRecord) -> None:
        """Raise CorruptData unless this schema allows the shape of `record`."""
        fits = len(record.shape) == len(self.shape) and all(
            0 < extent <= most if self.variable else extent == most
            for extent, most in zip(record.shape, self.shape, strict=True)
        )
        if not fits:
            kind = "at most " if self.variable else ""
            raise CorruptData(f"the sample has shape {list(record.shape)}, and the column {kind}{list(self.shape)}")


LITERAL_ERRORS = (ValueError, TypeError, LookupError, SyntaxError, RecursionError, MemoryError)
"""What Python raises for text that is no literal; the last two for text that nests too deeply."""


def parse_schema(raw: bytes) -> Schema:
    """Parse a schema: Python's `repr` of a dict, without spaces."""
    text = decode(raw, "schema")
    # A few hundred bytes in practice; `ast.literal_eval` is not safe for arbitrarily long text.
    if len(text) > (1 << 16):
        raise CorruptData(f"a schema has {len(text)} bytes, the limit is 65536")
    try:
        document = ast.literal_eval(text)
    except LITERAL_ERRORS:
        raise CorruptData(f"{text[:80]!r} is not a schema") from None
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise CorruptData(f"{text[:80]!r} is not a schema")
    layout, kind = document.get("column_layout"), document.get("column_type")
    if layout not in ("flat", "nested") or kind not in ("ndarray", "str", "bytes"):
        raise Unsupported(f"a schema has an unknown column layout or type: {layout!r}, {kind!r}")
    shape, dtype = _parse_array_type(document) if kind == "ndarray" else ((), None)
    variable = document.get("schema_type") == "variable_shape"
    return Schema(layout == "nested", kind, variable, shape, dtype, _make_plain(document))


def _parse_array_type(document: Mapping[str, Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    shape, name = document.get("shape"), document.get("dtype")
    if not isinstance(shape, tuple) or not all(type(extent) is int and extent > 0 for extent in shape):
        raise CorruptData(f"a schema has the impossible shape {shape!r}")
    if not isinstance(name, str) or not name.isalnum():  # numpy evaluates what has commas
        raise CorruptData(f"a schema has the impossible dtype {name!r}")
    try:
        dtype = np.dtype(name)
    except (TypeError, ValueError):
        raise CorruptData(f"a schema has the impossible dtype {name!r}") from None
    if dtype.kind not in "biufc":
        raise Unsupported(f"dtype {name!r} in a schema is not numeric")
    return shape, dtype.newbyteorder("<")  # the name is the writer's native type, and Hangar writers are little-endian


def _make_plain(value: Any) -> JSON:
    """Return a literal as a JSON value."""
    if isinstance(value, dict):
        return {str(key): _make_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_make_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


@dataclass(frozen=True, slots=True)
class HangarCommit:
    """A commit's own data. `time` is in seconds since 1970."""

    digest: str
    time: float
    message: str
    user: str
    email: str
    parents: tuple[str, ...]

    @property
    def mtime_ns(self) -> int:
        """The commit's time in ns since 1970, as a file's mtime."""
        return int(self.time * 1_000_000_000)


def parse_commit(digest: str, spec: bytes, parents: bytes) -> HangarCommit:
    """Return a commit from its decoded `:spec` document and the value of its key: no parent, one, or two for a merge."""
    try:
        document = json.loads(spec)
        time = float(document["commit_time"])
        message, user, email = (document[key] for key in ("commit_message", "commit_user", "commit_email"))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        raise CorruptData(f"commit {digest}: its description is damaged") from None
    if not all(isinstance(field, str) for field in (message, user, email)) or not 0 <= time < 2**33:
        raise CorruptData(f"commit {digest}: its description is damaged")
    ancestors = tuple(part for part in decode(parents, f"parents of commit {digest}").split(" << ") if part)
    return HangarCommit(digest, time, message, user, email, ancestors)


def split_records(data: bytes) -> list[bytes]:
    """Return the records in the decoded value of a commit's `:ref` key: `key SP value`, joined by `$`."""
    return data.split(b"$") if data else []


def compute_digest(parents: bytes, spec: bytes, records: Iterable[bytes]) -> str:
    """Return Hangar 0.5.2's name for the commit with these parents, decoded description and records."""
    tree = _blake2b()
    for record in records:
        tree.update(_blake2b(record).hexdigest().encode())
    parts = sorted(part.hexdigest() for part in (_blake2b(parents), _blake2b(spec), tree))
    return f"a={_blake2b(''.join(parts).encode()).hexdigest()}"


def _blake2b(data: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(data, digest_size=20)


class RefTable:
    """The records of one tree (a commit or the staging area): sample keys to data digests, sorted, searched by bisection.

    The records are kept as they are stored: 100,000 samples take about 12 MB and are parsed only when asked for.
    """

    def __init__(self, records: list[bytes]) -> None:
        self._records = records
        if any(first >= second for first, second in pairwise(records)):
            self._records = sorted(set(records))

    def __len__(self) -> int:
        return len(self._records)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RefTable) and self._records == other._records

    __hash__ = None  # type: ignore[assignment]

    @property
    def nbytes(self) -> int:
        """Approximate memory in bytes."""
        return sum(map(len, self._records)) + 41 * len(self._records)

    def columns(self) -> Iterator[tuple[str, str]]:
        """Yield column names with their schema digests."""
        for record in self._range(b"s:"):
            key, digest = _split(record)
            parts = key.split(":")
            if len(parts) != 3 or parts[2] not in ("f", "n"):
                raise CorruptData(f"the column record {key[:80]!r} is damaged")
            yield parts[1], digest

    def schema(self, column: str) -> str:
        """Return the schema digest of `column`. Raises NotFound."""
        for layout in "fn":
            digest = self._get(f"s:{column}:{layout}")
            if digest is not None:
                return digest
        raise NotFound(f"no column {column!r}")

    def samples(self, column: str, nested: bool) -> Iterator[str]:
        """Yield the sample keys of `column` as in the records (`#7` is the integer 7)."""
        prefix = f"{'n' if nested else 'f'}:{column}:".encode("utf-8", "surrogateescape")
        before = None
        for record in self._range(prefix):
            name = record[len(prefix) :].split(b":" if nested else b" ", 1)[0]
            if name != before:
                before = name
                yield decode(name, "sample key")

    def subsamples(self, column: str, sample: str) -> Iterator[str]:
        """Yield the subsample keys of a sample of a nested column."""
        prefix = f"n:{column}:{sample}:".encode("utf-8", "surrogateescape")
        for record in self._range(prefix):
            yield decode(record[len(prefix) :].split(b" ", 1)[0], "subsample key")

    def digest(self, column: str, path: tuple[str, ...]) -> str:
        """Return the data digest of a sample (one name) or subsample (two). Raises NotFound."""
        digest = None
        if not any(":" in name or " " in name for name in path):
            digest = self._get(f"{'fn'[len(path) - 1]}:{column}:{':'.join(path)}")
        if digest is None:
            raise NotFound(f"no sample {'/'.join(path)!r} in column {column!r}")
        return digest

    def _get(self, key: str) -> str | None:
        prefix = f"{key} ".encode("utf-8", "surrogateescape")
        for record in self._range(prefix):
            return _split(record)[1]
        return None

    def _range(self, prefix: bytes) -> Iterator[bytes]:
        for position in range(bisect_left(self._records, prefix), len(self._records)):
            record = self._records[position]
            if not record.startswith(prefix):
                return
            yield record


def _split(record: bytes) -> tuple[str, str]:
    key, space, value = decode(record, "tree record").partition(" ")
    if not space or not value or " " in value:
        raise CorruptData(f"the tree record {key[:80]!r} is damaged")
    return key, value


def decode(raw: bytes, what: str) -> str:
    """Return UTF-8 bytes as text. The CorruptData for other bytes says `what` they should be."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise CorruptData(f"{what} {raw[:40]!r} is not UTF-8") from None


def parse_version(text: str) -> tuple[int, int]:
    """Return major and minor number of a `software_version`."""
    match = re.match(r"([0-9]{1,6})\.([0-9]{1,6})", text)
    if match is None:
        raise CorruptData(f"the software version {text[:80]!r} is malformed")
    return int(match[1]), int(match[2])
