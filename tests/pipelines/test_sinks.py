"""What sinks do without Spark: documents of Elasticsearch, statements of Snowflake, and what each of them gets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructType, TimestampType

from penstock.pipelines.engine.runner import Backoff
from penstock.pipelines.sinks import ORIGIN, Destination, Refused, SinkUnavailable
from penstock.pipelines.sinks.destination import REFUSED_MAX, judged
from penstock.pipelines.sinks.elasticsearch import Connection, connection_of, write_bulk
from penstock.pipelines.sinks.tasks import Receipt, Task
from penstock.pipelines.spec.model import Restart
from penstock.pipelines.spec.problems import PipelineFailed
from pipelines.bulk_server import BulkServer, bulk_server
from pipelines.inline_frames import InlineFrame, inline


def test_who_a_sink_is() -> None:
    """Names that look alike when they are put together are still others; a new checkpoint counts from 0 again."""
    identities = {
        Destination("a", "b", "c").short_identity,
        Destination("a", "b", "d").short_identity,
        Destination("a", "b", "c", checkpoint="1").short_identity,
    }
    assert len(identities) == 3
    assert "hunter2" not in repr(Destination("a", "b", "c", options={"password": "hunter2"}))


def test_refused_rows_are_judged() -> None:
    row = Refused("too long", "t-0-1")
    assert judged([row], Destination("a", "b", "c", refusals=True)) == [row]
    with pytest.raises(PipelineFailed, match='sink "c": a row is refused: too long'):
        judged([row], Destination("a", "b", "c"))
    with pytest.raises(PipelineFailed, match="10001 rows are refused"):
        judged([row] * (REFUSED_MAX + 1), Destination("a", "b", "c", refusals=True))


def test_who_is_patient_never_gives_up() -> None:
    backoff = Backoff(Restart(attempts=2), lambda: 1.0)
    pauses = [backoff.failed(0.0, patient=True) for _ in range(10)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0]
    assert backoff.failed(0.0) is None


@pytest.fixture
def server() -> Iterator[BulkServer]:
    with bulk_server() as server:
        yield server


def write(server: BulkServer, *rows: tuple[str | None, Any], options: dict[str, str] | None = None) -> Receipt:
    columns = [[id_ for id_, _ in rows], [json.dumps(row) for _, row in rows], [f"t-0-{n}" for n in range(len(rows))]]
    batch = pa.RecordBatch.from_arrays([pa.array(each, pa.string()) for each in columns], ["id", "document", ORIGIN])
    to = Destination("shop", "orders", "search", options={"hosts": server.address, **(options or {})})
    return write_bulk(connection_of(to), "search", "orders", (0.0, 0.0), Task(0, 0), iter([batch, batch]))


def test_documents(server: BulkServer) -> None:
    """The last of an id counts; those that are put off come again; those that are refused are reported."""
    server.busy["a"] = 2
    receipt = write(server, ("a", {"number": 1}), ("b", {"number": "x"}), ("a", {"number": 2}), (None, {}))

    assert server.documents == {"a": {"number": 2}}
    refused = {(each.origin, each.reason) for each in receipt.refused}
    assert refused == {
        ("t-0-1", 'failed to parse field [number]: For input string: "x"'),
        ("t-0-3", "its key is NULL"),
    }


def test_a_server_that_has_no_time(server: BulkServer) -> None:
    server.busy["a"] = 100
    with pytest.raises(SinkUnavailable, match="the queue is full"):
        write(server, ("a", {}))
    server.status = 503
    with pytest.raises(SinkUnavailable, match="503"):
        write(server, ("a", {}))
    server.status = 401
    with pytest.raises(PipelineFailed, match="401") as told:
        write(server, ("a", {}), options={"api_key": "c2VjcmV0"})
    assert not isinstance(told.value, SinkUnavailable)
    assert "c2VjcmV0" not in str(told.value)
    assert "ApiKey c2VjcmV0" in server.authorization
    with pytest.raises(SinkUnavailable, match="Connection refused"):
        write(server, ("a", {}), options={"hosts": "http://127.0.0.1:1"})


def test_options_of_elasticsearch() -> None:
    with pytest.raises(PipelineFailed, match='no option "host"; did you mean "hosts"'):
        connection_of(Destination("a", "b", "c", options={"host": "x"}))
    with pytest.raises(PipelineFailed, match='"hosts" has "search:9200", without http:// or https://'):
        connection_of(Destination("a", "b", "c", options={"hosts": "http://a:1, search:9200"}))
    made = connection_of(
        Destination("a", "b", "c", options={"username": "u", "password": "p", "verify_certs": "false"})
    )
    assert made == Connection(
        ("http://127.0.0.1:9200",),
        {"authorization": "Basic dTpw"},
        {"verify_certs": False, "ssl_show_warn": False},
    )
    assert "dTpw" not in repr(made)


@pytest.mark.filterwarnings("ignore")  # of what fakesnow does with DuckDB
def test_snowflake(monkeypatch: pytest.MonkeyPatch) -> None:
    """On fakesnow, which is DuckDB behind Snowflake's own client. It removes no files of stages, and merges in no
    transaction, so of these it is only seen that they are asked for."""
    fakesnow = pytest.importorskip("fakesnow", reason="no fakesnow here: pip install fakesnow")
    from penstock.pipelines.sinks.snowflake import SnowflakeSink

    inline(monkeypatch, "penstock.pipelines.sinks.snowflake")
    schema = {"id": LongType(), "name": StringType(), "doc": StructType(), "raw": BinaryType(), "at": TimestampType()}
    at = "2026-05-01T12:00:00.250000Z"
    first = InlineFrame(
        schema, [("1", "a", '{"a":1}', "\\x00FF", at), ("1", "b", None, None, None)], [], [("2", "", None, None, at)]
    )
    options = {"user": "u", "password": "p", "account": "a", "database": "shop", "schema": "public"}
    with fakesnow.patch(nop_regexes=["^REMOVE", "^BEGIN", "^COMMIT"]):
        for name, key in (("keyed", ("id",)), ("added", ())):
            to = Destination("shop", "orders", name, options=options, table=name, key=key)
            for sink in (SnowflakeSink(to), SnowflakeSink(to)):
                sink.write(first, 0)  # type: ignore[arg-type]
                sink.write(first, 0)  # type: ignore[arg-type]
            sink.write(InlineFrame(schema), 1)  # type: ignore[arg-type]
            sink.write(InlineFrame(schema, [("2", "c", None, None, None)]), 2)  # type: ignore[arg-type]
            with pytest.raises(PipelineFailed, match="older than what is written: batch 1 comes after 2"):
                sink.write(InlineFrame(schema), 1)  # type: ignore[arg-type]
        import snowflake.connector

        with snowflake.connector.connect(**options) as connection, connection.cursor() as cursor:
            keyed = cursor.execute("SELECT ID, NAME FROM KEYED ORDER BY ID").fetchall()
            added = cursor.execute("SELECT ID, NAME, RAW, DOC FROM ADDED ORDER BY ID, NAME").fetchall()
    assert keyed == [(1, "b"), (2, "c")]
    assert [row[:2] for row in added] == [(1, "a"), (1, "b"), (2, ""), (2, "c")]
    assert bytes(added[0][2]) == b"\x00\xff"
    assert json.loads(added[0][3]) == {"a": 1}
