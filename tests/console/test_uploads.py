"""Files of records in pieces, and messages of Protobuf, without a browser."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console.observe.protobuf import document_of
from penstock.console.server.uploads import answer, read_piece
from penstock.console.views import uploads
from penstock.console.views.uploads import BadUpload, Entry, Piece, Upload, parse_piece


def whole(data: bytes, kind: str, key: str = "") -> Piece:
    return parse_piece(data, Upload(format=kind, key=key))


def in_pieces(data: bytes, kind: str, size: int, key: str = "") -> tuple[list[Entry], list[tuple[int, str]], int]:
    """As the browser sends them."""
    entries: list[Entry] = []
    errors: list[tuple[int, str]] = []
    columns: tuple[str, ...] = ()
    at, first, grown = 0, 1, size
    while at < len(data):
        end = min(len(data), at + grown)
        upload = Upload(format=kind, key=key, first_line=first, is_last=end == len(data), columns=columns)
        piece = parse_piece(data[at:end], upload)
        if not piece.used:
            grown *= 2
            continue
        entries += piece.entries
        errors += piece.errors
        at, first, columns = at + piece.used, first + piece.lines, piece.columns
    return entries, errors, first - 1


def test_each_format_makes_records() -> None:
    assert whole(b"\xef\xbb\xbfone\r\n\ntwo \xff", "text").entries == [Entry(1, b"one"), Entry(3, b"two \xff")]
    values = whole(b'{"id": {"a": 7}}\n{"id": {"a": "x"}}\n{}\n', "jsonl", "id.a")
    assert [(entry.key, entry.line) for entry in values.entries] == [(b"7", 1), (b"x", 2)]
    assert values.errors == [(3, "it has no such key")]
    records = whole(
        b'{"key": "k", "value": {"hex": "00ff"}, "headers": [["a", "b"]], "offset": 3}\n'
        b'{"value": null}\n{"value": {"x": 1}, "headers": {"h": 2}}\n{"key": 1}\n{"value": {"hex": "zz"}}\n',
        "records",
    )
    assert records.entries == [
        Entry(1, b"\x00\xff", b"k", (("a", b"b"),)),
        Entry(2, None),
        Entry(3, b'{"x": 1}', None, (("h", b"2"),)),
    ]
    assert [line for line, _ in records.errors] == [4, 5]
    rows = whole(b'id,text\r\n1,"a ""b""\r\nc"\n2\n\n3,\xff\n4,d\n', "csv", "id")
    assert [(entry.line, entry.key, json.loads(entry.value or b"")["text"]) for entry in rows.entries] == [
        (2, b"1", 'a "b"\nc'),
        (7, b"4", "d"),
    ]
    assert rows.errors == [(4, "it has 1 fields, and the first line 2"), (6, "it is not UTF-8")]


@given(
    st.sampled_from(["text", "jsonl", "csv", "records"]),
    st.lists(
        st.sampled_from(
            [b"a,b\n", b'"x\ny",2\n', b'{"a": 1}\n', b'{"value": "v"}\r\n', b"\n", b'"', b"1,2\n", b"\xff\n", b"3"]
        ),
        max_size=30,
    ),
    st.integers(1, 40),
)
def test_pieces_of_any_size_give_what_the_whole_file_gives(kind: str, parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    try:
        at_once = whole(data, kind)
    except BadUpload:
        return
    entries, errors, lines = in_pieces(data, kind, size)
    assert entries == at_once.entries
    assert errors == at_once.errors
    assert lines == at_once.lines


@given(st.binary(max_size=300), st.sampled_from(sorted(uploads.FORMATS)), st.booleans())
def test_any_bytes_are_records_or_refused(data: bytes, kind: str, is_last: bool) -> None:
    try:
        piece = parse_piece(data, Upload(format=kind, is_last=is_last))
    except BadUpload:
        return
    assert 0 <= piece.used <= len(data)
    assert len(piece.entries) + piece.wrong <= piece.lines


def test_what_cannot_be_read_is_refused() -> None:
    endless = b"x" * uploads.PIECE_MAX
    for data, upload, says in (
        (b"a", Upload(format="xml"), "no format"),
        (endless, Upload(format="text", is_last=False, first_line=7), "line 7 is longer than 8 MiB"),
        (endless + b"x", Upload(format="text"), "at most"),
        (b"a,a\n", Upload(format="csv"), "each differently"),
        (b"a,b\n", Upload(format="csv", key="c"), "no column 'c'"),
        (b"{}", Upload(format="jsonl", key="a b"), "key: "),
    ):
        with pytest.raises(BadUpload, match=says):
            parse_piece(data, upload)
    for given_parameters in ({"first": "x"}, {"first": "0"}, {"columns": "{"}, {"columns": "[1]"}, {}):
        with pytest.raises(BadUpload):
            read_piece(given_parameters, b"")


def test_errors_are_counted_and_some_are_named() -> None:
    piece = whole(b"{\n" * 500, "jsonl")
    assert (piece.wrong, len(piece.errors)) == (500, uploads.ERRORS_MAX)
    told = answer(whole(b"<script>\n" * 50, "text"), with_preview=True)
    assert told["records"] == 50
    assert told["preview"].count("&lt;script&gt;") == uploads.PREVIEW_MAX
    assert "<script" not in told["preview"]


def test_protobuf_is_shown_with_the_names_of_its_fields_and_numbers() -> None:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

    file = descriptor_pb2.FileDescriptorProto(
        name="a.proto", syntax="proto3", dependency=[timestamp_pb2.DESCRIPTOR.name]
    )
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="big_one", number=1, type=4, label=1)
    outer = file.message_type.add(name="Outer")
    outer.field.add(name="all_of", number=1, type=11, label=3, type_name=".Inner")
    outer.field.add(name="ids", number=2, type=3, label=3)
    outer.field.add(name="at", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")
    entry = outer.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=3, label=1)
    outer.field.add(name="counts", number=4, type=11, label=3, type_name=".Outer.CountsEntry")
    pool = descriptor_pool.DescriptorPool()
    known = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known)
    pool.Add(known)
    pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("Outer"))()
    message.all_of.add(big_one=2**63)
    message.ids.extend([1, -(2**62)])
    message.at.seconds = 0
    message.counts["x"] = 5
    assert document_of(message) == {
        "all_of": [{"big_one": 2**63}],
        "ids": [1, -(2**62)],
        "at": "1970-01-01T00:00:00Z",
        "counts": {"x": 5},
    }
