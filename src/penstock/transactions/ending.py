"""EndTxn: the client commits or aborts.

The answer leaves when the Prepare record is committed: nothing can change the outcome then, and the markers are written
while the client goes on. Until they are, its next requests are told CONCURRENT_TRANSACTIONS.

Clients before transaction version 2 keep their epoch, so that a request that is repeated cannot be told from one that
is late; it is answered by what state the transaction is in. From version 2 on every ending raises the epoch, and the
answer has the new pair. A request under the epoch before the current one then is a repetition, and its answer is
repeated, if it asks for what was done. And as such clients do not tell the coordinator when they begin, they cannot
know whether it has heard of a transaction: aborting one that it knows nothing of is fine.
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
    """Decide, and write markers."""
    END_EMPTY = auto()
    """No partition has anything of it: raise the epoch, and that is all."""
    DONE = auto()
    """That is what happened: say it again."""
    REFUSE = auto()
    FENCE = auto()


_COMMIT, _ABORT = True, False
_CURRENT, _REPEATED = False, True

# (status, is it the epoch before?, commit?) -> what to do, from transaction version 2 on.
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
# The same for clients before version 2, who always have to show the current epoch.
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
    """To be written, in order. None if it was done before."""
    identity: Identity
    """Under which the client goes on, from transaction version 2 on."""


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
            # There is nobody to tell: it completes in the same breath.
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
    """Does the client show the pair that the current one was given in exchange for?

    Only if the last ending raised the epoch. A producer of an older version may have taken over since, and ends without
    that: its predecessor must not be handed its pair.
    """
    if current.client_version < EPOCH_BUMP_VERSION:
        return False
    identity = current.identity
    if identity.epoch == 0 and shown == Identity(current.previous_producer_id, MAX_EPOCH - 1):
        return True
    return shown.epoch >= 0 and shown == Identity(identity.producer_id, identity.epoch - 1)
