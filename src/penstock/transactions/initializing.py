"""InitProducerId: a producer takes over a transactional id, and its predecessor is fenced.

The producer gets the next epoch, so that coordinators and partitions refuse everything sent under an earlier one. Three
cases make this less simple:

- *A transaction is open.* It is aborted first, which takes time: the client gets CONCURRENT_TRANSACTIONS and tries
  again. If it asks to keep the transaction (KIP-939), it gets the next epoch at once, together with the pair of the
  transaction that waits for its decision.
- *A producer recovers* (KIP-360). It sends the pair it had. It is fenced unless it was the last producer of the id. The
  previous epoch is accepted too if the current one replaced it: then the first answer was lost, and the same answer is
  sent again. `last_epoch` records that, in memory only: a producer that loses the answer and the coordinator at the
  same time is fenced.
- *The epochs are used up.* Then the producer gets a new id and starts at epoch 0.

Unlike in Kafka, a producer that recovers while a transaction is open must send the pair of that transaction: in Kafka a
fenced producer could still abort the transaction of its successor.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.settings.transactions import TransactionSettings
from penstock.transactions.state import (
    EPOCH_BUMP_VERSION,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    NOBODY,
    Identity,
    ProducerIds,
    Status,
    Transaction,
)


class Initialized(NamedTuple):
    transaction: Transaction
    identity: Identity
    """The pair for the client; NOBODY if it must try again once the open transaction is aborted."""
    last_epoch: int
    """The epoch that `identity` replaced, if any."""
    ongoing: Identity = NOBODY
    """The pair of the transaction that was kept."""


def check_request(request: InitProducerIdRequest, settings: TransactionSettings, transaction_version: int) -> None:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id comes with its epoch, or not at all")
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    two_phase = settings.transaction_two_phase_commit_enable
    if request.enable2_pc and not two_phase:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "two-phase commit is not enabled")
    if request.keep_prepared_txn and not (two_phase and transaction_version >= EPOCH_BUMP_VERSION):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "prepared transactions cannot be kept here")
    if not request.enable2_pc and not 0 < request.transaction_timeout_ms <= settings.transaction_max_timeout_ms:
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)


def initialize(
    current: Transaction | None,
    request: InitProducerIdRequest,
    last_epoch: int,
    transaction_version: int,
    ids: ProducerIds,
    now_ms: int,
) -> Initialized:
    """`current` is None for a new transactional id; `transaction_version` is the level finalized in the cluster."""
    timeout_ms = NO_TIMEOUT_MS if request.enable2_pc else request.transaction_timeout_ms
    if current is None:
        identity = Identity(ids.take(), 0)
        created = Transaction(request.transactional_id or "", identity.producer_id, identity.epoch, timeout_ms)
        return Initialized(created.initialized(identity, timeout_ms, now_ms), identity, NO_EPOCH)
    if current.prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is not complete yet")
    shown = Identity(request.producer_id, request.producer_epoch)
    if current.status is Status.ONGOING:
        if shown not in (NOBODY, current.identity):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if request.keep_prepared_txn:
            return _keep(current, shown, timeout_ms, ids, now_ms)
        aborted = fence(current, transaction_version, ids, now_ms)
        return Initialized(aborted, NOBODY, last_epoch_of_fenced(current, transaction_version))
    identity, last_epoch = _next_identity(current, shown, last_epoch, ids)
    return Initialized(current.initialized(identity, timeout_ms, now_ms), identity, last_epoch)


def fence(current: Transaction, transaction_version: int, ids: ProducerIds, now_ms: int) -> Transaction:
    """Abort an open transaction on behalf of the coordinator, and fence its producer."""
    # Transaction versions 0 and 1 differ only in how records are written.
    version = transaction_version if transaction_version >= EPOCH_BUMP_VERSION else 0
    return current.ended(commit=False, client_version=version, ids=ids, now_ms=now_ms, fence=True)


def last_epoch_of_fenced(current: Transaction, transaction_version: int) -> int:
    """From version 2 on, a producer that was fenced by a time-out may recover, unless another one has taken over."""
    return current.identity.epoch if transaction_version >= EPOCH_BUMP_VERSION else NO_EPOCH


def _keep(current: Transaction, shown: Identity, timeout_ms: int, ids: ProducerIds, now_ms: int) -> Initialized:
    identity = current.identity.bumped(ids)
    last_epoch = NO_EPOCH if shown == NOBODY else shown.epoch
    ongoing = Identity(current.producer_id, current.producer_epoch)
    return Initialized(current.kept_for(identity, timeout_ms, now_ms), identity, last_epoch, ongoing)


def _next_identity(current: Transaction, shown: Identity, last_epoch: int, ids: ProducerIds) -> tuple[Identity, int]:
    """Return the next pair, and the epoch that it replaces."""
    identity = current.identity
    if shown == NOBODY:
        return identity.bumped(ids), NO_EPOCH
    if shown == identity:
        return identity.bumped(ids), shown.epoch
    replaced = shown.producer_id == current.previous_producer_id and shown.exhausted
    if (shown.producer_id == identity.producer_id or replaced) and shown.epoch == last_epoch:
        return identity, last_epoch
    raise KafkaError(ErrorCode.PRODUCER_FENCED)
