"""The transaction coordinator where a story would be too long: limits, batches of many, late answers, splitting."""

from __future__ import annotations

import pytest

from narrowing import expect, present
from penstock.coordinator.decision import Caller
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.codec import decode, encode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.group_records import GroupMetadataKey
from penstock.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from penstock.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.transactions import routing
from penstock.transactions.markers import errors_of, request_of
from penstock.transactions.partition_verification import (
    Question,
    Questions,
    produce_error,
    produce_support,
    txn_offset_commit_error,
    txn_offset_commit_support,
)
from penstock.transactions.records import record_of, transaction_of, value_version
from penstock.transactions.shard import MAX_ABORTS_PER_TICK, MAX_EXPIRED_PER_TICK
from penstock.transactions.state import NO_TIMEOUT_MS, Identity, Status, Transaction
from transaction_world import Coordinator, Log

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def ask_to_add(transactional_id: str, identity: Identity, *partitions: TopicPartition) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in partitions],
    )


def results_of(response: AddPartitionsToTxnResponse) -> list[tuple[str, str, int, ErrorCode]]:
    return [
        (result.transactional_id, topic.name, partition.partition_index, ErrorCode(partition.partition_error_code))
        for result in response.results_by_transaction
        for topic in result.topic_results
        for partition in topic.results_by_partition
    ]


def open_transactions(coordinator: Coordinator, count: int, timeout: int = 100) -> list[Identity]:
    identities = []
    for number in range(count):
        _, response = coordinator.init(f"t{number}", timeout=timeout)
        identities.append(Identity(response.producer_id, response.producer_epoch))
        coordinator.add(f"t{number}", identities[-1], [A0])
    return identities


def stored(transaction: Transaction, transaction_version: int) -> tuple[TransactionLogKey, TransactionLogValue]:
    key, value = record_of(transaction, transaction_version)
    return expect(TransactionLogKey, key), expect(TransactionLogValue, value)


def test_records_of_every_field_come_back() -> None:
    transaction = Transaction(
        "t", 5, 6, NO_TIMEOUT_MS, Status.PREPARE_ABORT, frozenset((A0, A1, B0)), 10, 20, 5, 7, 8, 2
    )
    key, value = stored(transaction, 2)
    assert value_version(value) == 1
    assert transaction_of(key, decode(TransactionLogValue, encode(value, 1), 1)) == transaction
    assert transaction_of(key, value) == transaction


def test_records_at_level_0_are_of_the_first_format() -> None:
    transaction = Transaction("t", 5, 6, 100, Status.ONGOING, frozenset((A0,)), 10, 20, 5)
    key, value = stored(transaction, 0)
    assert value_version(value) == 0
    assert transaction_of(key, decode(TransactionLogValue, encode(value, 0), 0)) == transaction._replace(
        previous_producer_id=-1
    )


def test_one_request_of_a_broker_has_many_transactions() -> None:
    coordinator = Coordinator()
    first, second = (Identity(c.producer_id, c.producer_epoch) for c in (coordinator.init(n)[1] for n in "tu"))
    transactions = [
        ask_to_add("t", first, A0),
        ask_to_add("u", second, A0, B0),
        ask_to_add("t", first, A1),
        ask_to_add("u", Identity(second.producer_id, 9), A1),
        ask_to_add("", first, A0),
    ]
    transactions[0].verify_only = True
    request = AddPartitionsToTxnRequest(transactions=transactions)
    decision = coordinator.run(coordinator.shard.add_partitions_to_txn(request, "k", Caller(api_version=5), 1000))
    assert results_of(expect(AddPartitionsToTxnResponse, decision.replies[0].response)) == [
        ("t", "a", 0, ErrorCode.TRANSACTION_ABORTABLE),
        ("u", "a", 0, ErrorCode.NONE),
        ("u", "b", 0, ErrorCode.NONE),
        ("t", "a", 1, ErrorCode.NONE),
        ("u", "a", 1, ErrorCode.PRODUCER_FENCED),
        ("", "a", 0, ErrorCode.INVALID_REQUEST),
    ]
    assert len(decision.records) == 2
    assert coordinator.state["t"].partitions == {A1}
    assert coordinator.state["u"].partitions == {A0, B0}


def test_two_entries_of_one_transaction_in_a_request_add_up() -> None:
    coordinator = Coordinator()
    coordinator.init("t")
    request = AddPartitionsToTxnRequest(
        transactions=[ask_to_add("t", Identity(1000, 0), A0), ask_to_add("t", Identity(1000, 0), B0)]
    )
    coordinator.run(coordinator.shard.add_partitions_to_txn(request, "k", Caller(api_version=5), 1000))
    assert coordinator.state["t"].partitions == {A0, B0}


def test_no_producer_id_at_hand() -> None:
    coordinator = Coordinator(ids=lambda: None)
    decision, response = coordinator.init("t")
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert decision.records == []


def test_an_overdue_transaction_that_needs_a_producer_id_waits_for_one() -> None:
    coordinator = Coordinator()
    last = Transaction("t", 1, 32766, 100, Status.ONGOING, frozenset((A0,)), 1000, 1000)
    coordinator.shard.replay(*record_of(last, 2))
    coordinator.ids = lambda: None
    assert coordinator.tick(101).records == []
    assert coordinator.shard.deadline == 11101
    coordinator.ids = lambda: 77
    assert coordinator.tick(9999).records == []
    (record,) = coordinator.tick(1).records
    assert expect(TransactionLogValue, record.value).next_producer_id == 77


def test_overdue_transactions_are_aborted_some_at_a_time() -> None:
    coordinator = Coordinator()
    open_transactions(coordinator, MAX_ABORTS_PER_TICK + 5)
    assert coordinator.shard.deadline == 1101
    assert len(coordinator.tick(101).records) == MAX_ABORTS_PER_TICK
    assert coordinator.shard.deadline == 1101
    assert len(coordinator.tick().records) == 5
    assert coordinator.tick().records == []
    assert {transaction.status for transaction in coordinator.shard.transactions} == {Status.PREPARE_ABORT}


def test_a_time_out_counts_from_the_last_transaction() -> None:
    coordinator = Coordinator()
    (identity,) = open_transactions(coordinator, 1)
    coordinator.now += 60
    coordinator.end("t0", identity, True)
    due = coordinator.markers()
    coordinator.run(coordinator.shard.markers_answered(due.by_broker[1][0], {A0: 0}, coordinator.now))
    coordinator.add("t0", Identity(1000, 1), [A0])
    assert coordinator.tick(50).records == []
    assert coordinator.shard.deadline == 11110  # 10 seconds after the last look, though overdue at 1161
    assert len(coordinator.tick(10_000).records) == 1


def test_unused_ids_are_forgotten_some_at_a_time() -> None:
    coordinator = Coordinator(transactional_id_expiration_ms=10)
    for number in range(MAX_EXPIRED_PER_TICK + 1):
        coordinator.shard.replay(*record_of(Transaction(f"t{number}", number, 0, 100, updated_ms=1000), 2))
    assert len(coordinator.tick(3_600_000).records) == MAX_EXPIRED_PER_TICK
    assert present(coordinator.shard.deadline) <= coordinator.now
    assert len(coordinator.tick().records) == 1
    assert len(coordinator.shard) == 0
    assert coordinator.shard.deadline is None


def test_a_late_answer_says_nothing_about_the_next_transaction() -> None:
    """Before transaction version 2 two transactions may have the same pair: only the attempt tells them apart."""
    coordinator = Coordinator(version=1)
    coordinator.init("t")
    identity = Identity(1000, 0)
    sent = []
    for _ in range(2):
        coordinator.add("t", identity, [A0], v=3)
        coordinator.end("t", identity, True, v=3)
        (markers,) = coordinator.markers().by_broker[1]
        sent.append(markers)
        if len(sent) == 1:
            coordinator.shard.markers_lost(markers, coordinator.now)
            coordinator.now += 50
            (again,) = coordinator.markers().by_broker[1]
            assert again._replace(attempt=0) == markers._replace(attempt=0)
            coordinator.run(coordinator.shard.markers_answered(again, {A0: 0}, coordinator.now))
    assert coordinator.state["t"].status is Status.PREPARE_COMMIT
    assert coordinator.shard.markers_answered(sent[0], {A0: 0}, coordinator.now).records == []
    assert len(coordinator.shard.markers_answered(sent[1], {A0: 0}, coordinator.now).records) == 1


def test_markers_on_the_wire() -> None:
    coordinator = Coordinator(Log(leader_epoch=41))
    coordinator.init("t")
    coordinator.add("t", Identity(1000, 0), [B0, A1, A0])
    coordinator.end("t", Identity(1000, 0), True)
    (markers,) = coordinator.markers().by_broker[1]
    request = request_of([markers])
    (marker,) = decode(WriteTxnMarkersRequest, encode(request, 2), 2).markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (1000, 1, True)
    assert (marker.coordinator_epoch, marker.transaction_version) == (42, 2)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("a", [0, 1]), ("b", [0])]
    result = WritableTxnMarkerTopicResult(
        name="a",
        partitions=[
            WritableTxnMarkerPartitionResult(partition_index=0, error_code=ErrorCode.NONE),
            WritableTxnMarkerPartitionResult(partition_index=1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ],
    )
    errors = errors_of(WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=1000, topics=[result])]))
    assert errors == {1000: {A0: 0, A1: 6}}
    assert coordinator.shard.markers_answered(markers, errors[1000], coordinator.now).records == []
    coordinator.now += 50
    (again,) = coordinator.markers().by_broker[1]
    assert again.partitions == (A1, B0)


def test_a_foreign_record_is_refused() -> None:
    shard = Coordinator().shard
    with pytest.raises(TypeError):
        shard.replay(GroupMetadataKey(group="g"), None)
    with pytest.raises(TypeError):
        shard.replay(TransactionLogKey(transactional_id="t"), GroupMetadataKey(group="g"))


# -- splitting, and what goes before


def test_a_request_of_a_broker_is_refused_for_each_of_its_transactions() -> None:
    request = AddPartitionsToTxnRequest(
        transactions=[ask_to_add(name, Identity(1, 0), A0) for name in ("aa", "b", "cc")]
    )
    refused = results_of(routing.refused_add_partitions(request, ErrorCode.NOT_COORDINATOR, 5))
    assert refused == [(name, "a", 0, ErrorCode.NOT_COORDINATOR) for name in ("aa", "b", "cc")]


def test_an_old_request_is_refused_in_its_own_form() -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t", v3_and_below_topics=[AddPartitionsToTxnTopic(name="a", partitions=[0, 1])]
    )
    response = routing.refused_add_partitions(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 3)
    (topic,) = decode(AddPartitionsToTxnResponse, encode(response, 3), 3).results_by_topic_v3_and_below
    assert [result.partition_error_code for result in topic.results_by_partition] == [14, 14]


def test_one_partition_that_may_not_join_keeps_out_the_others() -> None:
    topics = [
        AddPartitionsToTxnTopic(name="a", partitions=[0, 9]),
        AddPartitionsToTxnTopic(name="secret", partitions=[0]),
    ]

    def check(name: str, index: int) -> ErrorCode:
        if name == "secret":
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.NONE if index == 0 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    assert routing.refused_topics(topics[:1], lambda _name, _index: ErrorCode.NONE) is None
    results = routing.refused_topics(topics, check)
    assert results is not None
    assert [[p.partition_error_code for p in topic.results_by_partition] for topic in results] == [
        [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [ErrorCode.TOPIC_AUTHORIZATION_FAILED],
    ]


def test_lists_are_joined_unless_one_is_missing() -> None:
    coordinator = Coordinator()
    coordinator.init("t")
    request = ListTransactionsRequest(state_filters=["Empty", "What"])
    (reply,) = coordinator.shard.list_transactions(request, "k", Caller(), 1000).replies
    response = expect(ListTransactionsResponse, reply.response)
    merged = routing.merge_list([response, response])
    assert [state.transactional_id for state in merged.transaction_states] == ["t", "t"]
    assert merged.unknown_state_filters == ["What"]
    loading = ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    merged = routing.merge_list([response, loading])
    assert (merged.error_code, merged.transaction_states) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])


# -- what leaders ask


def test_questions_to_one_broker_share_a_request() -> None:
    questions = Questions()
    first, second = Identity(1, 0), Identity(1, 1)
    questions.add(Question("t", first, True, (A0,), "one"))
    questions.add(Question("t", first, True, (A1, A0), "two"))
    questions.add(Question("t", second, True, (A0,), "three"))
    questions.add(Question("u", Identity(2, 0), False, (B0,), "four"))
    asked = questions.take()
    assert asked is not None
    assert [(t.transactional_id, t.producer_epoch, t.verify_only) for t in asked.request.transactions] == [
        ("t", 0, False),
        ("u", 0, True),
    ]
    coordinator = Coordinator()
    coordinator.shard.replay(*record_of(Transaction("t", 1, 0, 100), 2))
    coordinator.shard.replay(*record_of(Transaction("u", 2, 0, 100), 2))
    decision = coordinator.shard.add_partitions_to_txn(asked.request, "k", Caller(api_version=5), 1000)
    assert asked.answers(expect(AddPartitionsToTxnResponse, decision.replies[0].response)) == [
        ("one", {A0: ErrorCode.NONE}),
        ("two", {A1: ErrorCode.NONE, A0: ErrorCode.NONE}),
        ("four", {B0: ErrorCode.TRANSACTION_ABORTABLE}),
    ]
    rest = questions.take()
    assert rest is not None
    assert [question.token for question in rest.questions] == ["three"]
    assert rest.failed(ErrorCode.NETWORK_EXCEPTION) == [("three", {A0: ErrorCode.NETWORK_EXCEPTION})]
    assert questions.take() is None


def test_answers_that_say_nothing() -> None:
    questions = Questions()
    questions.add(Question("t", Identity(1, 0), True, (A0,), "one"))
    asked = questions.take()
    assert asked is not None
    assert asked.answers(AddPartitionsToTxnResponse()) == [("one", {A0: ErrorCode.UNKNOWN_SERVER_ERROR})]
    refused = AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert asked.answers(refused) == [("one", {A0: ErrorCode.INVALID_TXN_STATE})]


@pytest.mark.parametrize(
    ("error", "version", "told"),
    [
        ("PRODUCER_FENCED", 13, "INVALID_PRODUCER_EPOCH"),
        ("TRANSACTION_ABORTABLE", 11, "TRANSACTION_ABORTABLE"),
        ("TRANSACTION_ABORTABLE", 10, "INVALID_TXN_STATE"),
        ("CONCURRENT_TRANSACTIONS", 12, "CONCURRENT_TRANSACTIONS"),
        ("CONCURRENT_TRANSACTIONS", 11, "NOT_ENOUGH_REPLICAS"),
        ("NOT_COORDINATOR", 12, "NOT_ENOUGH_REPLICAS"),
        ("NETWORK_EXCEPTION", 12, "NOT_ENOUGH_REPLICAS"),
        ("INVALID_PRODUCER_ID_MAPPING", 12, "INVALID_PRODUCER_ID_MAPPING"),
    ],
)
def test_what_producers_are_told(error: str, version: int, told: str) -> None:
    assert produce_error(ErrorCode[error], produce_support(version)) == ErrorCode[told]


@pytest.mark.parametrize(
    ("error", "version", "told"),
    [
        ("PRODUCER_FENCED", 5, "INVALID_PRODUCER_EPOCH"),
        ("TRANSACTION_ABORTABLE", 3, "INVALID_TXN_STATE"),
        ("NETWORK_EXCEPTION", 5, "COORDINATOR_LOAD_IN_PROGRESS"),
        ("CONCURRENT_TRANSACTIONS", 5, "CONCURRENT_TRANSACTIONS"),
    ],
)
def test_what_is_told_of_offsets(error: str, version: int, told: str) -> None:
    assert txn_offset_commit_error(ErrorCode[error], txn_offset_commit_support(version)) == ErrorCode[told]
