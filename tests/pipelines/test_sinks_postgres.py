"""The sink for PostgreSQL on a real server, without Spark: what its statements do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from history_cases import BATCHES
from penstock.pipelines.sinks import ORIGIN, Destination, Refused, SinkUnavailable
from penstock.pipelines.sinks.postgres import PostgresSink
from penstock.pipelines.spec.problems import PipelineFailed
from pipelines.inline_frames import InlineFrame, inline
from postgres_server import PASSWORD, PostgresServer, postgres_server

SCHEMA = {"id": LongType(), "name": StringType(), ORIGIN: StringType()}
MODULE = "penstock.pipelines.sinks.postgres"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    inline(monkeypatch, MODULE)


def sink(server: PostgresServer, table: str, **more: Any) -> Any:
    return PostgresSink(Destination("shop", "orders", table, options=server.options, table=table, **more))


def test_batches(server: PostgresServer) -> None:
    """Tasks that ran twice count once; a batch that comes twice counts once; the last of a key counts; a batch from
    an older checkpoint is refused."""
    rows = InlineFrame(
        SCHEMA, [("1", "a", "t-0-0"), ("2", None, "t-0-1"), ("1", "b", "t-0-2")], [], [("3", "", "t-1-0")]
    )
    keyed, added = (sink(server, name, key=key) for name, key in (("keyed", ("id",)), ("added", ())))
    for each in (keyed, added):
        assert each.write(rows, 0) == []
        assert each.write(rows, 0) == []
        assert each.write(InlineFrame(SCHEMA), 1) == []
        with pytest.raises(PipelineFailed, match="older than what is written: batch 0 comes after 1"):
            each.write(InlineFrame(SCHEMA, [("9", "late", "t-0-3")]), 0)

    assert server.query("SELECT * FROM keyed ORDER BY id") == [(1, "b"), (2, None), (3, "")]
    assert server.query("SELECT * FROM added ORDER BY id, name") == [(1, "a"), (1, "b"), (2, None), (3, "")]
    assert server.query("SELECT count(*) FROM pg_class WHERE relname LIKE 'penstock_stage%'") == [(0,)]


def test_rows_that_are_refused(server: PostgresServer) -> None:
    """The others are written; the refused ones are reported each time, without another attempt."""
    server.query("CREATE TABLE narrow (id int PRIMARY KEY, name varchar(3) NOT NULL)")
    good, long, zero, null = ("1", "a", "t-0-0"), ("2", "long", "t-0-1"), ("3", "\0", "t-0-2"), ("4", None, "t-0-3")
    rows = InlineFrame(SCHEMA, [good, long], [zero, null])
    patient = sink(server, "narrow", key=("id",), refusals=True)

    refused = patient.write(rows, 0)

    assert server.query("SELECT * FROM narrow") == [(1, "a")]
    assert {each.origin: each.reason for each in refused} == {
        "t-0-1": "value too long for type character varying(3)",
        "t-0-2": 'column "name" has a character of code 0, which PostgreSQL has not',
        "t-0-3": 'null value in column "name" of relation "narrow" violates not-null constraint',
    }
    assert sorted(map(str, sink(server, "narrow", key=("id",), refusals=True).write(rows, 0))) == sorted(
        map(str, refused)
    )
    with pytest.raises(PipelineFailed, match="is refused: value too long"):
        sink(server, "narrow", key=("id",)).write(InlineFrame(SCHEMA, [("5", "b", "t-0-4"), long]), 1)
    assert server.query("SELECT * FROM narrow") == [(1, "a")]
    assert all(isinstance(each, Refused) for each in refused)


def test_types_are_the_tables(server: PostgresServer) -> None:
    server.query("CREATE TABLE typed (id int, tags text[], doc jsonb, bytes bytea, at timestamptz, exact numeric(6,2))")
    schema = {
        "id": IntegerType(),
        "tags": ArrayType(StringType()),
        "doc": StructType(),
        "bytes": BinaryType(),
        "at": TimestampType(),
        "exact": DecimalType(6, 2),
    }
    values = ("1", '["x","y"]', '{"a":1}', "\\x00ff", "2026-05-01T12:00:00.250000Z", "1.50")

    sink(server, "typed").write(InlineFrame(schema, [values, ("2", *[None] * 5)]), 0)

    found = server.query(
        "SELECT id, tags, doc, bytes, extract(epoch FROM at)::text, exact::text FROM typed ORDER BY id"
    )
    assert found == [(1, ["x", "y"], {"a": 1}, b"\x00\xff", "1777636800.250000", "1.50"), (2, *[None] * 5)]


def test_types_with_a_length(server: PostgresServer) -> None:
    """Values are as long as they were, and the server says what does not fit."""
    server.query("CREATE TABLE lengths (id int, code char(4), codes char(3)[], mask bit(8), blobs bytea[])")
    texts = dict.fromkeys(("code", "mask"), StringType())
    schema = {"id": IntegerType(), **texts, "codes": ArrayType(StringType()), "blobs": ArrayType(BinaryType())}
    lengths = sink(server, "lengths")

    lengths.write(InlineFrame(schema, [("1", "abcd", "10101010", '["abc","d"]', '["AP8=",null]')]), 0)

    found = server.query("SELECT id, code, mask::text, codes::text, blobs FROM lengths")
    assert found == [(1, "abcd", "10101010", '{abc,"d  "}', [b"\x00\xff", None])]
    with pytest.raises(PipelineFailed, match=r"value too long for type character\(4\)"):
        lengths.write(InlineFrame(schema, [("2", "abcde", None, None, None)]), 1)


def test_texts_that_are_the_same_key(server: PostgresServer) -> None:
    """The table decides what is the same: the last one wins."""
    server.query("CREATE TABLE padded (id char(4) PRIMARY KEY, name text)")
    rows = InlineFrame({"id": StringType(), "name": StringType()}, [("ab", "a"), ("c", "c"), ("ab ", "b")])

    sink(server, "padded", key=("id",)).write(rows, 0)

    assert server.query("SELECT trim(id), name FROM padded ORDER BY id") == [("ab", "b"), ("c", "c")]


def test_names_with_characters_of_sql(server: PostgresServer) -> None:
    name = """a$$b"c';--"""
    quoted = name.replace('"', '""')
    server.query(f'CREATE TABLE "{quoted}" (id int PRIMARY KEY, "{quoted}" varchar(3))')
    schema = {"id": LongType(), name: StringType(), ORIGIN: StringType()}
    rows = InlineFrame(schema, [("1", "a", "t-0-0"), ("2", "long", "t-0-1")])

    refused = sink(server, name, key=("id",), refusals=True).write(rows, 0)

    assert [each.origin for each in refused] == ["t-0-1"]
    assert server.query(f'SELECT * FROM "{quoted}"') == [(1, "a")]


def test_what_is_said(server: PostgresServer) -> None:
    """Who is wrong, or away, and never the password."""
    server.query("CREATE TABLE plain (id int, nam text)")
    rows = InlineFrame(SCHEMA, [("1", "a", "t-0-0")])
    with pytest.raises(PipelineFailed, match=r'table plain has no column "name"; did you mean "nam"'):
        sink(server, "plain").write(rows, 0)
    with pytest.raises(
        PipelineFailed, match=r'no unique or exclusion constraint .* create a unique index over .* "key"'
    ):
        server.query("CREATE TABLE unkeyed (id int, name text)")
        sink(server, "unkeyed", key=("id",)).write(rows, 0)
    with pytest.raises(PipelineFailed) as refused:
        sink(server, "nowhere.orders").write(rows, 0)
    assert str(refused.value).endswith(': schema "nowhere" does not exist; create it: CREATE SCHEMA')
    wrong = Destination("shop", "orders", "x", options={**server.options, "password": "not-it"}, table="plain")
    with pytest.raises(PipelineFailed, match="password authentication failed"):
        PostgresSink(wrong).write(rows, 0)  # type: ignore[arg-type]

    away = sink(server, "away")
    server.stop()
    try:
        with pytest.raises(SinkUnavailable, match='sink "away": PostgreSQL: ') as told:
            away.write(rows, 0)
        assert PASSWORD not in str(told.value)
    finally:
        server.start()
    assert away.write(rows, 0) == []
    assert server.query("SELECT * FROM away") == [(1, "a")]


def test_history(server: PostgresServer) -> None:
    """Every batch is written twice, and in one task or two."""
    schema = {"id": LongType(), "name": StringType(), "at": TimestampType()}
    table = sink(server, "versions", key=("id",), history=True, history_time="at")
    for number, (law, rows, expected) in enumerate(BATCHES):
        texts = [(str(id_), name, at.isoformat()) for id_, name, at in rows]
        table.write(InlineFrame(schema, texts[:1], texts[1:]), number)
        table.write(InlineFrame(schema, texts), number)
        found = server.query("SELECT id, name, valid_from, valid_to, is_current FROM versions ORDER BY id, valid_from")
        assert found == expected, law


def test_history_by_the_time_of_writing(server: PostgresServer) -> None:
    schema = {"id": LongType(), "name": StringType()}
    table = sink(server, "written", key=("id",), history=True)
    server.query(
        "CREATE TABLE written (id bigint, name text, valid_from timestamptz, valid_to timestamptz, "
        "is_current boolean, PRIMARY KEY (id, valid_from))"
    )
    for number, names in enumerate(("ab", "b", "c")):
        table.write(InlineFrame(schema, [("1", name) for name in names]), number)
    (first, second) = server.query("SELECT name, valid_from, valid_to, is_current FROM written ORDER BY valid_from")
    assert first == ("b", first[1], second[1], False)
    assert second == ("c", second[1], None, True)
    server.query("UPDATE written SET valid_from = 'infinity' WHERE is_current")
    table.write(InlineFrame(schema, [("1", "d")]), 3)  # the clock is behind
    assert server.query("SELECT name FROM written WHERE is_current") == [("d",)]
    with pytest.raises(PipelineFailed, match="invalid input syntax"):
        table.write(InlineFrame(schema, [("x", "e")]), 4)
