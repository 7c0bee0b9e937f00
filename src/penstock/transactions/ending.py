"""EndTxn: the client commits or aborts a transaction.

The answer is sent when the Prepare record is committed: nothing can change the outcome then, and the markers are
written while the client continues. Until they are written, the client's next requests get CONCURRENT_TRANSACTIONS.

Clients before transaction version 2 keep their epoch, so a retry cannot be distinguished from a late request; the
answer depends on the state of the transaction. From version 2 on every ending raises the epoch, and the answer holds
the new pair. A request under the previous epoch is then a retry, and gets the same answer again, if it asks for the
outcome that was decided. Such clients do not announce the start of a transaction, so they cannot know whether the
coordinator has heard of it: aborting an unknown transaction is valid.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from penstock.model.errors import ErrorCode, KafkaError
from penstock.transactions.joining import check_identity
from penstock.transactions.state import (
    EPOCH_BUMP_VERSION,
    MAX_EPOCH,
    NOBODY,
    Identity,
    ProducerIds,
    Status,
    Transaction,
)


class _Action(Enum):
    END = auto()
    """Decide the transaction, and write markers."""
    END_EMPTY = auto()
    """No partition has records of the transaction: only raise the epoch."""
    DONE = auto()
    """The transaction already ended this way: repeat the answer."""
    REFUSE = auto()
    FENCE = auto()


_COMMIT, _ABORT = True, False
_CURRENT, _REPEATED = False, True

# (status, is the epoch the previous one?, commit?) -> action, from transaction version 2 on.
_ACTIONS: Final[dict[tuple[Status, bool, bool], _Action]] = {
    (Status.ONGOING, _CURRENT, _COMMIT): _Action.END,
    (Status.ONGOING, _CURRENT, _ABORT): _Action.END,
    (Status.ONGOING, _REPEATED, _COMMIT): _Action.FENCE,
    (Status.ONGOING, _REPEATED, _ABORT): _Action.FENCE,
    (Status.EMPTY, _CURRENT, _COMMIT): _Action.REFUSE,
    (Status.EMPTY, _CURRENT, _ABORT): _Action.END_EMPTY,
    (Status.EMPTY, _REPEATED, _COMMIT): _Action.FENCE,
    (Status.EMPTY, _REPEATED, _ABORT): _Action.FENCE,
    (Status.COMPLETE_COMMIT, _CURRENT, _COMMIT): _Action.REFUSE,
    (Status.COMPLETE_COMMIT, _CURRENT, _ABORT): _Action.END_EMPTY,
    (Status.COMPLETE_COMMIT, _REPEATED, _COMMIT): _Action.DONE,
    (Status.COMPLETE_COMMIT, _REPEATED, _ABORT): _Action.REFUSE,
    (Status.COMPLETE_ABORT, _CURRENT, _COMMIT): _Action.REFUSE,
    (Status.COMPLETE_ABORT, _CURRENT, _ABORT): _Action.END_EMPTY,
    (Status.COMPLETE_ABORT, _REPEATED, _COMMIT): _Action.REFUSE,
    (Status.COMPLETE_ABORT, _REPEATED, _ABORT): _Action.DONE,
}
# The same for clients before version 2, which must always send the current epoch.
_OLD_ACTIONS: Final[dict[tuple[Status, bool], _Action]] = {
    (Status.ONGOING, _COMMIT): _Action.END,
    (Status.ONGOING, _ABORT): _Action.END,
    (Status.EMPTY, _COMMIT): _Action.REFUSE,
    (Status.EMPTY, _ABORT): _Action.REFUSE,
    (Status.COMPLETE_COMMIT, _COMMIT): _Action.DONE,
    (Status.COMPLETE_COMMIT, _ABORT): _Action.REFUSE,
    (Status.COMPLETE_ABORT, _COMMIT): _Action.REFUSE,
    (Status.COMPLETE_ABORT, _ABORT): _Action.DONE,
}


class Ended(NamedTuple):
    steps: list[Transaction]
    """The values to write, in order; empty if the transaction had ended before."""
    identity: Identity
    """The pair under which the client continues, from transaction version 2 on."""


def end(
    current: Transaction | None, shown: Identity, *, commit: bool, client_version: int, ids: ProducerIds, now_ms: int
) -> Ended:
    if client_version >= EPOCH_BUMP_VERSION:
        current, action = _action(current, shown, commit)
    else:
        current, action = _old_action(current, shown, commit)
    if action is _Action.FENCE:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if action is _Action.REFUSE:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"the transaction is {current.status.label}")
    steps: list[Transaction] = []
    if action is not _Action.DONE:
        steps.append(current.ended(commit=commit, client_version=client_version, ids=ids, now_ms=now_ms))
        if action is _Action.END_EMPTY:
            # No partition needs a marker: the transaction completes in the same step.
            steps.append(steps[0].completed(now_ms))
        current = steps[-1]
    return Ended(steps, current.identity if client_version >= EPOCH_BUMP_VERSION else NOBODY)


def _old_action(current: Transaction | None, shown: Identity, commit: bool) -> tuple[Transaction, _Action]:
    current = check_identity(current, shown)
    if current.prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is not complete yet")
    return current, _OLD_ACTIONS[current.status, commit]


def _action(current: Transaction | None, shown: Identity, commit: bool) -> tuple[Transaction, _Action]:
    if current is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is not complete yet")
    repeated = _is_repeated(current, shown)
    if not repeated:
        check_identity(current, shown)
    return current, _ACTIONS[current.status, repeated, commit]


def _is_repeated(current: Transaction, shown: Identity) -> bool:
    """Whether the client sent the pair that the current pair replaced.

    Only if the last ending raised the epoch. A producer of an older version may have taken over since; its endings do
    not raise the epoch, and its predecessor must not get its pair.
    """
    if current.client_version < EPOCH_BUMP_VERSION:
        return False
    identity = current.identity
    if identity.epoch == 0 and shown == Identity(current.previous_producer_id, MAX_EPOCH - 1):
        return True
    return shown.epoch >= 0 and shown == Identity(identity.producer_id, identity.epoch - 1)
