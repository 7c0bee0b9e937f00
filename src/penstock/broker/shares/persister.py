"""Persists the state of one share partition with its share coordinator.

Writes are persisted in their order: there is one request at a time, and writes that arrive meanwhile go together in the
next, unless one of them changes what another one says. A request whose outcome is unknown is a failure for the caller,
although the coordinator may have carried it out. That is safe: the coordinator keeps the state with the higher delivery
count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from penstock.broker.coordinators.share_states import READ, WRITE, ShareStates
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ownership import owned_by_loop
from penstock.protocol.messages import read_share_group_state, write_share_group_state
from penstock.share_state.key import SharePartitionKey
from penstock.shares.states import RecordState, StateBatch, Write

UNKNOWN_OFFSET = -1  # no start offset was ever persisted


class PersistedState(NamedTuple):
    state_epoch: int
    start_offset: int
    batches: list[StateBatch]


class _Queued(NamedTuple):
    write: Write
    done: Callable[[ErrorCode], None]


@owned_by_loop()
class Persister:
    def __init__(self, states: ShareStates, key: SharePartitionKey, leader_epoch: int) -> None:
        self._states = states
        self._key = key
        self._leader_epoch = leader_epoch
        self._state_epoch = 0
        self._queue: deque[_Queued] = deque()
        self._sent: list[_Queued] = []

    @property
    def is_idle(self) -> bool:
        return not self._sent and not self._queue

    def read(self, done: Callable[[PersistedState | KafkaError], None]) -> None:
        """Read the state; the coordinator refuses earlier leaders from then on."""

        def answered(result: Any) -> None:
            if result.error_code:
                done(KafkaError(for_client(ErrorCode(result.error_code)), result.error_message))
                return
            self._state_epoch = result.state_epoch
            batches = [
                StateBatch(
                    batch.first_offset, batch.last_offset, RecordState(batch.delivery_state), batch.delivery_count
                )
                for batch in result.state_batches
            ]
            done(PersistedState(result.state_epoch, result.start_offset, batches))

        part = read_share_group_state.Partition(partition=self._key.partition, leader_epoch=self._leader_epoch)
        self._states.ask(READ, self._key, part, answered)

    def write(self, write: Write, done: Callable[[ErrorCode], None]) -> None:
        """`done` gets the outcome later, as an error for clients."""
        self._queue.append(_Queued(write, done))
        if not self._sent:
            self._send()

    def _send(self) -> None:
        self._sent = _take_together(self._queue)
        last = self._sent[-1].write
        part = write_share_group_state.Partition(
            partition=self._key.partition,
            state_epoch=self._state_epoch,
            leader_epoch=self._leader_epoch,
            start_offset=last.start_offset,
            delivery_complete_count=last.delivery_complete_count,
            state_batches=[
                write_share_group_state.StateBatch(
                    first_offset=first, last_offset=end, delivery_state=state, delivery_count=count
                )
                for first, end, state, count in sorted(batch for sent in self._sent for batch in sent.write.batches)
            ],
        )
        self._states.ask(WRITE, self._key, part, self._answered)

    def _answered(self, result: Any) -> None:
        code = for_client(ErrorCode(result.error_code))
        sent, self._sent = self._sent, []
        if self._queue:
            self._send()
        for queued in sent:
            queued.done(code)


def _take_together(queue: deque[_Queued]) -> list[_Queued]:
    """Take the longest beginning of the queue in which no two writes name the same offset."""
    taken = [queue.popleft()]
    batches = sorted(taken[0].write.batches)
    while queue:
        more = sorted([*batches, *queue[0].write.batches])
        if _overlap(more):
            break
        batches = more
        taken.append(queue.popleft())
    return taken


def _overlap(batches: Sequence[StateBatch]) -> bool:
    return any(former.last >= latter.first for former, latter in pairwise(batches))


def for_client(code: ErrorCode) -> ErrorCode:
    """What the share coordinator's answer means to a member of the group."""
    match code:
        case ErrorCode.NONE | ErrorCode.GROUP_ID_NOT_FOUND | ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return code
        case (
            ErrorCode.NOT_COORDINATOR
            | ErrorCode.COORDINATOR_NOT_AVAILABLE
            | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode.NETWORK_EXCEPTION
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.FENCED_LEADER_EPOCH | ErrorCode.FENCED_STATE_EPOCH:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR
