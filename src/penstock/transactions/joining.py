"""AddPartitionsToTxn and AddOffsetsToTxn: add partitions to a transaction before it writes to them.

The first partition begins the transaction. Records in a partition that the transaction does not list would never be
committed or aborted; so nothing may be written before the record with the partition is committed. Clients of
transaction version 2 do not send these requests: the leader of the partition adds it for them when the first record
arrives. For older clients, which do send them, the leader only verifies (`verify`) that they did.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.transactions.state import Identity, Status, Transaction


def join(
    current: Transaction | None,
    shown: Identity,
    partitions: Collection[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Transaction | None:
    """Return the transaction with the partitions; None if it already contains them."""
    if current is not None and current.prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is not complete yet")
    current = _check_open(current, shown)
    if current.status is Status.ONGOING and current.partitions.issuperset(partitions):
        return None
    return current.joined_by(partitions, client_version, now_ms)


def verify(current: Transaction | None, shown: Identity, partition: TopicPartition) -> ErrorCode:
    try:
        current = _check_open(current, shown)
    except KafkaError as refused:
        return refused.code
    if current.prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE if partition in current.partitions else ErrorCode.TRANSACTION_ABORTABLE


def _check_open(current: Transaction | None, shown: Identity) -> Transaction:
    current = check_identity(current, shown)
    if current.kept:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "a transaction that was kept can only be ended")
    return current


def check_identity(current: Transaction | None, shown: Identity) -> Transaction:
    if current is None or shown.producer_id != current.identity.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if shown.epoch != current.identity.epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return current
