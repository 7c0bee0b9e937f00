"""Produce: acknowledgements, what a topic's settings do to a batch, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.records.builder import build_batch
from penstock.records.compression import Codec
from penstock.testing.nodes import RunningNode
from waiting import wait_until
from wire import (
    TOPIC_RESOURCE,
    Wire,
    alter_configs,
    batch,
    changed,
    create_topic,
    end_offset,
    fetch,
    headers,
    now_ms,
    only_partition,
    produce,
    produce_request,
    read_all,
    records,
    refused,
    values,
)

Names = Callable[[str], str]
HOUR_MS = 3_600_000


@pytest.fixture
def new_topic(wire: Wire, unique_topic: Names) -> Callable[..., str]:
    def create(**configs: str) -> str:
        name = unique_topic("produce")
        create_topic(wire, name, configs={key.replace("_", "."): value for key, value in configs.items()})
        return name

    return create


# -- acknowledgements


@pytest.mark.parametrize("flush", ["1", "2", str(2**63 - 1)])
def test_every_kind_of_acknowledgement(wire: Wire, new_topic: Callable[..., str], flush: str) -> None:
    topic = new_topic(flush_messages=flush)
    assert produce(wire, topic, batch("a", "b"), acks=-1).base_offset == 0
    assert produce(wire, topic, batch("c"), acks=1).base_offset == 2
    wire.send(produce_request(topic, batch("d"), acks=0), 12, answered=False)
    # Nothing comes for the third; the next answer is the next question's.
    assert produce(wire, topic, batch("e"), acks=1).base_offset == 4
    assert [record.value for record in read_all(wire, topic)] == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize("bad", [batch("x" * 2000), changed(batch("x"), magic=1), b"short"])
def test_an_unacknowledged_write_that_fails_closes_the_connection(
    broker: RunningNode, wire: Wire, new_topic: Callable[..., str], bad: bytes
) -> None:
    topic = new_topic(max_message_bytes="1000")
    with Wire(broker) as producer:
        # What was sent after it must not get in either: its producer thinks the connection was lost before it.
        producer.socket.sendall(
            producer.encode(produce_request(topic, batch("before"), acks=0), 12, answered=False)
            + producer.encode(produce_request(topic, bytearray(bad), acks=0), 12, answered=False)
            + producer.encode(produce_request(topic, batch("after"), acks=0), 12, answered=False)
        )
        assert producer.is_closed()
    assert [record.value for record in read_all(wire, topic)] == [b"before"]


def test_an_unacknowledged_write_to_nowhere_closes_the_connection(broker: RunningNode) -> None:
    with Wire(broker) as producer:
        producer.send(produce_request("no-such-topic", batch("a"), acks=0), 12, answered=False)
        assert producer.is_closed()


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_other_acks_are_refused(wire: Wire, new_topic: Callable[..., str], acks: int) -> None:
    assert refused(wire, new_topic(), batch("a"), acks=acks) is ErrorCode.INVALID_REQUIRED_ACKS


def test_each_partition_of_a_request_stands_alone(wire: Wire, unique_topic: Names) -> None:
    name = unique_topic("several")
    create_topic(wire, name, partitions=2)
    broken = batch("x")
    broken[-1] ^= 1
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[
                    PartitionProduceData(index=0, records=batch("a")),
                    PartitionProduceData(index=1, records=broken),
                    PartitionProduceData(index=7, records=batch("c")),
                ],
            ),
            TopicProduceData(name="absent", partition_data=[PartitionProduceData(index=0, records=batch("d"))]),
        ],
    )
    first, second = wire.ask(request, 12).responses
    assert [(answer.index, answer.error_code, answer.base_offset) for answer in first.partition_responses] == [
        (0, ErrorCode.NONE, 0),
        (1, ErrorCode.CORRUPT_MESSAGE, -1),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert second.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_by_id_from_version_13_on(wire: Wire, unique_topic: Names) -> None:
    name = unique_topic("by-id")
    topic_id = create_topic(wire, name)
    assert only_partition(wire.ask(produce_request("", batch("a"), topic_id=topic_id), 13)).base_offset == 0
    answer = only_partition(wire.ask(produce_request("", batch("b"), topic_id=b"\x99" * 16), 13))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert end_offset(wire, name) == 1


# -- order


def test_answers_come_in_the_order_of_the_requests(broker: RunningNode, wire: Wire, unique_topic: Names) -> None:
    """Requests that wait for a flush, for a thread and for nothing, mixed in one pipeline."""
    names = {
        "plain": unique_topic("plain"),
        "flushed": unique_topic("flushed"),
        "rewritten": unique_topic("rewritten"),
    }
    create_topic(wire, names["plain"])
    create_topic(wire, names["flushed"], configs={"flush.messages": "1"})
    create_topic(wire, names["rewritten"], configs={"compression.type": "zstd"})
    kinds = ["flushed", "plain", "rewritten", "plain", "flushed", "flushed", "rewritten", "rewritten", "plain"] * 10
    with Wire(broker) as producer:
        pipeline = b"".join(
            producer.encode(produce_request(names[kind], batch(f"{kind}-{number}"), acks=-1), 12)
            for number, kind in enumerate(kinds)
        )
        producer.socket.sendall(pipeline)
        seen = dict.fromkeys(names, 0)
        for kind in kinds:
            response = producer.receive()
            assert response.responses[0].name == names[kind]
            answer = only_partition(response)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, seen[kind])
            seen[kind] += 1
    for kind, name in names.items():
        expected = [f"{kind}-{number}".encode() for number, each in enumerate(kinds) if each == kind]
        assert [record.value for record in read_all(wire, name)] == expected


def test_parked_requests_beyond_the_limit_of_a_connection_wait_in_the_socket(
    broker: RunningNode, wire: Wire, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(flush_messages="1")
    count = 1500  # queued.max.requests is 500
    with Wire(broker, timeout=60) as producer:
        data = batch("x")
        producer.socket.sendall(
            b"".join(producer.encode(produce_request(topic, data, acks=-1), 12) for _ in range(count))
        )
        assert [only_partition(producer.receive()).base_offset for _ in range(count)] == list(range(count))


# -- what settings do


@pytest.mark.parametrize("version", range(3, 14))
def test_append_time_replaces_the_producers(wire: Wire, unique_topic: Names, version: int) -> None:
    name = unique_topic("stamped")
    topic_id = create_topic(wire, name, configs={"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    data = build_batch([(5, None, b"old", ()), (before + 10**12, None, b"future", ())])
    answer = only_partition(wire.ask(produce_request(name, data, topic_id=topic_id), version))
    assert answer.error_code == ErrorCode.NONE
    stamp = answer.log_append_time_ms
    assert before <= stamp <= now_ms()
    (header,) = headers(fetch(wire, name).records)
    assert header.is_log_append_time
    assert header.max_timestamp == stamp
    assert [record.timestamp for record in read_all(wire, name)] == [stamp, stamp]


def test_create_time_is_kept(wire: Wire, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    stamps = [now_ms() - 5000, now_ms() - 9000]
    answer = produce(wire, topic, build_batch([(stamp, None, b"x", ()) for stamp in stamps]))
    assert answer.log_append_time_ms == -1
    assert [record.timestamp for record in read_all(wire, topic)] == stamps


CODECS = {"uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


@pytest.mark.parametrize("stored", CODECS)
def test_a_topic_has_its_own_codec(wire: Wire, new_topic: Callable[..., str], stored: str) -> None:
    topic = new_topic(compression_type=stored)
    for sent in Codec:
        content = [(now_ms(), b"k", f"{sent.name} {number}".encode() * 50, (("h", b"v"),)) for number in range(3)]
        answer = produce(wire, topic, build_batch(content, codec=sent))
        assert answer.error_code == ErrorCode.NONE
        (header,) = headers(fetch(wire, topic, answer.base_offset).records)
        assert Codec(header.codec) is CODECS[stored]
        assert header.base_offset == answer.base_offset
        found = records(fetch(wire, topic, answer.base_offset).records)
        assert [(r.timestamp, r.key, r.value, r.headers) for r in found] == content


@pytest.mark.parametrize("codec", Codec)
def test_by_default_a_batch_is_stored_as_it_came(wire: Wire, new_topic: Callable[..., str], codec: Codec) -> None:
    topic = new_topic()
    data = batch("payload" * 100, codec=codec)
    produce(wire, topic, data)
    stored = bytes(fetch(wire, topic).records)
    assert stored[16:] == bytes(data[16:])  # all but the offset and the leader epoch


def test_zstd_needs_version_7(wire: Wire, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    data = batch("x", codec=Codec.ZSTD)
    assert refused(wire, topic, data, version=6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(wire, topic, batch("x", codec=Codec.ZSTD), version=7).base_offset == 0


def test_a_batch_may_be_as_large_as_max_message_bytes(wire: Wire, new_topic: Callable[..., str]) -> None:
    data = batch("x" * 500)
    topic = new_topic(max_message_bytes=str(len(data)))
    assert produce(wire, topic, data).base_offset == 0
    assert refused(wire, topic, batch("x" * 501)) is ErrorCode.MESSAGE_TOO_LARGE
    assert alter_configs(wire, TOPIC_RESOURCE, topic, {"max.message.bytes": "10000"}) is ErrorCode.NONE
    assert produce(wire, topic, batch("x" * 501)).base_offset == 1
    assert alter_configs(wire, TOPIC_RESOURCE, topic, {"max.message.bytes": "10"}) is ErrorCode.NONE
    assert refused(wire, topic, batch("x")) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_that_grows_past_the_limit_when_rewritten_is_refused(wire: Wire, new_topic: Callable[..., str]) -> None:
    topic = new_topic(compression_type="uncompressed", max_message_bytes="1000")
    data = batch("x" * 5000, codec=Codec.GZIP)
    assert len(data) < 1000
    assert refused(wire, topic, data) is ErrorCode.MESSAGE_TOO_LARGE
    assert end_offset(wire, topic) == 0


def test_timestamps_have_bounds(wire: Wire, new_topic: Callable[..., str]) -> None:
    usual = new_topic()
    assert refused(wire, usual, batch("x", timestamp=now_ms() + 2 * HOUR_MS)) is ErrorCode.INVALID_TIMESTAMP
    assert produce(wire, usual, batch("x", timestamp=now_ms() + HOUR_MS // 2)).error_code == ErrorCode.NONE
    assert produce(wire, usual, batch("x", timestamp=1)).error_code == ErrorCode.NONE
    assert produce(wire, usual, batch("x", timestamp=-1)).error_code == ErrorCode.NONE
    strict = new_topic(message_timestamp_before_max_ms=str(HOUR_MS), message_timestamp_after_max_ms=str(2 * HOUR_MS))
    assert refused(wire, strict, batch("x", timestamp=now_ms() - 2 * HOUR_MS)) is ErrorCode.INVALID_TIMESTAMP
    assert produce(wire, strict, batch("x", timestamp=now_ms() - HOUR_MS // 2)).error_code == ErrorCode.NONE
    assert produce(wire, strict, batch("x", timestamp=now_ms() + HOUR_MS)).error_code == ErrorCode.NONE


def test_a_setting_changes_what_the_next_request_gets(wire: Wire, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    produce(wire, topic, batch("a"))
    assert alter_configs(wire, TOPIC_RESOURCE, topic, {"compression.type": "gzip"}) is ErrorCode.NONE
    produce(wire, topic, batch("b"))
    assert (
        alter_configs(
            wire, TOPIC_RESOURCE, topic, {"compression.type": None, "message.timestamp.type": "LogAppendTime"}
        )
        is ErrorCode.NONE
    )
    produce(wire, topic, batch("c"))
    found = headers(fetch(wire, topic).records)
    assert [(header.codec, header.is_log_append_time) for header in found] == [(0, False), (1, False), (0, True)]


def test_flushing_may_be_turned_on_and_off_under_load(
    broker: RunningNode, wire: Wire, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    with Wire(broker) as producer:
        sent = 0
        for flush in ("1", None, "1", "5", None):
            for _ in range(20):
                producer.send(produce_request(topic, batch(str(sent)), acks=-1), 12)
                sent += 1
            assert alter_configs(wire, TOPIC_RESOURCE, topic, {"flush.messages": flush}) is ErrorCode.NONE
        assert [only_partition(producer.receive()).base_offset for _ in range(sent)] == list(range(sent))
    assert values(fetch(wire, topic).records) == [str(number).encode() for number in range(sent)]


def test_flush_ms_makes_the_log_durable_without_a_request(
    broker: RunningNode, wire: Wire, new_topic: Callable[..., str]
) -> None:
    """Seen from outside: a flush writes the leader epochs down."""
    topic = new_topic(flush_ms="1")
    produce(wire, topic, batch("a"))
    path = Path(broker.partition_directory(topic), "leader-epoch-checkpoint")
    wait_until(lambda: path.exists() and path.read_text().split()[1:] == ["1", "0", "0"], "the log is flushed")
