"""Icechunk's files: identifiers, the envelope around every metadata file, names. Not here: their contents (`records.py`).

Facts: the Icechunk specification, "Metadata file header" and "Object ids" (https://icechunk.io/en/latest/spec).
"""

from __future__ import annotations

import urllib.parse
from typing import Literal, NamedTuple

from fsbridge.codecs import zstd
from fsbridge.codecs.chain import Overflow
from fsbridge.errors import CorruptData, NotFound, TooLarge, Unsupported
from fsbridge.store import Stored

MAGIC = b"ICE\xf0\x9f\xa7\x8aCHUNK"
HEADER_BYTES = 39
"""Magic (12), the writer's name (24), version of the specification, type of file, compression."""

VERSIONS = (1, 2)
"""Versions of the specification."""

KINDS: dict[str, int] = {"snapshot": 1, "manifest": 2, "repository": 6}
Kind = Literal["snapshot", "manifest", "repository"]

ID_BYTES = 12
"""Bytes of the identifier of a snapshot, a manifest or a chunk. That of a node has 8."""

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_DIGITS = {letter: value for value, letter in enumerate(_ALPHABET)}


def spell(identifier: bytes) -> str:
    """Return an identifier as in file names: Crockford's base 32, most significant bits first, zero bits at the end."""
    bits = 8 * len(identifier)
    length = -(-bits // 5)
    number = int.from_bytes(identifier) << (5 * length - bits)
    return "".join(_ALPHABET[number >> 5 * position & 31] for position in reversed(range(length)))


def parse_id(text: str, size: int = ID_BYTES) -> bytes:
    """Return the identifier that `text` spells in its canonical form. Raises NotFound for any other text."""
    length = -(-8 * size // 5)
    if len(text) == length and all(letter in _DIGITS for letter in text):
        number = 0
        for letter in text:
            number = number << 5 | _DIGITS[letter]
        found = (number >> 5 * length - 8 * size).to_bytes(size)
        if spell(found) == text:
            return found
    raise NotFound(f"{text!r} is no identifier")


_PLAIN = " !$&'()+,:;=@"
"""Characters that stand for themselves in the name of a ref's file, besides letters, digits and `-._`."""


def ref_file(name: str) -> str:
    """Return the file name of a ref in version 1 if icechunk stores through `object_store`: everywhere but on S3."""
    return urllib.parse.quote(name, _PLAIN, errors="surrogateescape").replace("~", "%7E")


def ref_name(file: str) -> str:
    """Return the ref with this file name: decoded if `ref_file` made the name, else the file name itself."""
    name = urllib.parse.unquote(file, errors="surrogateescape")
    return name if "/" not in name and ref_file(name) == file else file


class Payload(NamedTuple):
    """The FlatBuffer in a metadata file, and the version of the specification that it follows."""

    data: memoryview
    version: int


def unwrap(data: Stored, kind: Kind, limit: int) -> Payload:
    """Return the contents of a metadata file, at most `limit` bytes.

    Raises CorruptData unless it is a file of that kind, Unsupported for a later version, TooLarge.
    """
    if len(data) < HEADER_BYTES or data[: len(MAGIC)] != MAGIC:
        raise CorruptData("no metadata file of Icechunk")
    version, found, compression = data[HEADER_BYTES - 3 : HEADER_BYTES]
    if version not in VERSIONS:
        raise Unsupported(f"written by version {version} of Icechunk's specification; fsbridge knows 1 and 2")
    if found != KINDS[kind]:
        raise CorruptData(f"a file of type {found}, not a {kind}")
    payload = memoryview(data)[HEADER_BYTES:]
    if compression == 0:
        return Payload(payload, version)
    if compression != 1:
        raise Unsupported(f"compression {compression} of a {kind}; fsbridge knows none and zstd")
    try:
        return Payload(memoryview(zstd.zstd().decode(payload, None, limit, None)).toreadonly(), version)
    except Overflow:
        raise TooLarge(f"a {kind} of more than {limit} bytes; a larger --cache-size permits more") from None
