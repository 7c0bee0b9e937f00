"""A share partition that this broker serves: a group's queue over a partition that the broker leads.

It is loaded from the share coordinator when the first member fetches from it. If the group has never read the
partition, its start offset is chosen by `share.auto.offset.reset` and persisted before anything is delivered: another
leader would choose another one, and skip records.

Waiting fetches take turns: new records, or released ones, wake the fetch that has waited longest, and the next only if
there is something left. For the replica, all of them are one waiting fetch.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.broker.partitions.replica import Replica
from penstock.broker.shares.dead_letter_queue import DeadLetterQueue
from penstock.broker.shares.group_settings import ShareGroupSettings
from penstock.broker.shares.persister import UNKNOWN_OFFSET, PersistedState, Persister
from penstock.io.clock import Clock
from penstock.log.log import TimestampedOffset
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ownership import owned_by_loop
from penstock.settings.shares import EARLIEST, LATEST, offset_reset
from penstock.share_state.key import SharePartitionKey
from penstock.shares.share_partition import SharePartition
from penstock.shares.states import Acknowledgement, DeadLetter, DeliverySettings, Outcome, Transition, Write

logger = logging.getLogger("penstock.shares")

Done = Callable[[ErrorCode], None]


class WaitingShareFetch(Protocol):
    def wake(self) -> None: ...


@owned_by_loop()
class ServedPartition:
    def __init__(
        self,
        key: SharePartitionKey,
        replica: Replica,
        persister: Persister,
        *,
        settings: Callable[[], ShareGroupSettings],
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        dead_letters: DeadLetterQueue,
        count: Callable[[Mapping[Outcome, int]], None],
        lost: Callable[[ServedPartition], None],
    ) -> None:
        """`count` gets how deliveries ended; `lost` is called if the share coordinator knows another leader, or no such
        group."""
        self.key = key
        self.replica = replica
        self.leader_epoch = replica.leader_epoch
        self.settings = settings
        self.core: SharePartition | None = None  # None while the state is being loaded
        self.failure: KafkaError | None = None  # why it could not be loaded
        self.is_read_by_thread = False
        self.bytes_per_record = 0.0  # in the last read; 0 if unknown
        self._persister = persister
        self._loop = loop
        self._clock = clock
        self._dead_letters = dead_letters
        self._count = count
        self._lost = lost
        self._waiting: dict[WaitingShareFetch, None] = {}
        self._timer: asyncio.Handle | None = None
        self._timer_at_ms = math.inf  # kept here: uvloop's handle of a time that is past does not know it
        self._is_dropped = False
        self._is_waking = False

    # -- loading ------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        self._persister.read(self._read)

    def _read(self, state: PersistedState | KafkaError) -> None:
        if self._is_dropped:
            return
        if isinstance(state, KafkaError):
            self._fail(state)
        elif state.start_offset == UNKNOWN_OFFSET:
            self._choose_start()
        else:
            try:
                self._begin(SharePartition(self._delivery, state.start_offset, state.batches))
            except ValueError as error:
                logger.error("%s: the persisted state is malformed: %s", self.key, error)
                self._fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the persisted state is malformed"))

    def _choose_start(self) -> None:
        reset = offset_reset(self.settings().offset_reset)
        log = self.replica.log
        if reset == EARLIEST:
            self._start_at(log.log_start_offset)
        elif reset == LATEST or not isinstance(reset, int):
            self._start_at(self.replica.high_watermark)
        else:
            timestamp = self._clock.now_ms() - reset
            future = self._loop.run_in_executor(None, lambda: log.offset_for_timestamp(timestamp))
            future.add_done_callback(self._found_start)

    def _found_start(self, future: asyncio.Future[TimestampedOffset | None]) -> None:
        if self._is_dropped or future.cancelled():
            return
        error = future.exception()
        if error is not None:
            logger.error("%s: cannot search for the start offset", self.key, exc_info=error)
            self._fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
            return
        found = future.result()
        high_watermark = self.replica.high_watermark
        self._start_at(high_watermark if found is None else min(found.offset, high_watermark))

    def _start_at(self, offset: int) -> None:
        def persisted(code: ErrorCode) -> None:
            if self._is_dropped:
                return
            if code:
                self._fail(KafkaError(code))
            else:
                self._begin(SharePartition(self._delivery, offset))

        self._persister.write(Write(offset, 0, (), Transition()), persisted)

    def _delivery(self) -> DeliverySettings:
        return self.settings().delivery

    def _begin(self, core: SharePartition) -> None:
        self.core = core
        for letter in core.dead_letters():
            self._copy(letter)
        self._wake_all()

    def _fail(self, failure: KafkaError) -> None:
        """Waiting fetches get the error; the next one tries again."""
        self.failure = failure
        self._lost(self)

    # -- members ------------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """Locks are measured by a clock that only moves forward."""
        return int(self._loop.time() * 1000)

    @property
    def end(self) -> int:
        """Records below this offset can be delivered."""
        replica = self.replica
        return replica.last_stable_offset if self.settings().is_committed else replica.high_watermark

    @property
    def has_records(self) -> bool:
        """Whether a fetch may find records."""
        core = self.core
        if core is None or self.is_read_by_thread:
            return False
        core.log_starts_at(self.replica.log.log_start_offset)
        return core.next_fetch_offset < self.end and core.can_acquire

    def acknowledge(self, member: str, acknowledgements: list[Acknowledgement], done: Done) -> None:
        """`done` gets the outcome when it is persisted."""
        assert self.core is not None
        try:
            write = self.core.acknowledge(member, acknowledgements, self.now_ms)
        except KafkaError as error:
            done(error.code)
            return
        if write is None:
            self.changed()
            done(ErrorCode.NONE)
        else:
            self._persist(write, done)

    def release(self, member: str) -> None:
        """The member's session has ended."""
        write = None if self.core is None else self.core.release(member)
        if write is not None:
            self._persist(write, _ignore)

    def _persist(self, write: Write, done: Done) -> None:
        def persisted(code: ErrorCode) -> None:
            core = self.core
            assert core is not None
            if code is ErrorCode.NONE:
                core.committed(write)
                if not write.is_firm:
                    self._count(write.outcomes)
                for letter in write.dead_letters:
                    self._copy(letter)
            elif code in _LOST:
                self._lost(self)
            elif not self._is_dropped:
                also = core.failed(write, self.now_ms)
                if also is not None:
                    self._persist(also, _ignore)
            self.changed()
            done(code)

        if write.is_firm:  # it holds already; if it is sent again, that has no outcomes
            self._count(write.outcomes)
        self._persister.write(write, persisted)

    def _copy(self, letter: DeadLetter) -> None:
        """Copy records to the dead letter queue; then they are archived."""

        def copied() -> None:
            write = None if self.core is None or self._is_dropped else self.core.dead_lettered(letter)
            if write is not None:
                self._persist(write, _ignore)
                self.changed()

        self._dead_letters.copy(self.key.group_id, self.replica, letter, self.settings, copied)

    # -- locks --------------------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """States have changed: locks may end at another time, and there may be records to deliver again."""
        if self._is_dropped or self.core is None:
            return
        at_ms = self.core.wake_at_ms
        if at_ms is not None and at_ms < self._timer_at_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(at_ms / 1000, self._expire)
            self._timer_at_ms = at_ms
        self.wake()

    def _expire(self) -> None:
        self._timer = None
        self._timer_at_ms = math.inf
        assert self.core is not None
        write = self.core.expire(self.now_ms)
        if write is not None:
            self._persist(write, _ignore)
        self.changed()

    # -- waiting fetches ----------------------------------------------------------------------------------------------

    def wait(self, fetch: WaitingShareFetch) -> None:
        self._waiting[fetch] = None
        self.replica.waiting_fetches[self] = None

    def forget(self, fetch: WaitingShareFetch) -> None:
        self._waiting.pop(fetch, None)
        if not self._waiting:
            self.replica.waiting_fetches.pop(self, None)

    def data_arrived(self, size: int) -> bool:
        return True

    def wake(self) -> None:
        """There may be records: wake the fetches, as long as there are."""
        if self._is_waking:
            return  # a fetch that was woken has acquired records: the loop below goes on
        self._is_waking = True
        for fetch in list(self._waiting):
            if not self.has_records:
                break
            fetch.wake()
        self._is_waking = False

    def _wake_all(self) -> None:
        for fetch in list(self._waiting):
            fetch.wake()

    # -- the end ------------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether everything is persisted, and no request waits."""
        return self._persister.is_idle and not self._waiting

    def drop(self) -> None:
        """This broker serves it no longer. Writes that were sent are still answered."""
        self._is_dropped = True
        if self._timer is not None:
            self._timer.cancel()
        self.replica.waiting_fetches.pop(self, None)
        self._wake_all()


_LOST = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)


def _ignore(code: ErrorCode) -> None:
    """No request waits for the outcome."""
