"""The syntax of Hangar's records, schemas and commits, and any bytes in their place. Not here: repositories."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsbridge.errors import CorruptData, FsbridgeError, Unsupported
from fsbridge.formats.hangar.records import (
    RefTable,
    RemoteRecord,
    RowRecord,
    TextRecord,
    parse_commit,
    parse_record,
    parse_schema,
    split_records,
)

EXAMPLES = 300


# ---- records


def test_records_are_parsed_as_hangar_writes_them() -> None:
    record = parse_record(b"00:foak1tfb:6f6395267249ee85:0:186:6")
    assert record == RowRecord("00", "foak1tfb", "6f6395267249ee85", "0", 186, (6,))
    record = parse_record(b"01:rlUK3C:8067007c0f05c359:16:105:10 10")
    assert isinstance(record, RowRecord)
    assert record.shape == (10, 10)
    assert parse_record(b"10:abcdefgh:8067007c0f05c359:7:") == RowRecord("10", "abcdefgh", "8067007c0f05c359", "", 7, ())
    assert parse_record(b"30:abcdefgh:0123:8067007c0f05c359") == TextRecord("30", "abcdefgh", "8067007c0f05c359", "0123")
    assert parse_record(b"50:1=e2727a1aacc4") == RemoteRecord("1=e2727a1aacc4")
    for old in (b"00:2HvGf9$3 199*20 2 3", b"00:rlUK3C$8067007c0f05c359$16 105*10 10"):
        with pytest.raises(Unsupported, match=r"before 0\.5"):
            parse_record(old)
    digest = b"8067007c0f05c359"
    for damaged in (b"00:../../etc:%s:0:0:1" % digest, b"10:a/b:%s:0:" % digest, b"00:a:b:0:0:1", b"30:a:012:x", b"\xff"):
        with pytest.raises(CorruptData):
            parse_record(damaged)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.one_of(st.binary(max_size=80), st.from_regex(rb"(00|01|10|30|31|50):[a-z0-9:$* ]{0,60}", fullmatch=True)))
def test_any_bytes_are_a_record_or_an_error(raw: bytes) -> None:
    try:
        record = parse_record(raw)
    except FsbridgeError:
        return
    if not isinstance(record, RemoteRecord):
        assert record.uid.isalnum()


SCHEMA = (
    b"{'column_layout':'flat','column_type':'ndarray','schema_hasher_tcode':'1','data_hasher_tcode':'0','schema_type':"
    b"'variable_shape','shape':(20,5,3),'dtype':'int32','backend':'00','backend_options':{'complib':'lzf','complevel':None}}"
)


def test_schemas_are_parsed_as_hangar_writes_them() -> None:
    schema = parse_schema(SCHEMA)
    assert (schema.shape, schema.dtype, schema.variable, schema.nested) == ((20, 5, 3), np.dtype("<i4"), True, False)
    assert schema.document["backend_options"] == {"complib": "lzf", "complevel": None}
    for damaged in (
        b"__import__('os').system('true')", b"{", b"[" * 60000, b"{1:2}", b"{[]:1}", b"()", b"{" + b"'a':1," * 20000 + b"}",
        SCHEMA.replace(b"(20,5,3)", b"(20,-5,3)"), SCHEMA.replace(b"(20,5,3)", b"None"), SCHEMA.replace(b"int32", b"no"),
        SCHEMA.replace(b"int32", b"O"), SCHEMA.replace(b"int32", b"i4,i4"), SCHEMA.replace(b"flat", b"round"),
    ):  # fmt: skip
        with pytest.raises((CorruptData, Unsupported)):
            parse_schema(damaged)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, len(SCHEMA)), st.binary(max_size=8), st.integers(0, 8))
def test_a_damaged_schema_is_an_error_or_a_schema(position: int, inserted: bytes, removed: int) -> None:
    try:
        schema = parse_schema(SCHEMA[:position] + inserted + SCHEMA[position + removed :])
    except FsbridgeError:
        return
    assert schema.kind in ("ndarray", "str", "bytes")


def test_commits_are_parsed_as_hangar_writes_them() -> None:
    spec = b'{"commit_time":1.5,"commit_message":"m","commit_user":"u","commit_email":"e"}'
    commit = parse_commit("a=1", spec, b"a=2 << a=3")
    assert (commit.parents, commit.mtime_ns) == (("a=2", "a=3"), 1_500_000_000)
    times = [spec.replace(b"1.5", time) for time in (b"1e400", b"NaN", b"-1", b'"x"')]
    for damaged in (b"", b"[]", b"{}", spec.replace(b'"m"', b"1"), *times):
        with pytest.raises(CorruptData):
            parse_commit("a=1", damaged, b"")


def test_tree_records_are_sorted_or_get_sorted() -> None:
    records = b"f:b:y 0=2$s:b:f 1=1$f:b:x 0=1$n:c:k.a:s 0=3$n:c:k:s 0=4$n:c:k:t 0=5$s:c:n 1=2"
    table = RefTable(split_records(records))
    assert list(table.columns()) == [("b", "1=1"), ("c", "1=2")]
    assert list(table.samples("b", nested=False)) == ["x", "y"]
    assert list(table.samples("c", nested=True)) == ["k.a", "k"]
    assert list(table.subsamples("c", "k")) == ["s", "t"]
    assert table.digest("c", ("k", "t")) == "0=5"
    with pytest.raises(CorruptData):
        RefTable([b"f:b:y 0=2", b"f:b:z "]).digest("b", ("z",))
