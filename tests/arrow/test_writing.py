"""Tables to topics: what other clients read of them, and what is refused."""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as OfConfluent

from penstock.arrow import (
    BadColumn,
    RecordTooLarge,
    TopicPartition,
    Transaction,
    WriteFailed,
    Writer,
    read_table,
    write_table,
)
from penstock.client.errors import BadSetting, UnknownTopic, Unreachable
from penstock.model.errors import ErrorCode, KafkaError
from penstock.serializers import Int64, Json

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def consume(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[Message]:
    """By partition and offset, as librdkafka reads them."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False, "check.crcs": True}
    )
    consumer.assign([OfConfluent(topic, partition, 0) for partition in range(partitions)])
    found: list[Message] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=30)
            assert messages, f"{len(found)} of {count} records"
            assert all(message.error() is None for message in messages)
            found += messages
    finally:
        consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


@pytest.mark.parametrize("codec", CODECS)
def test_other_clients_read_it(bootstrap: str, new_topic: Any, codec: str) -> None:
    topic = new_topic()
    keys = [None if row % 5 == 0 else f"key {row}" for row in range(300)]
    values = [None if row % 7 == 0 else b"value %d" % row for row in range(300)]
    headers = [None if row % 2 else [{"key": "a", "value": b"x"}, {"key": "b", "value": None}] for row in range(300)]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    times = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(milliseconds=row) for row in range(300)]
    table = pa.table({"key": keys, "value": values, "headers": pa.array(headers, kind), "at": times})
    # A slice, whose buffers begin elsewhere.
    written = write_table(bootstrap, topic, table.slice(20), timestamp="at", compression=codec, batch_bytes=2000)
    assert (written.rows, written.offsets) == (280, {TopicPartition(topic, 0): (0, 280)})
    for row, message in enumerate(consume(bootstrap, topic, 280), 20):
        assert message.key() == (None if keys[row] is None else str(keys[row]).encode())
        assert message.value() == values[row]
        assert message.headers() == (None if row % 2 else [("a", b"x"), ("b", None)])
        assert message.timestamp()[1] == times[row].timestamp() * 1000


def test_keys_go_where_kafkas_producers_send_them(bootstrap: str, new_topic: Any) -> None:
    ours, theirs = new_topic(7), new_topic(7)
    keys = [os.urandom(row % 23) for row in range(500)]
    write_table(bootstrap, ours, pa.table({"key": keys, "value": range(500)}))
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2"})
    for row, key in enumerate(keys):
        producer.produce(theirs, row.to_bytes(8, "big"), key)
    assert producer.flush(60) == 0
    places = [
        sorted(zip(*(table[name].to_pylist() for name in ("partition", "offset", "key", "value")), strict=True))
        for table in (read_table(bootstrap, topic, value="int64") for topic in (ours, theirs))
    ]
    assert places[0] == places[1]


def test_rows_without_a_key_take_turns(bootstrap: str, new_topic: Any) -> None:
    topic = new_topic(4)
    write_table(bootstrap, topic, pa.table({"value": range(400)}))
    table = read_table(bootstrap, topic, value="int64")
    assert Counter(table["partition"].to_pylist()) == dict.fromkeys(range(4), 100)
    for partition in range(4):
        rows = read_table(bootstrap, topic, value="int64", partitions=[partition])["value"].to_pylist()
        assert rows == sorted(rows)


def test_a_partition_column_decides(bootstrap: str, new_topic: Any) -> None:
    topic = new_topic(3)
    table = pa.table({"key": ["a", "b", "a"], "value": range(3), "to": [2, 1, None]})
    write_table(bootstrap, topic, table, partition="to")
    read = read_table(bootstrap, topic, value="int64").to_pylist()
    where = {row["value"]: row["partition"] for row in read}
    assert (where[0], where[1]) == (2, 1)


def test_frames_and_numbers(bootstrap: str, new_topic: Any) -> None:
    rows = {"value": [3, 1, 2]}
    for frame in (pd.DataFrame(rows), pl.DataFrame(rows), pa.RecordBatch.from_pydict(rows)):
        topic = new_topic()
        assert write_table(bootstrap, topic, frame).rows == 3
        assert [message.value() for message in consume(bootstrap, topic, 3)] == [
            number.to_bytes(8, "big") for number in rows["value"]
        ]
    assert write_table(bootstrap, new_topic(), pa.table({"value": pa.array([], pa.binary())})).rows == 0
    topic = new_topic()
    names = pa.table({"value": pa.array(["x", "y", "x"]).dictionary_encode()})
    write_table(bootstrap, topic, names)
    assert read_table(bootstrap, topic, value="string")["value"].to_pylist() == ["x", "y", "x"]


def test_serializers(bootstrap: str, new_topic: Any) -> None:
    topic = new_topic()
    table = pa.table({"id": [1, 2], "order": [{"item": "pear", "count": 3}, None]})
    for serializer in ("json", Json(), lambda order: json.dumps(order).encode()):
        write_table(
            bootstrap, topic, table, key="id", value="order", key_serializer=Int64(), value_serializer=serializer
        )
    kind = table.schema.field("order").type
    read = read_table(bootstrap, topic, key="int64", value=kind, columns=["key", "value"])
    assert read["key"].to_pylist() == [1, 2] * 3
    assert read["value"].to_pylist() == table["order"].to_pylist() * 3


def test_a_topic_that_takes_less_gets_smaller_batches(bootstrap: str, new_topic: Any) -> None:
    topic = new_topic(2, **{"max.message.bytes": "20000"})
    values = [os.urandom(100) for _ in range(3000)]
    with Writer(bootstrap) as writer:
        for _ in range(2):
            assert writer.write(topic, pa.table({"value": values})).rows == 3000
    read = read_table(bootstrap, topic)
    assert Counter(read["value"].to_pylist()) == dict.fromkeys(values, 2)


def test_a_row_that_is_too_large_is_named(bootstrap: str, new_topic: Any) -> None:
    topic = new_topic(**{"max.message.bytes": "20000"})
    values = [os.urandom(30_000 if row == 1234 else 100) for row in range(2000)]
    with pytest.raises(RecordTooLarge, match=rf"row 1234 makes a record of 300\d\d bytes, topic '{topic}' refuses it"):
        write_table(bootstrap, topic, pa.table({"value": values}))
    assert read_table(bootstrap, topic)["value"].to_pylist() == values[: len(read_table(bootstrap, topic))]


def test_a_row_that_the_topic_refuses_is_named(bootstrap: str, new_topic: Any) -> None:
    topic = new_topic(**{"cleanup.policy": "compact"})
    with pytest.raises(WriteFailed, match=r"row 2 is refused: .*ompacted topic cannot accept .* without (a )?key"):
        write_table(bootstrap, topic, pa.table({"key": ["a", "b", None], "value": range(3)}))


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(bootstrap: str, new_topic: Any, acks: Any) -> None:
    topic = new_topic(2)
    written = write_table(bootstrap, topic, pa.table({"value": range(1000)}), acks=acks, idempotent=False)
    assert written.rows == 1000
    assert len(written.offsets) == (0 if acks == 0 else 2)
    assert len(consume(bootstrap, topic, 1000, 2)) == 1000


# -- transactions


def test_a_transaction_counts_as_a_whole(bootstrap: str, new_topic: Any, unique_topic: Any) -> None:
    topics = [new_topic(2), new_topic()]

    def rows() -> list[int]:
        return [len(read_table(bootstrap, topic)) for topic in topics]

    with Transaction(bootstrap, unique_topic("tx")) as transaction:
        for topic in topics:
            write_table(bootstrap, topic, pa.table({"value": range(50)}), transaction=transaction)
        assert rows() == [0, 0]
        transaction.commit()
        assert rows() == [50, 50]
        write_table(bootstrap, topics[0], pa.table({"value": range(50)}), transaction=transaction)
        transaction.abort()
        write_table(bootstrap, topics[0], pa.table({"value": range(7)}), transaction=transaction)
        transaction.commit()
        write_table(bootstrap, topics[1], pa.table({"value": range(50)}), transaction=transaction)
    assert rows() == [57, 50]


def test_another_process_may_end_it(bootstrap: str, new_topic: Any, unique_topic: Any) -> None:
    topic, name = new_topic(), unique_topic("tx")
    writing = Transaction(bootstrap, name)
    write_table(bootstrap, topic, pa.table({"value": range(5)}), transaction=writing)
    identity = writing.identity
    writing.close()
    with Transaction.resume(bootstrap, name, identity.producer_id, identity.producer_epoch) as ending:
        ending.commit()
    assert len(read_table(bootstrap, topic)) == 5


def test_a_newer_owner_fences_the_older(bootstrap: str, new_topic: Any, unique_topic: Any) -> None:
    topic, name = new_topic(), unique_topic("tx")
    table = pa.table({"value": range(5)})
    with pytest.raises(KafkaError) as refused, Transaction(bootstrap, name) as older:
        write_table(bootstrap, topic, table, transaction=older)
        with Transaction(bootstrap, name) as newer:
            write_table(bootstrap, topic, table, transaction=newer)
            newer.commit()
        older.commit()
    assert refused.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert len(read_table(bootstrap, topic)) == 5


def test_after_a_failure_it_can_only_be_aborted(bootstrap: str, new_topic: Any, unique_topic: Any) -> None:
    topic = new_topic(**{"max.message.bytes": "5000"})
    with Transaction(bootstrap, unique_topic("tx")) as transaction:
        with pytest.raises(RecordTooLarge):
            write_table(bootstrap, topic, pa.table({"value": ["x", "y" * 9000]}), transaction=transaction)
        with pytest.raises(KafkaError, match="a write failed, it can only be aborted"):
            transaction.commit()
        transaction.abort()
        write_table(bootstrap, topic, pa.table({"value": ["z"]}), transaction=transaction)
        transaction.commit()
    assert read_table(bootstrap, topic, value="string")["value"].to_pylist() == ["z"]


# -- bad input


@pytest.mark.parametrize(
    ("table", "options", "problem"),
    [
        ({"other": [1]}, {}, "value='value': the table has no such column, only other"),
        ({"value": [1]}, {"key": "id"}, "key='id': the table has no such column, only value"),
        ({"value": [[1]]}, {}, "column 'value' has the type list<.*>; it needs binary, string, int16"),
        ({"value": [1], "headers": ["x"]}, {}, "column 'headers' has the type string; headers need list<struct<key"),
        ({"value": [1], "at": ["x"]}, {"timestamp": "at"}, "column 'at' has the type string; timestamps need"),
        ({"value": [1], "to": ["x"]}, {"partition": "to"}, "column 'to' has the type string; partitions need int32"),
        (
            {"value": [1, 2], "to": [0, 9]},
            {"partition": "to"},
            "column 'to', row 1: there is no partition 9, only 0 to",
        ),
        ({"value": [1, 2]}, {"value_serializer": {1: b""}.__getitem__}, "column 'value', row 1: KeyError: 2"),
        ({"value": [1]}, {"value_serializer": 5}, "value_serializer=5 is neither"),
    ],
)
def test_columns_that_do_not_fit(bootstrap: str, new_topic: Any, table: Any, options: Any, problem: str) -> None:
    with pytest.raises(BadColumn, match=problem):
        write_table(bootstrap, new_topic(2), pa.table(table), **options)


def test_what_else_is_refused(bootstrap: str, unique_topic: Any) -> None:
    table = pa.table({"value": [1]})
    missing = unique_topic("missing")
    with pytest.raises(UnknownTopic, match=f"there is no topic '{missing}'"):
        write_table(bootstrap, missing, table)
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        write_table("127.0.0.1:1", missing, table)
    with pytest.raises(BadSetting, match="compression='brotli' is not one of"):
        write_table(bootstrap, missing, table, compression="brotli")
    with pytest.raises(BadSetting, match="acks=1 needs idempotent=False"):
        write_table(bootstrap, missing, table, acks=1)
