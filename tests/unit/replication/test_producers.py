from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode, KafkaError
from penstock.records.batch import CONTROL, MAX_SEQUENCE, TRANSACTIONAL, BatchHeader
from penstock.replication.producers import REFUSAL_KEPT_MS, ProducerEntry, ProducerStates
from penstock.replication.verification import Verification

NOW = 1_000_000
DAY_MS = 86_400_000


def header(
    sequence: int,
    count: int = 1,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    attributes: int = 0,
    timestamp: int = NOW,
) -> BatchHeader:
    return BatchHeader(
        0, 100, -1, 2, 0, attributes, count - 1, timestamp, timestamp, producer_id, epoch, sequence, count
    )


class Partition:
    """Producers and an end offset, as a log would drive them."""

    def __init__(self) -> None:
        self.states = ProducerStates("t-0", DAY_MS)
        self.end = 0

    def send(self, batch: BatchHeader, now: int = NOW) -> int:
        """The base offset the batch has now, whether it was appended or had been before."""
        earlier = self.states.check(batch)
        if earlier is not None:
            return earlier.first_offset
        self.states.append(batch, self.end, now)
        self.end += batch.last_offset_delta + 1
        return self.end - batch.last_offset_delta - 1

    def refuse(self, batch: BatchHeader) -> ErrorCode:
        with pytest.raises(KafkaError) as refusal:
            self.states.check(batch)
        return refusal.value.code

    def end_transaction(
        self, *, aborted: bool, producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 0, version: int = 0
    ) -> object:
        marker = header(-1, producer_id=producer_id, epoch=epoch, attributes=CONTROL | TRANSACTIONAL)
        self.states.check_marker(marker, coordinator_epoch, version)
        completed = self.states.append_marker(
            marker, self.end, NOW, aborted=aborted, coordinator_epoch=coordinator_epoch
        )
        self.end += 1
        return completed


def test_sequences_must_follow_each_other() -> None:
    partition = Partition()
    assert partition.send(header(0, 3)) == 0
    assert partition.send(header(3)) == 3
    assert partition.refuse(header(5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refuse(header(3, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # the range differs
    assert partition.send(header(4)) == 4


def test_the_last_five_batches_are_answered_with_their_first_offsets() -> None:
    partition = Partition()
    offsets = [partition.send(header(2 * number, 2)) for number in range(6)]
    assert offsets == [0, 2, 4, 6, 8, 10]
    for number in range(1, 6):
        assert partition.send(header(2 * number, 2)) == offsets[number]
    assert partition.refuse(header(0, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap() -> None:
    partition = Partition()
    first = header(MAX_SEQUENCE - 1, 3)
    assert first.last_sequence == 0
    assert partition.send(first) == 0  # nothing is known of the producer: any start will do
    assert partition.send(first) == 0
    assert partition.send(header(1)) == 3
    partition = Partition()
    partition.send(header(MAX_SEQUENCE))
    assert partition.send(header(0)) == 1


def test_epochs() -> None:
    partition = Partition()
    partition.send(header(0, epoch=3))
    assert partition.refuse(header(1, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.refuse(header(1, epoch=4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(header(0, epoch=4)) == 1  # not a duplicate: another epoch
    assert partition.refuse(header(1, epoch=3)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.send(header(0, epoch=4)) == 1


def test_a_new_epoch_may_come_with_a_marker_and_then_starts_at_zero() -> None:
    partition = Partition()
    partition.send(header(0, attributes=TRANSACTIONAL))
    partition.end_transaction(aborted=False, epoch=1, version=2)
    assert partition.refuse(header(1, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(header(0, epoch=1)) == 2


def test_idle_producers_expire_and_may_come_back() -> None:
    partition = Partition()
    partition.send(header(0), now=NOW)
    partition.send(header(0, producer_id=8, timestamp=5), now=NOW + 10)  # replays history: old timestamps
    partition.send(header(0, producer_id=9, attributes=TRANSACTIONAL))
    assert partition.states.expire(NOW + DAY_MS - 1) == []
    assert partition.states.expire(NOW + DAY_MS) == [7]
    assert partition.states.expire(NOW + 10 + DAY_MS) == [8]
    assert partition.states.get(9) is not None  # has an open transaction
    assert partition.send(header(41)) == 3


def test_loading_a_snapshot() -> None:
    partition = Partition()
    fresh, ancient = ProducerEntry(1, 0), ProducerEntry(2, 0)
    fresh.last_timestamp, ancient.last_timestamp = NOW - 10, NOW - 2 * DAY_MS
    fresh.transaction_first_offset = 30
    other = ProducerEntry(3, 0)
    other.last_timestamp, other.transaction_first_offset = NOW, 20
    partition.send(header(0))
    partition.states.load([fresh, ancient, other], NOW)
    assert partition.states.get(7) is None
    assert partition.states.first_undecided_offset == 20
    assert partition.states.expire(NOW + DAY_MS - 1) == []
    assert partition.states.expire(NOW + DAY_MS) == [2]


def test_a_write_outside_the_open_transaction() -> None:
    partition = Partition()
    partition.send(header(0, attributes=TRANSACTIONAL))
    assert partition.refuse(header(1)) == ErrorCode.INVALID_TXN_STATE


def test_last_stable_offset() -> None:
    partition = Partition()
    states = partition.states
    assert states.last_stable_offset(0) == 0
    partition.send(header(0, 5, producer_id=1))  # 0-4
    assert states.last_stable_offset(5) == 5
    partition.send(header(0, 2, producer_id=2, attributes=TRANSACTIONAL))  # 5-6
    partition.send(header(0, 2, producer_id=3, attributes=TRANSACTIONAL))  # 7-8
    assert states.last_stable_offset(9) == 5
    assert states.last_stable_offset(3) == 3
    completed = partition.end_transaction(aborted=True, producer_id=2)  # 9
    assert completed == (2, 5, 9, 7, True)
    assert states.last_stable_offset(9) == 5  # the marker is not replicated yet
    assert states.last_stable_offset(10) == 7
    completed = partition.end_transaction(aborted=False, producer_id=3)  # 10
    assert completed == (3, 7, 10, 11, False)
    assert states.last_stable_offset(10) == 7
    assert states.last_stable_offset(11) == 11


def test_a_marker_without_data_completes_nothing() -> None:
    partition = Partition()
    assert partition.end_transaction(aborted=True) is None
    assert partition.states.last_stable_offset(1) == 1


def test_late_and_foreign_markers() -> None:
    partition = Partition()
    partition.send(header(0, epoch=3, attributes=TRANSACTIONAL))
    with pytest.raises(KafkaError) as refusal:
        partition.end_transaction(aborted=True, epoch=2)
    assert refusal.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as refusal:
        partition.end_transaction(aborted=True, epoch=3, version=2)  # must be above the current epoch
    assert refusal.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    partition.end_transaction(aborted=True, epoch=4, coordinator_epoch=5, version=2)
    partition.end_transaction(aborted=True, epoch=4, coordinator_epoch=5, version=2)  # a retry: nothing is open
    with pytest.raises(KafkaError) as refusal:
        partition.end_transaction(aborted=True, epoch=5, coordinator_epoch=4, version=2)
    assert refusal.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_records_of_a_coordinator_have_no_sequence() -> None:
    partition = Partition()
    for _ in range(3):
        partition.send(header(-1, attributes=TRANSACTIONAL))
    assert partition.end == 3
    assert partition.refuse(header(-1, epoch=-1, attributes=TRANSACTIONAL)) == ErrorCode.INVALID_PRODUCER_EPOCH


# -- verification


def transactional(sequence: int, epoch: int = 0) -> BatchHeader:
    return header(sequence, epoch=epoch, attributes=TRANSACTIONAL)


def refusal_of(partition: Partition, batch: BatchHeader, verification: Verification | None) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        partition.states.check_verified(batch, verification)
    return refusal.value.code


def test_the_first_batch_of_a_transaction_is_verified_and_the_others_are_not() -> None:
    partition = Partition()
    states = partition.states
    assert refusal_of(partition, transactional(0), None) == ErrorCode.INVALID_TXN_STATE
    verification = states.begin_verification(transactional(0), NOW)
    assert verification is not None
    assert states.begin_verification(transactional(0), NOW) is verification
    states.check_verified(transactional(0), verification)
    partition.send(transactional(0))
    assert states.begin_verification(transactional(1), NOW) is None
    states.check_verified(transactional(1), None)
    partition.send(transactional(1))
    partition.end_transaction(aborted=False)
    assert refusal_of(partition, transactional(2), None) == ErrorCode.INVALID_TXN_STATE
    assert states.begin_verification(transactional(2), NOW) is not verification


def test_a_marker_voids_what_was_verified_before_it() -> None:
    partition = Partition()
    states = partition.states
    late = states.begin_verification(transactional(0), NOW)
    partition.end_transaction(aborted=True)
    assert refusal_of(partition, transactional(0), late) == ErrorCode.INVALID_TXN_STATE
    next_one = states.begin_verification(transactional(0), NOW)
    assert refusal_of(partition, transactional(0), late) == ErrorCode.INVALID_TXN_STATE
    states.check_verified(transactional(0), next_one)


def test_the_next_transaction_may_be_verified_before_the_marker_of_the_last() -> None:
    partition = Partition()
    states = partition.states
    first = states.begin_verification(transactional(0), NOW, transaction_version=2)
    states.check_verified(transactional(0), first)
    partition.send(transactional(0))
    second = states.begin_verification(transactional(0, epoch=1), NOW, transaction_version=2)
    assert second is not None
    partition.end_transaction(aborted=False, epoch=1, version=2)
    states.check_verified(transactional(0, epoch=1), second)
    with pytest.raises(KafkaError) as refusal:
        states.begin_verification(transactional(1), NOW, transaction_version=2)
    assert refusal.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal_of(partition, transactional(1), first) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_open_transaction_of_an_older_epoch_verifies_nothing() -> None:
    partition = Partition()
    partition.send(transactional(0))
    assert partition.states.begin_verification(transactional(0, epoch=1), NOW) is not None
    assert refusal_of(partition, transactional(0, epoch=1), None) == ErrorCode.INVALID_TXN_STATE


def test_nothing_overtakes_the_lowest_sequence_that_is_verified() -> None:
    partition = Partition()
    states = partition.states
    verification = states.begin_verification(transactional(5), NOW)
    assert states.begin_verification(transactional(3), NOW) is verification
    assert refusal_of(partition, transactional(5), verification) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    states.check_verified(transactional(3), verification)
    assert states.begin_verification(transactional(7, epoch=1), NOW) is verification
    states.check_verified(transactional(7, epoch=1), verification)


def test_version_2_starts_at_sequence_0_if_nothing_is_known() -> None:
    partition = Partition()
    verification = partition.states.begin_verification(transactional(4), NOW, transaction_version=2)
    assert refusal_of(partition, transactional(4), verification) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_is_never_verified_is_forgotten() -> None:
    partition = Partition()
    states = partition.states
    first = states.begin_verification(transactional(0), NOW)
    states.expire(NOW + DAY_MS - 1)
    assert states.begin_verification(transactional(0), NOW) is first
    states.expire(NOW + DAY_MS)
    assert states.begin_verification(transactional(0), NOW) is not first


def test_what_was_sent_behind_a_refused_batch_waits_for_it() -> None:
    partition = Partition()
    storage, replicas = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS
    # Nothing is known of the producer, who may start anywhere, but not behind what it was refused.
    partition.states.refuse(header(0), storage, NOW)
    partition.states.refuse(header(1), replicas, NOW)
    assert partition.refuse(header(1)) is storage
    assert partition.refuse(header(2)) is storage
    assert [partition.send(header(sequence)) for sequence in (0, 1, 2)] == [0, 1, 2]
    # A repetition of what is in the log may be refused, too.
    partition.states.refuse(header(2), replicas, NOW)
    assert partition.refuse(header(3)) is replicas
    assert partition.send(header(1)) == 1
    assert [partition.send(header(sequence)) for sequence in (2, 3)] == [2, 3]
    # Others, and the same producer in a new epoch, are not concerned.
    partition.states.refuse(header(4), storage, NOW)
    assert partition.send(header(0, producer_id=8)) == 4
    assert partition.send(header(0, epoch=1)) == 5
    assert partition.send(header(1, epoch=1)) == 6


def test_refusals_wrap_around_outlive_a_rebuilt_log_and_are_forgotten_in_time() -> None:
    partition = Partition()
    partition.states.refuse(header(MAX_SEQUENCE), ErrorCode.KAFKA_STORAGE_ERROR, NOW)
    partition.states.clear()
    assert partition.refuse(header(0)) is ErrorCode.KAFKA_STORAGE_ERROR
    partition.states.expire(NOW + REFUSAL_KEPT_MS - 1)
    assert partition.refuse(header(0)) is ErrorCode.KAFKA_STORAGE_ERROR
    partition.states.expire(NOW + REFUSAL_KEPT_MS)
    assert partition.send(header(0)) == 0
