"""The sink's options and columns: everything that can be known to be wrong is said before anything runs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.arrow.errors import BadColumn
from penstock.spark.sink import columns as columns_module
from penstock.spark.sink.columns import HEADERS_TEXT, sink_columns
from penstock.spark.sink.options import sink_options
from penstock.spark.sink.writer import batch_sink, stream_sink
from penstock.spark.source.errors import BadOption

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_what_is_heeded() -> None:
    given = SERVERS | {
        "Topic": "orders",
        "sinkid": "etl_7",
        "checkpointLocation": "/somewhere",
        "kafka.compression.type": "zstd",
        "kafka.compression.zstd.level": "3",
        "kafka.batch.size": "65536",
        "kafka.delivery.timeout.ms": "5000",
        "kafka.transaction.timeout.ms": "60000",
        "kafka.linger.ms": "5",
    }
    options = sink_options(given, streaming=True)
    assert (options.topic, options.sink_id, options.exactly_once) == ("orders", "etl_7", True)
    producer = options.producer
    assert (producer.compression, producer.compression_level, producer.batch_bytes) == ("zstd", 3, 65536)
    assert (producer.delivery_timeout, producer.transaction_timeout_ms) == (5.0, 60000)
    assert not sink_options(SERVERS | {"deliveryGuarantee": "At-Least-Once"}, streaming=True).exactly_once
    assert sink_options(SERVERS | {"sinkId": "s", "version": "7"}, streaming=False).version == 7
    assert sink_options(SERVERS | {"sinkNames": '["shop", "orders"]'}, streaming=True).sink_names == ("shop", "orders")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topics": "t"}, "'topics' is not an option of the sink. Did you mean 'topic'?"),
        ({"subscribe": "t"}, "'subscribe' is not an option of the sink"),
        ({"path": "t"}, r"path='t': a topic is no path; say option\('topic', 't'\)"),
        ({"topic": ""}, "topic is empty"),
        ({"deliveryGuarantee": "twice"}, "deliveryGuarantee='twice' is neither 'exactly-once' nor 'at-least-once'"),
        ({"sinkId": "a.b"}, "sinkId='a.b' is not made of"),
        ({"sinkId": "a", "deliveryGuarantee": "at-least-once"}, "sinkId='a' has no meaning"),
        ({"version": "1"}, "version='1' has no meaning in a streaming query"),
        ({"sinkNames": "shop"}, "sinkNames='shop' is not a list of names, as JSON"),
        ({"sinkNames": "[]"}, "is not a list of names"),
        ({"sinkNames": "[1]"}, "is not a list of names"),
        ({"sinkNames": '["a"]', "sinkId": "a"}, "is for streaming queries, exactly-once, without a sinkId"),
        ({"sinkNames": '["a"]', "deliveryGuarantee": "at-least-once"}, "is for streaming queries, exactly-once"),
        ({"kafka.transactional.id": "x"}, "transactional.id cannot be set: transactional ids come from sinkId"),
        ({"kafka.sasl.password": "x"}, "kafka.sasl.password is a secret, and Spark shows options in plans"),
        ({"kafka.bootstrap.servers": "@a", "kafka.penstock.config": "b"}, "both refer to client settings"),
        (
            {"kafka.bootstrap.servers": "h:1@?ssl.key.password=x"},
            "kafka.bootstrap.servers: ssl.key.password is a secret",
        ),
        ({"kafka.acks": "1"}, "kafka.acks='1': rows count as written when all replicas have them"),
        ({"kafka.enable.idempotence": "false"}, "enable.idempotence cannot be turned off"),
        ({"kafka.compression.type": "rar"}, "compression.type='rar' is not one of none, gzip"),
        ({"kafka.liner.ms": "1"}, "no setting kafka.liner.ms of a producer. Did you mean 'kafka.linger.ms'?"),
        ({"kafka.delivery.timeout.ms": "soon"}, "delivery.timeout.ms='soon' is not a number from 1 on"),
        ({"kafka.bootstrap.servers": "x:y"}, "bootstrap.servers='x:y': 'x:y' is not a HOST:PORT"),
    ],
)
def test_what_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        sink_options(SERVERS | given, streaming=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sinkId": "a"}, "sinkId without version"),
        ({"sinkNames": '["a"]'}, "is for streaming queries"),
        ({"version": "1"}, "version='1' without sinkId"),
        ({"sinkId": "a", "version": "x"}, "version='x' is not a number from 0 on"),
    ],
)
def test_names_of_batch_writes(given: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        sink_options(SERVERS | given, streaming=False)


def test_servers_are_needed_and_topics_only_grow() -> None:
    with pytest.raises(BadOption, match=r"bootstrap\.servers is missing"):
        sink_options({}, streaming=True)
    with pytest.raises(BadOption, match=r"outputMode\('complete'\) would replace"):
        stream_sink(SERVERS, schema(value=StringType()), overwrite=True)
    with pytest.raises(BadOption, match=r"mode\('overwrite'\) would replace"):
        batch_sink(SERVERS, schema(value=StringType()), overwrite=True)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (schema(key=StringType()), "no column 'value'"),
        (schema(value=LongType()), "column 'value' is of type bigint; the sink needs string or binary"),
        (schema(value=StringType(), key=IntegerType()), "column 'key' is of type int"),
        (schema(value=StringType(), topic=BinaryType()), "column 'topic' is of type binary; the sink needs string"),
        (schema(value=StringType(), partition=LongType()), "column 'partition' is of type bigint; the sink needs int"),
        (schema(value=StringType(), headers=StringType()), "column 'headers' is of type string; the sink needs array"),
        (schema(value=StringType(), vaule=StringType()), "no column 'vaule'.* Did you mean 'value'?"),
        (schema(value=StringType()), "no topic is given"),
    ],
)
def test_columns_that_do_not_fit(found: StructType, message: str) -> None:
    topic = None if "no topic" in message else "t"
    with pytest.raises(BadColumn, match=message):
        sink_columns(found, topic)


def test_a_topic_can_be_copied_as_it_is() -> None:
    whole = schema(
        key=BinaryType(),
        value=BinaryType(),
        topic=StringType(),
        partition=IntegerType(),
        offset=LongType(),
        timestamp=TimestampType(),
        timestampType=IntegerType(),
        headers=HEADERS,
    )
    assert sink_columns(whole, "copy").names == ("key", "value", "partition", "headers")
    assert sink_columns(whole, None).names == ("key", "value", "topic", "partition", "headers")


def test_small_batches_are_put_together_and_topics_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def batches(*rows: tuple[str | None, str]) -> list[Any]:
        return [pa.record_batch({"topic": pa.array([topic], pa.string()), "value": [v]}) for topic, v in rows]

    columns = sink_columns(schema(topic=StringType(), value=StringType()), None)
    rows = [("a", "1"), ("b", "2"), ("a", "3")]
    assert [(topic, table["value"].to_pylist()) for topic, table in columns.pieces(batches(*rows))] == [
        ("a", ["1", "3"]),
        ("b", ["2"]),
    ]
    with pytest.raises(BadColumn, match="'topic' is null in row 1"):
        list(columns.pieces(batches(("a", "1"), (None, "2"))))
    monkeypatch.setattr(columns_module, "PIECE_BYTES", 1)
    assert [topic for topic, _ in columns.pieces(batches(*rows))] == ["a", "b", "a"]
    fixed = sink_columns(schema(topic=StringType(), value=StringType()), "all")
    assert [topic for topic, _ in fixed.pieces(batches(*rows))] == ["all"] * 3
    assert list(fixed.pieces([])) == []


def test_headers_may_come_as_text() -> None:
    columns = sink_columns(schema(value=StringType(), **{HEADERS_TEXT: StringType()}), "t")

    def headers(*texts: str | None) -> Any:
        ((_, table),) = columns.pieces([pa.record_batch({"value": ["v"] * len(texts), HEADERS_TEXT: list(texts)})])
        return table["headers"].to_pylist() if "headers" in table.column_names else None

    assert headers('[{"key":"a","value":"AP8="},{"key":"b"}]', None, "[]") == [
        [{"key": "a", "value": b"\x00\xff"}, {"key": "b", "value": None}],
        None,
        [],
    ]
    assert headers('[{"key":"a"}]') == [[{"key": "a", "value": None}]]
    nobody = [pa.record_batch({"value": ["v"], HEADERS_TEXT: pa.array([None], pa.string())})]
    ((_, table),) = columns.pieces(nobody)
    assert table.column_names == ["value"]
