"""The HDF5 child's answers, checked. The child parses hostile files in C, so the daemon checks every type and length.

Not here: the Zarr types for datatypes (`types.py`), the chunk table (`tables.py`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fsbridge.errors import CorruptData
from fsbridge.meaning.conventions.netcdf import without_notes
from fsbridge.metadata import JSON, MAX_EXTENT, MAX_RANK

MAX_FILTERS = 32
"""HDF5's own H5Z_MAX_NFILTERS: a filter mask has 32 bits."""

_FORMS = ("raw", "converted", "text", "bytes", "sequences", "json")
_LAYOUTS = ("compact", "contiguous", "chunked", "virtual", "external")


class HDF5Member(NamedTuple):
    """One link of a group. `target` is a soft link's path, or `(file, path)` of an external link.

    `kind` of a link that is not hard is soft, external or user-defined. A hard link has the kind of its object: group,
    dataset, dimension (a netCDF dimension without a variable), type (a committed datatype) or object (not looked at).
    `address` is the address of a hard link's object in this file.
    """

    name: str
    kind: str
    target: str | tuple[str, str] | None
    address: int | None


class SmallTable(NamedTuple):
    """The stored chunks of a small dataset: four columns of `rows` numbers (u64 LE), one after the other."""

    rows: int
    outside: int
    columns: bytes


class Filter(NamedTuple):
    """One filter of a pipeline, in encoding order. `available`: HDF5 itself can decode it."""

    number: int
    values: tuple[int, ...]
    name: str
    available: bool


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset's description.

    `dtype` is that of `child/h5types.py`, `fill` the bytes of one element in its form (None: zeros). `unfiltered_edges`:
    chunks that overhang the dataset skip the filters (H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS). `storage`: stored bytes,
    None if not counted. `unreadable`: why elements cannot be read. `table`: its chunks, if there are few.
    """

    dtype: Mapping[str, Any]
    form: str
    null: bool
    shape: tuple[int, ...]
    layout: str
    chunks: tuple[int, ...] | None
    filters: tuple[Filter, ...]
    unfiltered_edges: bool
    offset: int | None
    storage: int | None
    fill: bytes | None
    sources: tuple[str, ...]
    attributes: Mapping[str, JSON]
    dimension_names: tuple[str | None, ...]
    unreadable: str | None = None
    table: SmallTable | None = None


def parse_members(answer: Mapping[str, Any]) -> tuple[list[HDF5Member], int | None]:
    """Return one page of a listing and where the next one starts."""
    page = [_parse_member(entry) for entry in _parse_list(answer, "members")]
    following = answer.get("next")
    return page, None if following is None else parse_integer(following, 2**63)


def check_next(file: str, path: Sequence[str], start: int, following: int | None) -> int | None:
    """Return `following`, the start of the next page. Raises CorruptData unless it is behind `start`: listings must end."""
    if following is not None and following <= start:
        raise CorruptData(f"{file}:/{'/'.join(path)}: the HDF5 process lists the same members again")
    return following


def _parse_member(entry: Any) -> HDF5Member:
    if not isinstance(entry, list) or len(entry) != 4:
        raise CorruptData("the HDF5 process sent a malformed member of a group")
    name, kind, target, location = entry
    kind = _parse_text(kind)
    address = None if location is None else parse_address(location)
    return HDF5Member(_parse_text(name), kind, parse_link_target(kind, target), address)


def parse_address(number: Any) -> int:
    """Return `number`, which must be the address of an object in the file."""
    return parse_integer(number, 2**64)


def parse_descriptions(answer: Mapping[str, Any], attachments: list[bytearray]) -> list[bytes]:
    """Return the answer of `node` for each member of a page, as JSON; empty for a member that must be asked about."""
    sizes = [parse_integer(size, 2**32) for size in _parse_list(answer, "sizes")]
    if len(attachments) != 1 or len(attachments[0]) != sum(sizes) or len(sizes) != len(_parse_list(answer, "members")):
        raise CorruptData("the HDF5 process sent malformed descriptions of members")
    parts, position = [], 0
    for size in sizes:
        parts.append(bytes(attachments[0][position : position + size]))
        position += size
    return parts


def parse_link_target(kind: str, target: Any) -> str | tuple[str, str] | None:
    """Return where a soft or external link leads."""
    if kind == "soft":
        return _parse_text(target)
    if kind == "external":
        if not isinstance(target, list) or len(target) != 2:
            raise CorruptData("the HDF5 process sent a malformed external link")
        return _parse_text(target[0]), _parse_text(target[1])
    return None


def parse_texts(answer: Mapping[str, Any], key: str) -> list[str]:
    """Return the member `key` of an answer, which must be a list of texts."""
    return [_parse_text(text) for text in _parse_list(answer, key)]


def parse_optional_text(answer: Mapping[str, Any], key: str) -> str | None:
    """Return the member `key` of an answer, which must be a text or None."""
    return None if answer.get(key) is None else _parse_text(answer[key])


def describe_unreadable(attributes: Mapping[str, JSON]) -> Iterator[str]:
    """Describe attributes in place of which an object shows a reason why they cannot be read."""
    for name, value in attributes.items():
        if name == "_ERROR" and isinstance(value, str) and value.startswith("attributes cannot be listed"):
            yield value
        elif isinstance(value, dict) and "_ERROR" in value:
            yield f"attribute {name!a}: {value['_ERROR']}"


def parse_attributes(answer: Mapping[str, Any]) -> dict[str, JSON]:
    """Return attributes by name, without those that netCDF's library hides."""
    values = answer.get("attributes")
    if not isinstance(values, dict):
        raise CorruptData("the HDF5 process sent no attributes")
    return without_notes(values)


def parse_dataset(answer: Mapping[str, Any]) -> Dataset:
    """Return a dataset's description. Raises CorruptData if its parts contradict each other."""
    dtype = answer.get("type")
    if not isinstance(dtype, dict) or answer.get("form") not in _FORMS:
        raise CorruptData("the HDF5 process sent a malformed datatype")
    if parse_integer(dtype.get("size"), MAX_EXTENT) < 1:
        raise CorruptData("a datatype has no bytes")
    if answer.get("layout") not in _LAYOUTS or answer.get("space") not in ("null", "scalar", "simple"):
        raise CorruptData(f"the dataset has the unknown layout {answer.get('layout')} or space {answer.get('space')}")
    shape = _parse_extents(answer, "shape", 0)
    chunks = _parse_extents(answer, "chunks", 1) if answer["layout"] == "chunked" else None
    names = tuple(None if name is None else _parse_text(name) for name in _parse_list(answer, "dimension_names"))
    if chunks is not None and len(chunks) != len(shape):
        raise CorruptData(f"chunk shape {list(chunks)} does not fit shape {list(shape)}")
    if len(names) not in (0, len(shape)):
        raise CorruptData(f"{len(names)} dimension names do not fit shape {list(shape)}")
    filters = _parse_list(answer, "filters")
    if len(filters) > MAX_FILTERS:
        raise CorruptData(f"the dataset has {len(filters)} filters, the limit is {MAX_FILTERS}")
    offset = answer.get("offset")
    return Dataset(
        dtype=dtype,
        form=answer["form"],
        null=answer["space"] == "null",
        shape=shape,
        layout=answer["layout"],
        chunks=chunks,
        filters=tuple(_parse_filter(entry) for entry in filters),
        unfiltered_edges=answer.get("unfiltered_edges") is True,
        offset=None if offset is None else parse_integer(offset, MAX_EXTENT),
        storage=None if answer.get("storage") is None else parse_integer(answer["storage"], 2**64),
        fill=None if answer.get("fill") is None else _parse_bytes(answer["fill"]),
        sources=tuple(_parse_text(path) for path in _parse_list(answer, "sources")),
        attributes=parse_attributes(answer),
        dimension_names=names,
        unreadable=parse_optional_text(answer, "unreadable"),
        table=_parse_small_table(answer.get("table")),
    )


def _parse_small_table(table: Any) -> SmallTable | None:
    if table is None:
        return None
    if not isinstance(table, dict):
        raise CorruptData("the HDF5 process sent a malformed chunk table")
    rows, columns = parse_integer(table.get("chunks"), 2**31), _parse_bytes(table.get("columns"))
    if len(columns) != rows * 4 * 8:
        raise CorruptData("the HDF5 process sent a malformed chunk table")
    return SmallTable(rows, parse_integer(table.get("outside"), 2**63), columns)


def _parse_bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(_parse_text(text), validate=True)
    except ValueError:
        raise CorruptData("the HDF5 process sent invalid base64") from None


def _parse_filter(entry: Any) -> Filter:
    if not isinstance(entry, dict) or not isinstance(entry.get("values"), list):
        raise CorruptData("the HDF5 process sent a malformed filter")
    values = tuple(parse_integer(value, 2**32) for value in entry["values"])
    number, name = parse_integer(entry.get("id"), 2**31), _parse_text(entry.get("name"))
    return Filter(number, values, name, entry.get("available") is True)


def _parse_extents(answer: Mapping[str, Any], key: str, least: int) -> tuple[int, ...]:
    extents = tuple(parse_integer(extent, MAX_EXTENT + 1) for extent in _parse_list(answer, key))
    if len(extents) > MAX_RANK or any(extent < least for extent in extents):
        raise CorruptData(f"the HDF5 process sent the impossible {key} {list(extents)}")
    return extents


def _parse_list(answer: Mapping[str, Any], key: str) -> list[Any]:
    items = answer.get(key)
    if not isinstance(items, list):
        raise CorruptData(f"the HDF5 process sent no list of {key}")
    return items


def parse_integer(value: Any, end: int) -> int:
    """Return `value`; CorruptData unless it is an integer of at least 0 that is less than `end`."""
    if type(value) is not int or not 0 <= value < end:
        raise CorruptData(f"the HDF5 process sent {value!r} where a number below {end} was expected")
    return value


def _parse_text(value: Any) -> str:
    if not isinstance(value, str):
        raise CorruptData(f"the HDF5 process sent {value!r} where text was expected")
    return value
