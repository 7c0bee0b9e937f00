"""Conversion of transactions to and from records of `__transaction_state`, in Kafka's format."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from penstock.coordinator.decision import CoordinatorRecord
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from penstock.transactions.state import NO_EPOCH, NO_PRODUCER_ID, Status, Transaction

# From this level of the feature `transaction.version` on, values have tagged fields, which older coordinators ignore.
TAGGED_FIELDS_VERSION: Final = 1


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic, sorted, so that the same transaction always makes the same bytes."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return topics


def record_of(transaction: Transaction, transaction_version: int) -> CoordinatorRecord:
    """`transaction_version` is the level that is finalized in the cluster."""
    partitions = None
    if transaction.status is not Status.EMPTY:
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=partition_ids)
            for topic, partition_ids in by_topic(transaction.partitions).items()
        ]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        next_producer_epoch=transaction.next_producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.status,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )
    if transaction_version >= TAGGED_FIELDS_VERSION:
        value.previous_producer_id = transaction.previous_producer_id
    return CoordinatorRecord(TransactionLogKey(transactional_id=transaction.transactional_id), value)


def value_version(value: TransactionLogValue) -> int:
    """Return the version to write a value in: 0 unless it has fields that only version 1 can carry."""
    plain = (
        value.previous_producer_id == NO_PRODUCER_ID
        and value.next_producer_id == NO_PRODUCER_ID
        and value.next_producer_epoch == NO_EPOCH
        and value.client_transaction_version == 0
    )
    return 0 if plain else 1


def tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None)


def transaction_of(key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
    status = Status(value.transaction_status)
    return Transaction(
        key.transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        status,
        frozenset(
            TopicPartition(topic.topic, partition_id)
            for topic in value.transaction_partitions or ()
            for partition_id in topic.partition_ids
        ),
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        value.previous_producer_id,
        value.next_producer_id,
        value.next_producer_epoch,
        value.client_transaction_version,
    )
