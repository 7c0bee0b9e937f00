"""InitProducerId: a producer takes over a transactional id, and whoever had it before is fenced.

The producer gets the next epoch, so that everything sent under an earlier one is refused from then on, by coordinators
and partitions alike. Three things make this less simple:

- *A transaction is open.* It is aborted first, which takes its time: the client is told CONCURRENT_TRANSACTIONS and
  comes again. If it asks to keep the transaction (KIP-939), it gets the next epoch at once, and is told which
  transaction waits for its decision.
- *A producer recovers* (KIP-360). It shows the pair it had. It is fenced unless it was the last one to have the id.
  The epoch before the current one is accepted too if the current one was given in exchange for it: then the first
  answer was lost, and the same answer is given again. `last_epoch` remembers that, in memory only: who is unlucky
  enough to lose the answer and the coordinator at once is fenced.
- *The epochs are used up.* Then the producer gets a new id and starts over at epoch 0.

Other than Kafka, a producer that recovers while a transaction is open has to show the pair the transaction runs
under: in Kafka a fenced producer could still abort the transaction of its successor.
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
    """What the client gets; nobody, if it has to come again once the transaction that was open is aborted."""
    last_epoch: int
    """The epoch that `identity` was given in exchange for, if it was."""
    ongoing: Identity = NOBODY
    """The transaction that was kept."""


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
    """`current` is None for a transactional id that is new; `transaction_version` is what the cluster has finalized."""
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
    """Abort an open transaction in the coordinator's own name: whoever has it is fenced."""
    # Between transaction versions 0 and 1 there is no difference but in how records are written.
    version = transaction_version if transaction_version >= EPOCH_BUMP_VERSION else 0
    return current.ended(commit=False, client_version=version, ids=ids, now_ms=now_ms, fence=True)


def last_epoch_of_fenced(current: Transaction, transaction_version: int) -> int:
    """From version 2 on, a producer that was fenced for being slow may recover, unless another one has come."""
    return current.identity.epoch if transaction_version >= EPOCH_BUMP_VERSION else NO_EPOCH


def _keep(current: Transaction, shown: Identity, timeout_ms: int, ids: ProducerIds, now_ms: int) -> Initialized:
    identity = current.identity.bumped(ids)
    last_epoch = NO_EPOCH if shown == NOBODY else shown.epoch
    ongoing = Identity(current.producer_id, current.producer_epoch)
    return Initialized(current.kept_for(identity, timeout_ms, now_ms), identity, last_epoch, ongoing)


def _next_identity(current: Transaction, shown: Identity, last_epoch: int, ids: ProducerIds) -> tuple[Identity, int]:
    """The pair that comes next, and the epoch it is given in exchange for."""
    identity = current.identity
    if shown == NOBODY:
        return identity.bumped(ids), NO_EPOCH
    if shown == identity:
        return identity.bumped(ids), shown.epoch
    replaced = shown.producer_id == current.previous_producer_id and shown.exhausted
    if (shown.producer_id == identity.producer_id or replaced) and shown.epoch == last_epoch:
        return identity, last_epoch
    raise KafkaError(ErrorCode.PRODUCER_FENCED)
