"""Fetch: limits, long polls, fencing, and the ends of a log."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.testing.nodes import RunningNode
from wire import (
    Wire,
    batch,
    create_topic,
    fetch,
    fetch_request,
    headers,
    produce,
    produce_request,
    read_all,
    records,
    values,
)

Names = Callable[[str], str]


@pytest.fixture
def topic(wire: Wire, unique_topic: Names) -> str:
    name = unique_topic("fetch")
    create_topic(wire, name, partitions=3)
    return name


def of_partitions(
    topic: str,
    *offsets: int,
    size: int = 1 << 20,
    max_bytes: int = 2**31 - 1,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
) -> FetchRequest:
    """One request for partitions 0, 1, ... from these offsets."""
    return FetchRequest(
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=size)
                    for index, offset in enumerate(offsets)
                ],
            )
        ],
        max_bytes=max_bytes,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
    )


def delete_records(wire: Wire, topic: str, offset: int) -> None:
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])],
        timeout_ms=5000,
    )
    (result,) = wire.ask(request).topics[0].partitions
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, offset)


# -- limits


def test_whole_batches_from_the_one_that_holds_the_offset(wire: Wire, topic: str) -> None:
    produce(wire, topic, batch("a", "b", "c"))
    produce(wire, topic, batch("d", "e"))
    answer = fetch(wire, topic, 1)
    assert [record.offset for record in records(answer.records)] == [0, 1, 2, 3, 4]
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (5, 5, 0)
    assert values(fetch(wire, topic, 4).records) == [b"d", b"e"]


def test_a_batch_beyond_the_partition_limit_stays_behind(wire: Wire, topic: str) -> None:
    for letter in "abcd":
        produce(wire, topic, batch(letter * 1000))
    one = len(batch("a" * 1000))
    assert len(headers(fetch(wire, topic, partition_max_bytes=3 * one).records)) == 3
    assert len(headers(fetch(wire, topic, partition_max_bytes=3 * one - 1).records)) == 2
    assert len(headers(fetch(wire, topic, max_bytes=2 * one).records)) == 2


def test_the_first_batch_comes_whatever_the_limits(wire: Wire, topic: str) -> None:
    produce(wire, topic, batch("x" * 5000))
    produce(wire, topic, batch("y" * 5000))
    for limits in ({"partition_max_bytes": 1}, {"max_bytes": 1}, {"max_bytes": 0}, {"partition_max_bytes": 0}):
        assert values(fetch(wire, topic, **limits).records) == [b"x" * 5000], limits


def test_only_the_first_partition_with_data_may_break_the_limits(wire: Wire, topic: str) -> None:
    for partition in (1, 2):
        produce(wire, topic, batch("x" * 5000), partition=partition)
    empty, first, second = wire.ask(of_partitions(topic, 0, 0, 0, size=10), 12).responses[0].partitions
    assert not empty.records
    assert values(first.records) == [b"x" * 5000]
    assert not second.records
    # Once a response is full, what comes after in the request waits for the next.
    _, first, second = wire.ask(of_partitions(topic, 0, 0, 0, max_bytes=5100), 12).responses[0].partitions
    assert first.records and not second.records


# -- waiting


def test_enough_is_answered_at_once_and_too_little_at_the_deadline(wire: Wire, topic: str) -> None:
    produce(wire, topic, batch("a"))
    size = len(batch("a"))
    start = time.monotonic()
    assert fetch(wire, topic, max_wait_ms=30_000, min_bytes=size).records
    assert time.monotonic() - start < 15
    start = time.monotonic()
    answer = fetch(wire, topic, max_wait_ms=150, min_bytes=size + 1)
    assert values(answer.records) == [b"a"]
    assert time.monotonic() - start >= 0.14


def test_a_waiting_fetch_is_answered_when_enough_has_arrived(broker: RunningNode, wire: Wire, topic: str) -> None:
    size = len(batch("a"))
    with Wire(broker) as consumer:
        consumer.send(fetch_request(topic, max_wait_ms=60_000, min_bytes=3 * size), 12)
        for letter in "ab":
            produce(wire, topic, batch(letter))
        assert consumer.is_silent(0.1)
        produce(wire, topic, batch("c"))
        (answer,) = consumer.receive().responses[0].partitions
        assert values(answer.records) == [b"a", b"b", b"c"]


def test_data_for_any_partition_answers(broker: RunningNode, wire: Wire, topic: str) -> None:
    with Wire(broker) as consumer:
        consumer.send(of_partitions(topic, 0, 0, 0, max_wait_ms=60_000, min_bytes=1), 12)
        produce(wire, topic, batch("late"), partition=2)
        found = consumer.receive().responses[0].partitions
        assert [values(partition.records) for partition in found] == [[], [], [b"late"]]


@pytest.mark.parametrize("offset", [-1, 1])
def test_a_partition_in_error_answers_at_once(wire: Wire, topic: str, offset: int) -> None:
    good, bad = wire.ask(of_partitions(topic, 0, offset, max_wait_ms=60_000, min_bytes=1), 12).responses[0].partitions
    assert good.error_code == ErrorCode.NONE
    assert bad.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (bad.high_watermark, bad.last_stable_offset, bad.log_start_offset) == (-1, -1, -1)


def test_what_follows_a_waiting_fetch_waits_too(broker: RunningNode, wire: Wire, topic: str) -> None:
    """One connection's requests are done in order: the second is not even begun before the first is answered."""
    with Wire(broker) as consumer:
        consumer.send(fetch_request(topic, max_wait_ms=60_000, min_bytes=1), 12)
        consumer.send(produce_request(topic, batch("second")), 12)
        consumer.send(fetch_request(topic, partition=0), 12)
        assert consumer.is_silent(0.1)
        produce(wire, topic, batch("first"))
        assert values(consumer.receive().responses[0].partitions[0].records) == [b"first"]
        assert consumer.receive().responses[0].partition_responses[0].base_offset == 1
        assert values(consumer.receive().responses[0].partitions[0].records) == [b"first", b"second"]


def test_deleting_the_topic_answers_those_who_wait(broker: RunningNode, wire: Wire, unique_topic: Names) -> None:
    name = unique_topic("going")
    topic_id = create_topic(wire, name)
    with Wire(broker) as by_name, Wire(broker) as by_id:
        by_name.send(fetch_request(name, max_wait_ms=60_000, min_bytes=1), 12)
        by_id.send(fetch_request(topic_id, max_wait_ms=60_000, min_bytes=1), 18)
        assert by_name.is_silent(0.05)
        wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))
        assert by_name.receive().responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert by_id.receive().responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


# -- ends


def test_the_end_of_the_log_is_empty_and_beyond_it_is_out_of_range(wire: Wire, topic: str) -> None:
    produce(wire, topic, batch("a", "b"))
    at_end = fetch(wire, topic, 2)
    assert (at_end.error_code, bytes(at_end.records), at_end.high_watermark) == (ErrorCode.NONE, b"", 2)
    assert fetch(wire, topic, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_below_the_log_start_is_out_of_range(wire: Wire, topic: str) -> None:
    produce(wire, topic, batch("a", "b", "c"))
    produce(wire, topic, batch("d"))
    delete_records(wire, topic, 2)
    assert fetch(wire, topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    answer = fetch(wire, topic, 2)
    assert answer.log_start_offset == 2
    # The batch that holds offset 2 comes whole; consumers skip what is below what they asked for.
    assert [record.value for record in read_all(wire, topic, offset=2)] == [b"c", b"d"]


def test_topics_and_partitions_that_do_not_exist(wire: Wire, topic: str) -> None:
    assert fetch(wire, "no-such-topic").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(wire, topic, partition=99).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(wire, b"\x55" * 16).error_code == ErrorCode.UNKNOWN_TOPIC_ID


# -- leader epochs


def leader_epoch(wire: Wire, topic: str) -> int:
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=topic, partitions=[OffsetForLeaderPartition(leader_epoch=1 << 20)])]
    )
    (answer,) = wire.ask(request).topics[0].partitions
    assert answer.error_code == ErrorCode.NONE
    assert (answer.leader_epoch, answer.end_offset) == (-1, -1)  # nothing is known of an epoch to come
    produced = fetch(wire, topic)
    return headers(produced.records)[0].leader_epoch


def test_readers_are_fenced_by_leader_epoch(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each start of the only broker begins an epoch; here there are three, the middle one without records."""
    from penstock.testing.nodes import start_node

    with start_node(tmp_path_factory.mktemp("epochs")) as node:
        with Wire(node) as wire:
            create_topic(wire, "t")
            produce(wire, "t", batch("a", "b"))
            first = leader_epoch(wire, "t")
        node.restart()
        node.kill()
        node.start()
        with Wire(node) as wire:
            produce(wire, "t", batch("c"))
            current = headers(fetch(wire, "t", 2).records)[0].leader_epoch
            assert current > first

            def error_with(epoch: int) -> ErrorCode:
                return ErrorCode(fetch(wire, "t", current_leader_epoch=epoch).error_code)

            assert error_with(-1) is ErrorCode.NONE
            assert error_with(current) is ErrorCode.NONE
            assert error_with(current - 1) is ErrorCode.FENCED_LEADER_EPOCH
            assert error_with(current + 1) is ErrorCode.UNKNOWN_LEADER_EPOCH

            def end_of(epoch: int, believed: int = -1) -> tuple[ErrorCode, int, int]:
                wanted = OffsetForLeaderPartition(leader_epoch=epoch, current_leader_epoch=believed)
                request = OffsetForLeaderEpochRequest(
                    topics=[OffsetForLeaderTopic(topic="t", partitions=[wanted])], replica_id=-1
                )
                (answer,) = wire.ask(request).topics[0].partitions
                return ErrorCode(answer.error_code), answer.leader_epoch, answer.end_offset

            assert end_of(first) == (ErrorCode.NONE, first, 2)
            assert end_of(current) == (ErrorCode.NONE, current, 3)
            assert end_of(first, current - 1) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
            assert end_of(first, current + 1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)

            def diverging(epoch: int, offset: int) -> tuple[int, int] | None:
                answer = fetch(wire, "t", offset, last_fetched_epoch=epoch, max_wait_ms=60_000, min_bytes=1000)
                assert answer.error_code == ErrorCode.NONE
                if answer.diverging_epoch is None:
                    return None
                assert not answer.records
                return answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset

            assert diverging(first, 3) == (first, 2)  # that epoch ended earlier
            assert fetch(wire, "t", 2, last_fetched_epoch=first).diverging_epoch is None
            assert fetch(wire, "t", 3, last_fetched_epoch=current).diverging_epoch is None
