"""Object codecs: every encoding of elements of variable length becomes Zarr's vlen encoding. Not here: pickle, ever.

The vlen encoding (numcodecs `vlen.pyx`, Zarr v3's `vlen-utf8` and `vlen-bytes`) is `u32 LE count`, then for each item
`u32 LE length` and the bytes. Data in that encoding is checked item by item to the exact end and passed on.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from fsbridge.codecs import Buffer, CodecChain, Decoder, Overflow, check_size
from fsbridge.codecs.filters import elements, number
from fsbridge.errors import CorruptData, TooLarge, Unsupported
from fsbridge.threads.forking import make_lock

U32, U64 = struct.Struct("<I"), struct.Struct("<Q")
MAX_DOCUMENT_BYTES = 32 << 20
"""Most bytes of a JSON or msgpack chunk, because its Python objects take about ten times as much."""
MAX_RANK = 32
_alone = make_lock()
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
OBJECT_TYPES = ("|O", "O", "object")


@dataclass(frozen=True, slots=True)
class Vlen(Decoder):
    """Checks data that is in the vlen encoding already.

    `text`: items are UTF-8 strings; else whole elements of `element` bytes.
    `items`: number of elements of a chunk, if the array's metadata tells.
    """

    name: str
    text: bool
    items: int | None
    element: int = 1

    def encoded_size(self, decoded: int) -> int | None:
        return decoded

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        check_size(len(data), size, limit)
        view = memoryview(data).cast("B")
        end = len(view)
        if end < U32.size:
            raise CorruptData(f"{end} bytes are too few for the number of items")
        (count,) = U32.unpack_from(view)
        _count(count, self.items)
        position = U32.size
        unpack, element = U32.unpack_from, self.element
        text = self.text and not (data if isinstance(data, bytes | bytearray) else bytes(view)).isascii()
        for item in range(count):
            start = position + U32.size
            if start > end:
                raise CorruptData(f"the data ends in item {item} of {count}")
            position = start + unpack(view, position)[0]
            if position > end:
                raise CorruptData(f"the data ends in item {item} of {count}")
            if text:
                try:
                    str(view[start:position], "utf-8")
                except UnicodeDecodeError as error:
                    raise CorruptData(f"item {item}: {error}") from None
            elif (position - start) % element:
                raise CorruptData(f"item {item} has {position - start} bytes, not a multiple of the element size {element}")
        if position != end:
            raise CorruptData(f"{end - position} bytes after the last of {count} items")
        return data


@dataclass(frozen=True, slots=True)
class VlenOffsets(Decoder):
    """Decodes the codec `zarrs.vlen`: offsets of elements, and their bytes, each with a chain of its own.

    `u64 LE length of the stored offsets, offsets, bytes`, or with `at_end` `bytes, offsets, length`. There is one offset
    more than elements, the first one is 0, and nothing is stored for no bytes. `width`: bytes of an offset.
    """

    index: CodecChain
    data: CodecChain
    width: int
    at_end: bool
    text: bool
    items: int | None
    name: str = "vlen"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        view = memoryview(data).cast("B")
        if len(view) < U64.size:
            raise CorruptData(f"{len(view)} bytes are too few for the length of the offsets")
        (stored,) = U64.unpack_from(view, len(view) - U64.size if self.at_end else 0)
        if stored > len(view) - U64.size:
            raise CorruptData(f"{len(view)} bytes are too few for {stored} of offsets")
        content = view[: -U64.size] if self.at_end else view[U64.size :]
        cut = len(content) - stored if self.at_end else stored
        first, second = content[:cut], content[cut:]
        packed, encoded = (second, first) if self.at_end else (first, second)
        expected = None if self.items is None else (self.items + 1) * self.width
        offsets = elements(self.index.decode(packed, expected, limit), np.dtype(f"<u{self.width}"))
        if not len(offsets) or offsets[0] or (offsets[1:] < offsets[:-1]).any():
            raise CorruptData("the offsets do not begin at 0 or do not increase")
        total = int(offsets[-1])
        if not total and len(encoded):
            raise CorruptData(f"{len(encoded)} stored bytes for empty elements")
        joined = memoryview(self.data.decode(encoded, total, limit) if total else b"").cast("B")
        pieces = (bytes(joined[start:stop]) for start, stop in pairwise(offsets.tolist()))
        result = encode(pieces, size, limit)
        return Vlen(self.name, self.text, self.items).decode(result, size, limit, None)


@dataclass(frozen=True, slots=True)
class Fixed(Decoder):
    """Decodes what `vlen` decodes to elements of fixed length: numpy's `U`, `S` or `V`, padded with zeros."""

    vlen: Vlen
    stored: np.dtype[Any]

    @property
    def name(self) -> str:
        return self.vlen.name

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        view = memoryview(self.vlen.decode(data, None, limit, None)).cast("B")
        count, width = U32.unpack_from(view)[0], self.stored.itemsize
        check_size(count * width, size, limit)
        encoding = "utf-32-be" if self.stored.str[0] == ">" else "utf-32-le"
        target = bytearray(count * width)
        for item, item_view in enumerate(split(view)):
            raw = bytes(item_view)
            raw = raw.decode().encode(encoding) if self.vlen.text else raw
            if len(raw) > width:
                raise CorruptData(f"item {item} has {len(raw)} bytes, an element has {width}")
            target[item * width : item * width + len(raw)] = raw
        return target


@dataclass(frozen=True, slots=True)
class ObjectDocument(Decoder):
    """Decodes `[*elements, dtype, shape]`, nested as the shape says (numcodecs `json2`, `msgpack2`). `load` parses it."""

    name: str
    load: Callable[[Buffer], Any]
    items: int | None

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if len(data) > MAX_DOCUMENT_BYTES:
            raise TooLarge(f"{self.name} chunk of {len(data)} bytes, the limit is {MAX_DOCUMENT_BYTES}")
        # Chunks of at least 1 MiB are decoded one at a time, so that the memory is taken once (P6). Such a chunk keeps
        # the interpreter busy anyway.
        with nullcontext() if len(data) < (1 << 20) else _alone:
            return self._parse(data, size, limit)

    def _parse(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        try:
            document = self.load(data)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise CorruptData(str(error)) from None
        if not isinstance(document, list) or len(document) < 2:
            raise CorruptData("the document is not a list of elements, data type and shape")
        *nested, _, shape = document
        if not isinstance(shape, (list, tuple)) or len(shape) > MAX_RANK or any(type(edge) is not int for edge in shape):
            raise CorruptData(f"{shape!r} is not a shape")
        items = _flatten(nested, shape)
        _count(len(items), self.items)
        try:
            return encode((_text(item) for item in items), size, limit)
        except (UnicodeError, RecursionError) as error:
            raise CorruptData(str(error)) from None


@dataclass(frozen=True, slots=True)
class Categorize(Decoder):
    """Decodes label numbers of type `stored` to labels; 0 is the empty string.

    `fixed`: the numpy type of decoded labels of fixed size. If it is None, they are in the vlen encoding.
    """

    labels: tuple[bytes, ...]
    stored: np.dtype[Any]
    items: int | None
    fixed: np.dtype[Any] | None = None
    name: str = "categorize"

    def encoded_size(self, decoded: int) -> int | None:
        return None if self.fixed is None else decoded // self.fixed.itemsize * self.stored.itemsize

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        numbers = elements(data, self.stored)
        _count(len(numbers), self.items)
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) <= len(self.labels):
            raise CorruptData(f"a label number is beyond the {len(self.labels)} labels")
        table: tuple[bytes, ...] = (b"", *self.labels)
        if self.fixed is None:
            return encode((table[i] for i in numbers.tolist()), size, limit)
        check_size(len(numbers) * self.fixed.itemsize, size, limit)
        if len(table) > len(numbers):  # as an array, unused labels could take more memory than all elements
            used, numbers = np.unique(numbers, return_inverse=True)
            table = tuple(table[i] for i in used.tolist())
        fixed: bytes = np.array([label.decode() for label in table], self.fixed)[numbers].tobytes()
        return fixed


@dataclass(frozen=True, slots=True)
class NulStrings(Decoder):
    """Decodes N5's `string`: UTF-8 strings, each ended by NUL (n5 `StringDataBlock`)."""

    items: int | None = None
    name: str = "strings"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        stored = bytes(data)
        if stored and stored[-1]:
            raise CorruptData("the last string has no end")
        _count(stored.count(0), self.items)
        try:
            if not stored.isascii():
                stored.decode()
        except UnicodeDecodeError as error:
            raise CorruptData(str(error)) from None
        return encode(_split_strings(stored), size, limit)


def vlen_utf8(items: int | None = None) -> Decoder:
    """Return the decoder of Zarr's `vlen-utf8`."""
    return Vlen("vlen-utf8", True, items)


def vlen_bytes(items: int | None = None) -> Decoder:
    """Return the decoder of Zarr's `vlen-bytes`."""
    return Vlen("vlen-bytes", False, items)


def fixed(text: bool, stored: np.dtype[Any], items: int | None = None) -> Decoder:
    """Return the decoder of `vlen-utf8` or `vlen-bytes` for fixed-length elements.

    zarr-python 3.0 wrote them in Zarr v2.

    `stored` is numpy's `U`, `S` or `V`.
    """
    return Fixed(Vlen("vlen-utf8" if text else "vlen-bytes", text, items), stored)


def vlen_array(dtype: Any, items: int | None = None) -> Decoder:
    """Return the decoder of numcodecs' `vlen-array`, whose items are elements of `dtype`; the result is `vlen-bytes`."""
    return Vlen("vlen-array", False, items, number(dtype).itemsize)


def json2(encoding: str = "utf-8", strict: bool = True, items: int | None = None) -> Decoder:
    """Return the decoder of numcodecs' `json2` as `vlen-utf8`.

    Strings stay, null becomes the empty string, anything else JSON text.
    """
    if encoding.lower().replace("_", "-") not in ("utf-8", "utf8", "ascii", "latin-1", "utf-16", "utf-32"):
        raise Unsupported(f"json2 cannot be decoded from encoding {encoding!r}")

    def load(data: Buffer) -> Any:
        return json.loads(str(bytes(data), encoding), strict=bool(strict))

    return ObjectDocument("json2", load, items)


def msgpack2(raw: bool = False, items: int | None = None) -> Decoder:
    """Return the decoder of numcodecs' `msgpack2` as `vlen-utf8`, by the same rules as `json2`."""
    import msgpack

    def load(data: Buffer) -> Any:
        return msgpack.unpackb(data, raw=bool(raw))

    return ObjectDocument("msgpack2", load, items)


def categorize(labels: Sequence[str], dtype: Any = "|O", astype: Any = "u1", items: int | None = None) -> Decoder:
    """Return the decoder of numcodecs' `categorize`: `vlen-utf8` for objects, fixed size for numpy's `U` types."""
    stored = number(astype)
    if stored.kind not in "iu" or not isinstance(labels, (list, tuple)) or not all(isinstance(s, str) for s in labels):
        raise Unsupported(f"categorize needs a list of texts and an integer type, not {astype!r}")
    fixed = None
    if dtype not in OBJECT_TYPES:
        fixed = np.dtype(dtype) if isinstance(dtype, str) and dtype.lstrip("<>|=").startswith("U") else None
        if fixed is None or not fixed.itemsize:
            raise Unsupported(f"categorize cannot decode to data type {dtype!r}")
    return Categorize(tuple(label.encode() for label in labels), stored, items, fixed)


def encode(items: Iterable[bytes], size: int | None, limit: int) -> bytearray:
    """Return the vlen encoding of `items`. Raises CorruptData unless it has `size` bytes, Overflow above `limit` bytes."""
    count, encoded = 0, bytearray(U32.size)
    for item in items:
        count += 1
        encoded += U32.pack(len(item))
        encoded += item
        if len(encoded) > limit:
            raise Overflow(f"decodes to more than {limit} bytes")
    U32.pack_into(encoded, 0, count)
    check_size(len(encoded), size, limit)
    return encoded


def split(encoded: Buffer) -> Iterator[memoryview]:
    """Yield the items of a vlen encoding that has been checked."""
    view = memoryview(encoded).cast("B")
    position = U32.size
    for _ in range(U32.unpack_from(view)[0]):
        start = position + U32.size
        position = start + U32.unpack_from(view, position)[0]
        yield view[start:position]


def _split_strings(strings: bytes) -> Iterator[bytes]:
    """Yield NUL-terminated strings one by one: all of them at once would take many times the memory of their bytes."""
    start = 0
    while start < len(strings):
        end = strings.index(0, start)
        yield strings[start:end]
        start = end + 1


def _count(count: int, expected: int | None) -> None:
    if expected is not None and count != expected:
        raise CorruptData(f"{count} items where the chunk has {expected}")


def _flatten(nested: list[Any], shape: Sequence[int]) -> list[Any]:
    """Return the elements of `nested` in C order. A scalar (empty `shape`) is given as a list of one element."""
    level = nested
    for depth, edge in enumerate(shape or (1,)):
        if depth:
            if not all(isinstance(part, list) and len(part) == edge for part in level):
                raise CorruptData(f"the elements are not nested as shape {list(shape)} says")
            level = [item for part in level for item in part]
        elif len(level) != edge:
            raise CorruptData(f"{len(level)} elements for shape {list(shape)}")
    return level


def _text(item: Any) -> bytes:
    """Return an element of a document as UTF-8 text: a string itself, nothing for null, JSON text for anything else."""
    if item is None:
        return b""
    if isinstance(item, bytes):
        item = item.decode()
    if not isinstance(item, str):
        try:
            return _to_json(item).encode()
        except TypeError as error:
            raise Unsupported(f"an element of type {type(item).__name__} cannot be shown: {error}") from None
    return item.encode()
