"""The errors that zombies, impostors and producers that skip a step get, and what stays out of the log because of them.

All of it holds for Apache Kafka, too: give PENSTOCK_TEST_BOOTSTRAP to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.protocol.declaration import Message
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from scenarios.coordinator_calls import (
    Producer,
    committed,
    consumer_join,
    find_coordinators,
    new_producer,
    new_topic,
    patiently,
)
from wire import Wire, batch, end_offset, metadata_of, only_partition, produce_request

NONE = ErrorCode.NONE
GROUP_ID_NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
INVALID_GROUP_ID = ErrorCode.INVALID_GROUP_ID
INVALID_PRODUCER_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
INVALID_PRODUCER_ID_MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
INVALID_RECORD = ErrorCode.INVALID_RECORD
INVALID_REQUEST = ErrorCode.INVALID_REQUEST
INVALID_TOPIC_EXCEPTION = ErrorCode.INVALID_TOPIC_EXCEPTION
INVALID_TRANSACTION_TIMEOUT = ErrorCode.INVALID_TRANSACTION_TIMEOUT
INVALID_TXN_STATE = ErrorCode.INVALID_TXN_STATE
OFFSET_METADATA_TOO_LARGE = ErrorCode.OFFSET_METADATA_TOO_LARGE
OPERATION_NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED
OUT_OF_ORDER_SEQUENCE_NUMBER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
PRODUCER_FENCED = ErrorCode.PRODUCER_FENCED
STALE_MEMBER_EPOCH = ErrorCode.STALE_MEMBER_EPOCH
TOPIC_AUTHORIZATION_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TRANSACTION_ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
TRANSACTION_COORDINATOR_FENCED = ErrorCode.TRANSACTION_COORDINATOR_FENCED
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TRANSACTIONAL_ID_NOT_FOUND = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
UNKNOWN_MEMBER_ID = ErrorCode.UNKNOWN_MEMBER_ID
UNKNOWN_SERVER_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR
UNKNOWN_TOPIC_ID = ErrorCode.UNKNOWN_TOPIC_ID
UNKNOWN_TOPIC_OR_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UNSTABLE_OFFSET_COMMIT = ErrorCode.UNSTABLE_OFFSET_COMMIT

Name = Callable[[str], str]

# Producers before and since transaction version 2: who adds partitions to a transaction, the producer or the broker.
BEFORE_TV2, SINCE_TV2 = 11, 12


@pytest.fixture
def wire(bootstrap: str) -> Iterator[Wire]:
    host, _, port = bootstrap.rpartition(":")
    with Wire((host, int(port))) as connection:
        find_coordinators(connection)
        yield connection


@pytest.fixture
def topic(wire: Wire, unique_topic: Name) -> str:
    return new_topic(wire, unique_topic("topic"))


@pytest.fixture
def group(unique_topic: Name) -> str:
    return unique_topic("group")


@pytest.fixture
def producer(wire: Wire, unique_topic: Name) -> Producer:
    return new_producer(wire, unique_topic("id"))


def error(wire: Wire, message: Message, version: int | None = None) -> ErrorCode:
    return ErrorCode(wire.ask(message, version).error_code)


def produced(wire: Wire, message: Message, version: int) -> ErrorCode:
    return ErrorCode(only_partition(wire.ask(message, version)).error_code)


class TestBeginning:
    @pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001, 2**31 - 1])
    def test_absurd_time_outs(self, wire: Wire, unique_topic: Name, timeout_ms: int) -> None:
        request = InitProducerIdRequest(transactional_id=unique_topic("id"), transaction_timeout_ms=timeout_ms)
        assert [error(wire, request, version) for version in (0, 5)] == [INVALID_TRANSACTION_TIMEOUT] * 2

    def test_the_empty_id(self, wire: Wire) -> None:
        assert (
            error(wire, InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), 5) == INVALID_REQUEST
        )

    @pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
    def test_half_an_identity(self, wire: Wire, unique_topic: Name, producer_id: int, epoch: int) -> None:
        for transactional_id in (None, unique_topic("id")):
            request = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=1000,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
            assert error(wire, request, 5) == INVALID_REQUEST

    def test_somebody_elses_identity(self, wire: Wire, producer: Producer) -> None:
        def initialize(producer_id: int, epoch: int, version: int = 5) -> ErrorCode:
            request = InitProducerIdRequest(
                transactional_id=producer.transactional_id,
                transaction_timeout_ms=1000,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
            return error(wire, request, version)

        assert initialize(producer.id + 1000, producer.epoch) == PRODUCER_FENCED
        assert initialize(producer.id + 1000, producer.epoch, version=3) == INVALID_PRODUCER_EPOCH
        assert initialize(producer.id, producer.epoch + 7) == PRODUCER_FENCED
        assert initialize(producer.id, producer.epoch) == NONE

    def test_descriptions(self, wire: Wire, producer: Producer) -> None:
        known, missing = producer.transactional_id, producer.transactional_id + "-missing"
        answer = wire.ask(DescribeTransactionsRequest(transactional_ids=["", missing, known]))
        assert {each.transactional_id: each.error_code for each in answer.transaction_states} == {
            "": INVALID_REQUEST,
            missing: TRANSACTIONAL_ID_NOT_FOUND,
            known: NONE,
        }
        listed = wire.ask(ListTransactionsRequest(state_filters=["Nonsense"]))
        assert (listed.unknown_state_filters, listed.transaction_states) == (["Nonsense"], [])


class TestAddingPartitions:
    def test_those_that_may_not_be_written(self, wire: Wire, producer: Producer, topic: str) -> None:
        """One of them is enough for none to be added."""
        missing = topic + "-missing"
        assert producer.add_partitions(wire, (topic, 0), (missing, 0), (topic, 9)) == {
            (topic, 0): OPERATION_NOT_ATTEMPTED,
            (missing, 0): UNKNOWN_TOPIC_OR_PARTITION,
            (topic, 9): UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert producer.add_partitions(wire, (topic, 0), ("__consumer_offsets", 0)) == {
            (topic, 0): OPERATION_NOT_ATTEMPTED,
            ("__consumer_offsets", 0): TOPIC_AUTHORIZATION_FAILED,
        }
        (described,) = wire.ask(
            DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
        ).transaction_states
        assert (described.transaction_state, described.topics) == ("Empty", [])

    def test_by_somebody_else(self, wire: Wire, producer: Producer, topic: str) -> None:
        def refusal(who: Producer, version: int = 3) -> ErrorCode:
            return who.add_partitions(wire, (topic, 0), version=version)[topic, 0]

        assert refusal(producer.other(epoch=1)) == PRODUCER_FENCED
        assert refusal(producer.other(epoch=1), version=1) == INVALID_PRODUCER_EPOCH
        assert refusal(producer.other(producer_id=producer.id + 1)) == INVALID_PRODUCER_ID_MAPPING
        assert refusal(producer.other(transactional_id="nobody")) == INVALID_PRODUCER_ID_MAPPING
        assert refusal(producer.other(transactional_id="")) == INVALID_REQUEST
        assert refusal(producer) == NONE


class TestWriting:
    def test_a_partition_that_was_not_added(self, wire: Wire, producer: Producer, topic: str) -> None:
        """No record may hold up readers that no coordinator will ever end: the broker asks first (KIP-890)."""
        assert produced(wire, producer.produce(topic, 0), BEFORE_TV2) == TRANSACTION_ABORTABLE
        producer.add_partitions(wire, (topic, 1))
        assert produced(wire, producer.produce(topic, 0), BEFORE_TV2) == TRANSACTION_ABORTABLE
        assert produced(wire, producer.produce(topic, 0), 10) == INVALID_TXN_STATE  # which knows no better
        assert produced(wire, producer.produce(topic, 0, partition=1), BEFORE_TV2) == NONE
        assert end_offset(wire, topic) == 0

    def test_the_broker_adds_it_since_version_2(self, wire: Wire, producer: Producer, topic: str) -> None:
        assert produced(wire, producer.produce(topic, 0), SINCE_TV2) == NONE
        (described,) = wire.ask(
            DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
        ).transaction_states
        assert [(each.topic, each.partitions) for each in described.topics] == [(topic, [0])]

    @pytest.mark.parametrize("version", [BEFORE_TV2, SINCE_TV2])
    def test_by_somebody_else(self, wire: Wire, producer: Producer, topic: str, version: int) -> None:
        def refusal(who: Producer) -> ErrorCode:
            return produced(wire, who.produce(topic, 0), version)

        assert refusal(producer.other(epoch=1)) == INVALID_PRODUCER_EPOCH
        assert refusal(producer.other(producer_id=producer.id + 5000)) == INVALID_PRODUCER_ID_MAPPING
        assert refusal(producer.other(transactional_id="nobody")) == INVALID_PRODUCER_ID_MAPPING
        nameless = producer.produce(topic, 0)
        nameless.transactional_id = None
        assert produced(wire, nameless, version) == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert end_offset(wire, topic) == 0

    def test_inside_a_transaction(self, wire: Wire, producer: Producer, topic: str) -> None:
        assert produced(wire, producer.produce(topic, 3), SINCE_TV2) == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produced(wire, producer.produce(topic, 0), SINCE_TV2) == NONE
        assert produced(wire, producer.produce(topic, 0), SINCE_TV2) == NONE  # it may not have had the answer
        assert produced(wire, producer.produce(topic, 9), SINCE_TV2) == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produced(wire, producer.produce(topic, 1, transactional=False), SINCE_TV2) == INVALID_TXN_STATE
        assert produced(wire, producer.produce(topic, 1, control=True), SINCE_TV2) == INVALID_RECORD
        assert end_offset(wire, topic) == 1

    def test_control_batches_are_the_brokers(self, wire: Wire, topic: str) -> None:
        assert produced(wire, produce_request(topic, batch("value", control=True)), SINCE_TV2) == INVALID_RECORD
        assert end_offset(wire, topic) == 0

    @pytest.mark.parametrize("internal", ["__consumer_offsets", "__transaction_state"])
    def test_internal_topics_are_the_coordinators(self, wire: Wire, internal: str) -> None:
        assert produced(wire, produce_request(internal, batch("value")), SINCE_TV2) == INVALID_TOPIC_EXCEPTION


class TestOffsets:
    def test_a_group_that_was_not_added(self, wire: Wire, producer: Producer, topic: str, group: str) -> None:
        refused = producer.commit_offsets(wire, group, (topic, 0, 1), version=3)
        assert refused == {(topic, 0): INVALID_TXN_STATE}
        refused = producer.commit_offsets(wire, group, (topic, 0, 1), version=4)
        assert refused == {(topic, 0): TRANSACTION_ABORTABLE}

    def test_the_broker_adds_it_since_version_2(self, wire: Wire, producer: Producer, topic: str, group: str) -> None:
        """Each partition has its own error. A pending offset is an error only with require_stable."""
        missing = topic + "-missing"
        assert producer.commit_offsets(wire, group, (topic, 0, 1), (topic, 9, 1), (missing, 0, 1)) == {
            (topic, 0): NONE,
            (topic, 9): UNKNOWN_TOPIC_OR_PARTITION,
            (missing, 0): UNKNOWN_TOPIC_OR_PARTITION,
        }
        (found,) = committed(wire, group, (topic, 0), require_stable=True).topics[0].partitions
        assert (found.error_code, found.committed_offset) == (UNSTABLE_OFFSET_COMMIT, -1)
        (found,) = committed(wire, group, (topic, 0)).topics[0].partitions
        assert (found.error_code, found.committed_offset) == (NONE, -1)

    def test_what_cannot_be_committed(self, wire: Wire, producer: Producer, topic: str, group: str) -> None:
        def refusal(who: Producer, group: str = group, metadata: str = "") -> ErrorCode:
            return who.commit_offsets(wire, group, (topic, 0, 1), metadata=metadata)[topic, 0]

        assert refusal(producer, metadata="m" * 4097) == OFFSET_METADATA_TOO_LARGE
        assert refusal(producer, group="") == INVALID_GROUP_ID
        assert refusal(producer.other(epoch=1)) == INVALID_PRODUCER_EPOCH
        assert refusal(producer.other(transactional_id="nobody")) == INVALID_PRODUCER_ID_MAPPING

    def test_members(self, wire: Wire, producer: Producer, topic: str, group: str) -> None:
        epoch = wire.ask(consumer_join(group, "member", topic)).member_epoch

        def outcome(member_id: str, epoch: int) -> ErrorCode:
            found = producer.commit_offsets(wire, group, (topic, 0, 1), member_id=member_id, generation=epoch)
            return found[topic, 0]

        assert outcome("stranger", epoch) == UNKNOWN_MEMBER_ID
        assert outcome("member", epoch + 1) == ErrorCode.ILLEGAL_GENERATION
        assert outcome("member", epoch) == NONE

    def test_topic_ids(self, wire: Wire, producer: Producer, topic: str, group: str) -> None:
        """Version 6 names topics by their ids, and its clients understand what members of new groups do wrong."""
        topic_id = metadata_of(wire, topic).topic_id

        def outcome(group: str, topic_id: bytes, member_id: str = "", epoch: int = -1) -> list[ErrorCode]:
            answer = producer.commit_offsets_by_id(wire, group, topic_id, (0, 9), member_id=member_id, epoch=epoch)
            assert (answer.name, answer.topic_id) == ("", topic_id)
            return [
                ErrorCode(each.error_code)
                for each in sorted(answer.partitions, key=lambda each: int(each.partition_index))
            ]

        assert outcome(group, b"\x77" * 16) == [UNKNOWN_TOPIC_ID] * 2
        assert outcome(group, ZERO_UUID) == [UNKNOWN_TOPIC_ID] * 2
        assert outcome(group, topic_id, "stranger", 1) == [GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION]
        epoch = wire.ask(consumer_join(group, "member", topic)).member_epoch
        assert outcome(group, topic_id, "member", epoch + 1) == [STALE_MEMBER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION]
        assert outcome(group, topic_id, "member", epoch) == [NONE, UNKNOWN_TOPIC_OR_PARTITION]
        (found,) = committed(wire, group, (topic, 0), require_stable=True).topics[0].partitions
        assert found.error_code == UNSTABLE_OFFSET_COMMIT


class TestEnding:
    @pytest.mark.parametrize("version", [3, 5])
    def test_by_somebody_else(self, wire: Wire, producer: Producer, topic: str, version: int) -> None:
        def refusal(who: Producer) -> ErrorCode:
            return error(wire, who.end(committed=True), version)

        producer.add_partitions(wire, (topic, 0))
        assert refusal(producer.other(epoch=1)) == PRODUCER_FENCED
        assert refusal(producer.other(producer_id=producer.id + 1)) == INVALID_PRODUCER_ID_MAPPING
        assert refusal(producer.other(transactional_id="nobody")) == INVALID_PRODUCER_ID_MAPPING
        assert refusal(producer.other(transactional_id="")) == INVALID_REQUEST
        assert refusal(producer) == NONE

    def test_twice(self, wire: Wire, producer: Producer, topic: str) -> None:
        """The same end again is the same request again; another end is an error."""
        producer.add_partitions(wire, (topic, 0))
        for _ in range(2):
            assert patiently(wire, producer.end(committed=True), 3).error_code == NONE
        assert error(wire, producer.end(committed=False), 3) == INVALID_TXN_STATE

    def test_an_end_of_nothing(self, wire: Wire, producer: Producer) -> None:
        """Since version 2 an abort without a beginning gets a new epoch, and so an end to what may still come."""
        assert error(wire, producer.end(committed=True), 5) == INVALID_TXN_STATE
        answer = wire.ask(producer.end(committed=False), 5)
        assert (answer.error_code, answer.producer_epoch) == (NONE, producer.epoch + 1)


class TestMarkers:
    """Of brokers, and of administrators that end what hangs."""

    def test_what_cannot_be_written(self, wire: Wire, producer: Producer, topic: str) -> None:
        def outcome(
            place: str, index: int, *, producer_id: int = producer.id, epoch: int, coordinator: int
        ) -> ErrorCode:
            marker = WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=epoch,
                coordinator_epoch=coordinator,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=place, partition_indexes=[index])],
            )
            (answer,) = wire.ask(WriteTxnMarkersRequest(markers=[marker])).markers
            ((found,),) = (each.partitions for each in answer.topics)
            return ErrorCode(found.error_code)

        assert outcome(topic, 9, epoch=5, coordinator=5) == UNKNOWN_TOPIC_OR_PARTITION
        assert outcome(topic + "-missing", 0, epoch=5, coordinator=5) == UNKNOWN_TOPIC_OR_PARTITION
        assert outcome(topic, 0, producer_id=-1, epoch=5, coordinator=5) == UNKNOWN_SERVER_ERROR
        assert outcome(topic, 0, epoch=-1, coordinator=5) == UNKNOWN_SERVER_ERROR
        assert end_offset(wire, topic) == 0
        assert outcome(topic, 0, epoch=5, coordinator=5) == NONE
        assert outcome(topic, 0, epoch=5, coordinator=4) == TRANSACTION_COORDINATOR_FENCED
        assert outcome(topic, 0, epoch=4, coordinator=5) == INVALID_PRODUCER_EPOCH
        assert end_offset(wire, topic) == 1


class TestZombies:
    """Another producer has begun with the same transactional id; the one before does not know it yet."""

    @pytest.fixture
    def zombie(self, wire: Wire, producer: Producer, topic: str) -> Producer:
        producer.add_partitions(wire, (topic, 0))
        assert produced(wire, producer.produce(topic, 0), BEFORE_TV2) == NONE
        new_producer(wire, producer.transactional_id)
        return producer

    def test_cannot_begin(self, wire: Wire, zombie: Producer, topic: str) -> None:
        outcomes = {
            version: zombie.add_partitions(wire, (topic, 0), version=version)[topic, 0] for version in (0, 1, 2, 3)
        }
        assert outcomes == {
            0: INVALID_PRODUCER_EPOCH,
            1: INVALID_PRODUCER_EPOCH,
            2: PRODUCER_FENCED,
            3: PRODUCER_FENCED,
        }

    def test_cannot_write(self, wire: Wire, zombie: Producer, topic: str) -> None:
        end = end_offset(wire, topic)
        for version in (3, 9, BEFORE_TV2, SINCE_TV2):
            assert produced(wire, zombie.produce(topic, 1), version) == INVALID_PRODUCER_EPOCH
        assert end_offset(wire, topic) == end

    def test_cannot_commit_offsets(self, wire: Wire, zombie: Producer, topic: str, group: str) -> None:
        def add_group(version: int) -> ErrorCode:
            request = AddOffsetsToTxnRequest(
                transactional_id=zombie.transactional_id,
                producer_id=zombie.id,
                producer_epoch=zombie.epoch,
                group_id=group,
            )
            return error(wire, request, version)

        assert [add_group(version) for version in (1, 2, 4)] == [
            INVALID_PRODUCER_EPOCH,
            PRODUCER_FENCED,
            PRODUCER_FENCED,
        ]
        for version in (0, 3, 5):
            refused = zombie.commit_offsets(wire, group, (topic, 0, 1), version=version)
            assert refused == {(topic, 0): INVALID_PRODUCER_EPOCH}

    def test_cannot_end(self, wire: Wire, zombie: Producer) -> None:
        outcomes = [error(wire, zombie.end(committed=True), version) for version in (1, 2, 5)]
        assert outcomes == [INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, PRODUCER_FENCED]

    def test_cannot_begin_again(self, wire: Wire, zombie: Producer) -> None:
        request = InitProducerIdRequest(
            transactional_id=zombie.transactional_id,
            transaction_timeout_ms=1000,
            producer_id=zombie.id,
            producer_epoch=zombie.epoch,
        )
        outcomes = [patiently(wire, request, version).error_code for version in (3, 4, 5)]
        assert outcomes == [INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, PRODUCER_FENCED]
