"""Topics as tables: what confluent-kafka wrote, read back in columns."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from penstock.arrow import TYPES, DataLost, TopicPartition, read_table, scan, write_table
from penstock.client.wire.admin import Admin
from penstock.serializers import Float64, Int64, Json, String
from penstock.testing.nodes import start_node
from waiting import wait_until

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def produce(bootstrap: str, topic: str, records: list[dict[str, Any]], **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, **settings})
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(60) == 0


def values(table: Any, column: str = "value") -> list[Any]:
    found: list[Any] = table[column].to_pylist()
    return found


def test_every_column(bootstrap: str, new_topic: Any) -> None:
    topic = new_topic(2)
    records: list[dict[str, Any]] = [
        {"key": b"a", "value": b"1", "partition": 0, "timestamp": 1_000},
        {"key": None, "value": None, "partition": 0, "timestamp": 2_500, "headers": [("h", b"x"), ("h", None)]},
        {"key": b"", "value": b"", "partition": 1, "timestamp": 3_000},
    ]
    produce(bootstrap, topic, records)
    table = read_table(bootstrap, topic, columns=TYPES)
    assert table.schema == pa.schema(list(TYPES.items()))
    first = {"topic": topic, "partition": 0, "timestampType": 0}
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert table.to_pylist() == [
        {**first, "key": b"a", "value": b"1", "offset": 0, "timestamp": epoch + timedelta(seconds=1), "headers": []},
        {
            **first,
            "key": None,
            "value": None,
            "offset": 1,
            "timestamp": epoch + timedelta(seconds=2.5),
            "headers": [{"key": "h", "value": b"x"}, {"key": "h", "value": None}],
        },
        {
            **first,
            "partition": 1,
            "key": b"",
            "value": b"",
            "offset": 0,
            "timestamp": epoch + timedelta(seconds=3),
            "headers": [],
        },
    ]
    assert read_table(bootstrap, topic).column_names == [name for name in TYPES if name != "headers"]
    assert read_table(bootstrap, topic, columns=["offset"]).to_pydict() == {"offset": [0, 1, 0]}


def test_append_time(bootstrap: str, new_topic: Any) -> None:
    topic = new_topic(**{"message.timestamp.type": "LogAppendTime"})
    produce(bootstrap, topic, [{"value": b"v", "timestamp": 1}])
    (row,) = read_table(bootstrap, topic).to_pylist()
    assert row["timestampType"] == 1
    assert datetime.now(UTC) - row["timestamp"] < timedelta(hours=1)


@pytest.mark.parametrize("codec", CODECS)
def test_codecs(bootstrap: str, new_topic: Any, codec: str) -> None:
    topic = new_topic()
    expected = [b"value %d " % number * 5 for number in range(2000)]
    produce(bootstrap, topic, [{"value": value} for value in expected], **{"compression.type": codec})
    assert values(read_table(bootstrap, topic, batch_bytes=20_000)) == expected


def test_several_topics_are_ordered_by_partition(bootstrap: str, new_topic: Any) -> None:
    topics = sorted([new_topic(3), new_topic(2)])
    for topic in topics:
        write_table(bootstrap, topic, pa.table({"value": [f"{topic} {row}" for row in range(500)]}))
    table = read_table(bootstrap, topics, value="string", batch_bytes=2_000)
    places = list(zip(values(table, "topic"), values(table, "partition"), values(table, "offset"), strict=True))
    assert places == sorted(places)
    assert sorted(values(table)) == sorted(f"{topic} {row}" for topic in topics for row in range(500))


# -- bounds


def test_bounds_by_offset(bootstrap: str, new_topic: Any) -> None:
    topic = new_topic(2)
    rows = pa.table({"value": [f"{row % 2}:{row // 2}" for row in range(20)], "to": [row % 2 for row in range(20)]})
    write_table(bootstrap, topic, rows, partition="to")

    def read(**bounds: Any) -> list[str]:
        return values(read_table(bootstrap, topic, value="string", **bounds))

    assert read(start=8) == ["0:8", "0:9", "1:8", "1:9"]
    assert read(end=1) == ["0:0", "1:0"]
    assert read(start={0: 9, 1: "latest"}) == ["0:9"]
    assert read(start=3, end={0: 4, TopicPartition(topic, 1): "earliest"}) == ["0:3"]
    assert read(partitions=[1], start=9) == ["1:9"]
    assert read(start="latest") == []
    with scan(bootstrap, topic, start=9) as scanned:
        assert scanned.positions() == {TopicPartition(topic, 0): 9, TopicPartition(topic, 1): 9}
        assert sum(len(batch) for batch in scanned) == 2
        assert scanned.positions() == {TopicPartition(topic, 0): 10, TopicPartition(topic, 1): 10}


def test_bounds_by_time(bootstrap: str, new_topic: Any) -> None:
    topic = new_topic()
    begin = datetime(2024, 5, 1, tzinfo=UTC)
    times = [begin + timedelta(minutes=minute) for minute in range(10)]
    write_table(bootstrap, topic, pa.table({"value": range(10), "at": times}), timestamp="at")

    def read(**bounds: Any) -> list[int]:
        return values(read_table(bootstrap, topic, value="int64", **bounds))

    assert read(start=times[3], end=times[5]) == [3, 4]
    assert read(start=times[3] + timedelta(microseconds=1), end=4 + 1) == [4]
    assert read(start=times[9] + timedelta(seconds=1)) == []
    assert read(end=times[0]) == []
    assert read(start=times[8], end=times[2]) == []


# -- decoding


def test_decoded_columns(bootstrap: str, new_topic: Any) -> None:
    topic = new_topic()
    table = pa.table({"key": pa.array([1, None, 3], pa.int32()), "value": [1.5, None, -2.0]})
    write_table(bootstrap, topic, table)
    read = read_table(bootstrap, topic, key="int32", value=Float64(), columns=["key", "value"])
    assert read.schema == pa.schema([("key", pa.int32()), ("value", pa.float64())])
    assert read.to_pydict() == table.to_pydict()
    assert values(read_table(bootstrap, topic, value=lambda data: len(data))) == [8, None, 8]


def test_json(bootstrap: str, new_topic: Any) -> None:
    topic = new_topic()
    produce(
        bootstrap,
        topic,
        [
            {"value": b'{"id": 1, "name": "a", "more": [1]}'},
            {"value": None},
            {"value": b'{\n  "id": 2\n}'},
        ],
    )
    wanted = pa.struct([("id", pa.int64()), ("name", pa.string())])
    expected = [{"id": 1, "name": "a"}, None, {"id": 2, "name": None}]
    assert values(read_table(bootstrap, topic, value=wanted)) == expected
    assert values(read_table(bootstrap, topic, value=(Json(), wanted))) == expected
    assert values(read_table(bootstrap, topic, value=Json()))[2]["id"] == 2


def test_a_deserializers_type_is_settled_by_its_first_value(bootstrap: str, new_topic: Any) -> None:
    topic = new_topic()
    for value in [None, b"1", b"x"]:
        produce(bootstrap, topic, [{"value": value}])

    def read(data: bytes) -> int | str:
        return int(data) if data.isdigit() else data.decode()

    first = read_table(bootstrap, topic, end=2, columns=["value"], value=read, batch_bytes=1)
    assert first.schema.types == [pa.int64()]
    with pytest.raises(ValueError, match=rf"value of {topic}-0 at offset 2: the deserializer gives string"):
        read_table(bootstrap, topic, value=read, batch_bytes=1)


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ("int64", "3 bytes, int64 needs 8"),
        (Int64(), "3 bytes, int64 needs 8"),
        (String(), r"not UTF-8: invalid start byte in b'\\xff"),
        (pa.struct([("a", pa.int64())]), "not JSON"),
        (lambda data: data.decode(), "UnicodeDecodeError"),
    ],
)
def test_what_cannot_be_decoded_is_named(bootstrap: str, new_topic: Any, wanted: Any, problem: str) -> None:
    topic = new_topic()
    produce(bootstrap, topic, [{"value": None}, {"value": b"\xff{}"}])
    with pytest.raises(ValueError, match=rf"value of {topic}-0 at offset 1: .*{problem}"):
        read_table(bootstrap, topic, value=wanted)


# -- transactions


def test_aborted_transactions_are_left_out(bootstrap: str, new_topic: Any, unique_topic: Any) -> None:
    topic = new_topic(2)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique_topic("tx"), "linger.ms": 0})
    plain = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.init_transactions(60)
    expected = []
    for number, ending in enumerate(["abort", "commit", "abort", "abort", "commit"]):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, f"{ending} {number}", partition=partition)
            assert producer.flush(60) == 0
            plain.produce(topic, f"plain {number}", partition=partition)
            assert plain.flush(60) == 0
        getattr(producer, f"{ending}_transaction")(60)
        expected += [f"{ending} {number}"] * (ending == "commit") + [f"plain {number}"]
    everything = values(read_table(bootstrap, topic, value="string", isolation="read_uncommitted"))
    for batch_bytes in (1, 1_000_000):
        table = read_table(bootstrap, topic, value="string", batch_bytes=batch_bytes)
        assert values(table) == expected * 2
    assert len(everything) == 20

    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    assert producer.flush(60) == 0
    assert values(read_table(bootstrap, topic, value="string")) == expected * 2
    assert "open" in values(read_table(bootstrap, topic, value="string", isolation="read_uncommitted"))
    producer.abort_transaction(60)


# -- lost, compacted, following


def test_lost_records_are_said(bootstrap: str, new_topic: Any, admin: Admin) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    write_table(bootstrap, topic, pa.table({"value": range(10)}))
    failing, skipping = scan(bootstrap, topic), scan(bootstrap, topic, on_data_loss="skip", value="int64")
    admin.topics.delete_records({partition: 4})
    with pytest.raises(DataLost, match=rf"{topic}-0: offsets 0 to 3 are not in the log any more, it begins at 4"):
        list(failing)
    assert [row for batch in skipping for row in values(batch)] == list(range(4, 10))
    with pytest.raises(DataLost, match="offsets 2 to 3"):
        read_table(bootstrap, topic, start=2)
    assert len(read_table(bootstrap, topic, start=2, on_data_loss="skip")) == 6
    assert values(read_table(bootstrap, topic, value="int64")) == list(range(4, 10))


def test_compacted_topics_have_gaps(tmp_path: Path) -> None:
    with (
        start_node(tmp_path / "node", properties={"log.cleaner.backoff.ms": "100"}) as node,
        Admin(node.bootstrap) as admin,
    ):
        configs = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
        admin.topics.create("latest", partitions=1, configs=configs)
        keys = list(range(100))
        for number, codec in enumerate(CODECS * 2):
            last = [b"%d " % number + os.urandom(5000) for _ in keys]
            write_table(node.bootstrap, "latest", pa.table({"key": keys, "value": last}), compression=codec)
        wait_until(lambda: len(read_table(node.bootstrap, "latest", key="int64")) < 500, "the topic is compacted")
        table = read_table(node.bootstrap, "latest", key="int64")
        offsets = values(table, "offset")
        assert offsets == sorted(set(offsets))
        assert offsets[-1] == 999
        assert dict(zip(values(table, "key"), values(table), strict=True)) == dict(zip(keys, last, strict=True))
        middle = offsets[len(offsets) // 2]
        for start, end in ((middle, 1000), (middle - 1, 1000), (middle + 1, 1000), (0, middle)):
            part = values(read_table(node.bootstrap, "latest", start=start, end=end), "offset")
            assert part == sorted(part)
            # Meanwhile more may have been cleaned away, but never the last of a key.
            assert {each for each in offsets if max(start, 900) <= each < end} <= set(part)
            assert set(part) <= {each for each in offsets if start <= each < end}


def test_following_sees_what_comes(bootstrap: str, new_topic: Any, admin: Admin) -> None:
    topic = new_topic()
    write_table(bootstrap, topic, pa.table({"value": ["before"]}))

    def write() -> None:
        write_table(bootstrap, topic, pa.table({"value": ["after"] * 3}))

    with scan(bootstrap, topic, follow=True, value="string", columns=["value"]) as scanned:
        assert values(next(scanned)) == ["before"]
        writer = threading.Thread(target=write)
        writer.start()
        seen: list[str] = []
        while len(seen) < 3:
            seen += values(next(scanned))
        writer.join()
    assert seen == ["after"] * 3


def test_batches_are_as_large_as_asked_for(bootstrap: str, new_topic: Any) -> None:
    topic = new_topic()
    table = pa.table({"value": range(1000)})
    write_table(bootstrap, topic, table)
    batches = list(scan(bootstrap, topic, batch_rows=300, value="int64"))
    assert [len(batch) for batch in batches] == [300, 300, 300, 100]
    assert values(scan(bootstrap, topic, value="int64").reader().read_all()) == values(table)
    assert list(scan(bootstrap, topic, start="latest")) == []
    assert read_table(bootstrap, topic, start="latest").schema == read_table(bootstrap, topic).schema
