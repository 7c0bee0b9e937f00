"""Idempotent producers: sequences, duplicates, epochs; across restarts, and across batches that threads rewrite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.testing.nodes import RunningNode, start_node
from wire import (
    Wire,
    batch,
    create_topic,
    end_offset,
    only_partition,
    produce,
    produce_request,
    producer_id,
    read_all,
    refused,
)

Names = Callable[[str], str]
LAST_SEQUENCE = 2**31 - 1


def of(producer: int, sequence: int, *values: str, epoch: int = 0) -> bytearray:
    return batch(*(values or (f"s{sequence}",)), producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


@pytest.fixture
def topic(wire: Wire, unique_topic: Names) -> str:
    name = unique_topic("idempotent")
    create_topic(wire, name)
    return name


def test_ids_are_given_once(broker: RunningNode) -> None:
    with Wire(broker) as one, Wire(broker) as other:
        ids = [producer_id(wire) for _ in range(20) for wire in (one, other)]
    assert len(set(ids)) == len(ids)


def test_a_producer_may_ask_for_a_new_epoch_only_with_both_halves(wire: Wire) -> None:
    for half in (
        InitProducerIdRequest(transactional_id=None, producer_id=5),
        InitProducerIdRequest(transactional_id=None, producer_epoch=5),
    ):
        answer = wire.ask(half)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
    again = wire.ask(InitProducerIdRequest(transactional_id=None, producer_id=5, producer_epoch=5))
    assert again.error_code == ErrorCode.NONE


def test_a_duplicate_of_the_last_five_gets_its_first_offsets(wire: Wire, topic: str) -> None:
    producer = producer_id(wire)
    for sequence in range(0, 14, 2):
        assert produce(wire, topic, of(producer, sequence, "a", "b")).base_offset == sequence
    for sequence in range(4, 14, 2):
        answer = produce(wire, topic, of(producer, sequence, "a", "b"))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, sequence)
    # Older than that it is still known to be old, but not where it went.
    assert refused(wire, topic, of(producer, 2, "a", "b")) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert end_offset(wire, topic) == 14


def test_a_gap_is_refused(wire: Wire, topic: str) -> None:
    producer = producer_id(wire)
    produce(wire, topic, of(producer, 0))
    assert refused(wire, topic, of(producer, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(wire, topic, of(producer, 1)).base_offset == 1


def test_a_producer_nothing_is_known_of_may_start_anywhere(wire: Wire, topic: str) -> None:
    producer = producer_id(wire)
    assert produce(wire, topic, of(producer, 1234)).base_offset == 0
    assert produce(wire, topic, of(producer, 1235)).base_offset == 1


def test_a_new_epoch_starts_at_zero_and_fences_the_old(wire: Wire, topic: str) -> None:
    producer = producer_id(wire)
    produce(wire, topic, of(producer, 0))
    assert refused(wire, topic, of(producer, 1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(wire, topic, of(producer, 0, epoch=1)).base_offset == 1
    assert refused(wire, topic, of(producer, 1, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert produce(wire, topic, of(producer, 1, epoch=1)).base_offset == 2


def test_sequences_wrap_to_zero(wire: Wire, topic: str) -> None:
    producer = producer_id(wire)
    assert produce(wire, topic, of(producer, LAST_SEQUENCE - 1, "a", "b", "c")).base_offset == 0
    assert produce(wire, topic, of(producer, 1)).base_offset == 3
    again = produce(wire, topic, of(producer, LAST_SEQUENCE - 1, "a", "b", "c"))
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    assert refused(wire, topic, of(producer, 3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_partitions_count_on_their_own(wire: Wire, unique_topic: Names) -> None:
    name = unique_topic("partitioned")
    create_topic(wire, name, partitions=2)
    producer = producer_id(wire)
    for partition in (0, 1):
        assert produce(wire, name, of(producer, 0), partition=partition).base_offset == 0


def test_the_state_goes_with_the_topic(wire: Wire, topic: str) -> None:
    producer = producer_id(wire)
    produce(wire, topic, of(producer, 0))
    wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)]))
    create_topic(wire, topic)
    assert produce(wire, topic, of(producer, 0)).base_offset == 0
    assert end_offset(wire, topic) == 1


@pytest.mark.parametrize("configs", [{}, {"flush.messages": "1"}, {"compression.type": "gzip"}])
def test_a_pipeline_keeps_its_order_and_its_duplicates(
    broker: RunningNode, wire: Wire, unique_topic: Names, configs: dict[str, str]
) -> None:
    """Five requests in flight, each sent twice, as a producer does whose connection broke."""
    name = unique_topic("pipeline")
    create_topic(wire, name, configs=configs)
    producer = producer_id(wire)
    with Wire(broker) as pipeline:
        for first in range(0, 50, 5):
            group = [of(producer, sequence) for sequence in range(first, first + 5)]
            pipeline.socket.sendall(
                b"".join(pipeline.encode(produce_request(name, data, acks=-1), 12) for data in group + group)
            )
            answers = [only_partition(pipeline.receive()) for _ in range(10)]
            assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 10
            assert [answer.base_offset for answer in answers] == 2 * list(range(first, first + 5))
    assert [record.value for record in read_all(wire, name)] == [f"s{sequence}".encode() for sequence in range(50)]


def test_what_is_known_of_a_producer_is_told(wire: Wire, topic: str) -> None:
    producer = producer_id(wire)
    produce(wire, topic, of(producer, 0, "a", "b", epoch=3))
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    (state,) = wire.ask(request).topics[0].partitions[0].active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (producer, 3, 1)
    assert state.current_txn_start_offset == -1


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_duplicates_are_known_after_a_restart(tmp_path: Path, how: str) -> None:
    with start_node(tmp_path) as node:
        with Wire(node) as wire:
            create_topic(wire, "t", configs={"segment.bytes": "1048576"})
            producer = producer_id(wire)
            for sequence in range(8):
                produce(wire, "t", of(producer, sequence))
        if how == "kill":
            node.kill()
            node.start()
        else:
            node.restart()
        with Wire(node) as wire:
            answers: list[Any] = [produce(wire, "t", of(producer, sequence)) for sequence in range(3, 9)]
            known = [(answer.error_code, answer.base_offset) for answer in answers]
            if how == "kill":  # recovery reads the batches themselves, and knows the last five again
                assert known[:5] == [(ErrorCode.NONE, sequence) for sequence in range(3, 8)]
            else:  # a snapshot holds the last batch of each producer
                assert known[4] == (ErrorCode.NONE, 7)
            assert known[5] == (ErrorCode.NONE, 8)
            assert end_offset(wire, "t") == 9
            assert producer_id(wire) > producer
