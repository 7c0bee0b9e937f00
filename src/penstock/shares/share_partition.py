"""One partition as one share group sees it: a queue of records that members acquire, acknowledge and release.

Laws:

- A record has at most one owner. Its delivery count rises with each acquisition and never falls.
- An acknowledgement applies to all records it names, or to none. It holds once it is persisted (`committed`); if that
  fails (`failed`), its records are acquired as before.
- A record that was accepted, rejected or archived is final. The start offset (SPSO) is the first record that is not.
- A lock that ends, and a session that ends, release records; at the delivery limit a release archives instead. The end
  of a lock takes effect at once, and is sent to the coordinator until it confirms. The start offset does not pass the
  record before.

The caller reads the log from `next_fetch_offset` on and passes what it found to `acquire`. It persists each `Write`, in
their order, and calls `expire` at `wake_at_ms`. Errors are raised as KafkaError: INVALID_REQUEST,
INVALID_RECORD_STATE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby

from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ownership import owned_by_loop
from penstock.shares.acquiring import Acquiring
from penstock.shares.in_flight import Batch, InFlight, Run
from penstock.shares.states import (
    Acknowledgement,
    AcknowledgeType,
    AcquiredRange,
    AcquireMode,
    DeadLetter,
    DeliverySettings,
    Outcome,
    Reason,
    RecordState,
    Span,
    StateBatch,
    Tally,
    Transition,
    Write,
)

STALE_LOCKS = 64  # tolerated before the locks are sorted out


@owned_by_loop()
class SharePartition:
    def __init__(
        self, settings: Callable[[], DeliverySettings], start_offset: int, batches: Sequence[StateBatch] = ()
    ) -> None:
        """With the state that the share coordinator knows; raises ValueError if that is malformed."""
        self._settings = settings
        self._in_flight = InFlight(start_offset, batches)
        self._locks: list[tuple[int, int, int]] = []  # a heap of (end of the lock, first, last); some are outdated

    # -- offsets ------------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """SPSO: the first record that is not final."""
        return self._in_flight.start_offset

    @property
    def end_offset(self) -> int:
        """SPEO: the last record that was acquired."""
        return self._in_flight.end_offset

    @property
    def delivery_complete_count(self) -> int:
        return self._in_flight.final_count

    @property
    def next_fetch_offset(self) -> int:
        return self._in_flight.next_fetch_offset()

    @property
    def can_acquire(self) -> bool:
        """Whether a fetch may get records: there are locks left, or released records to deliver again."""
        in_flight = self._in_flight
        if in_flight.next_fetch_offset() <= in_flight.end_offset:
            return True
        return in_flight.open_count < self._settings().max_record_locks

    def states(self) -> list[StateBatch]:
        """Everything in flight, for tests."""
        return [StateBatch(run.first, run.last, run.state, run.delivery_count) for run in self._in_flight]

    def tally(self) -> Tally:
        limit = self._settings().delivery_count_limit
        acquired = last_attempts = 0
        for run in self._in_flight:
            is_acquired = run.state is RecordState.ACQUIRED
            acquired += run.size * is_acquired
            if is_acquired or run.state is RecordState.AVAILABLE:
                last_attempts += run.size * (run.delivery_count + (not is_acquired) >= limit)
        return Tally(acquired, last_attempts)

    def owner_of(self, offset: int) -> str:
        """The member that has acquired a record, or an empty string."""
        run = self._in_flight.at_or_after(offset)
        return run.member if run is not None and run.first <= offset and run.state is RecordState.ACQUIRED else ""

    def log_starts_at(self, log_start_offset: int) -> bool:
        """Forget records that were deleted from the log; returns whether there were any."""
        if log_start_offset <= self._in_flight.start_offset:
            return False
        self._in_flight.start_at(log_start_offset)
        return True

    # -- acquiring ----------------------------------------------------------------------------------------------------

    def acquire(
        self,
        member: str,
        fetch_offset: int,
        batches: Sequence[Span],
        now_ms: int,
        *,
        max_records: int,
        batch_size: int,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        aborted: Sequence[Span] = (),
    ) -> list[AcquiredRange]:
        """Acquire records of the batches that were read from `fetch_offset` on; `aborted` are those to archive."""
        in_flight, settings = self._in_flight, self._settings()
        if max_records <= 0 or not batches or batches[-1].last < in_flight.start_offset:
            return []
        self._archive_missing(fetch_offset, batches[0].first - 1)
        last = batches[-1].last
        locks_left = settings.max_record_locks - in_flight.open_count
        if locks_left <= 0:  # records that were released are delivered all the same
            last = min(last, in_flight.end_offset)
            locks_left = in_flight.end_offset - fetch_offset + 1
        lock_ends_ms = now_ms + settings.record_lock_duration_ms

        def lock(run: Run) -> None:
            in_flight.set_state(run, RecordState.ACQUIRED)
            run.member = member
            self._lock(run, lock_ends_ms)

        acquiring = Acquiring(
            in_flight,
            settings,
            lock,
            batches=batches,
            mode=mode,
            batch_size=batch_size,
            max_records=min(max_records, locks_left),
        )
        acquired = acquiring.run(max(batches[0].first, in_flight.start_offset), last)
        if aborted and acquired:
            acquired = self._archive_aborted(acquired, aborted)
        in_flight.advance()
        return acquired

    def _archive_missing(self, first: int, last: int) -> None:
        """The log has no records here: compaction has removed them."""
        in_flight = self._in_flight
        first = max(first, in_flight.start_offset)
        if first > last:
            return
        for run in in_flight.overlapping(first, last):
            if run.can_be_acquired:
                for part in in_flight.within(max(first, run.first), min(last, run.last)):
                    in_flight.set_state(part, RecordState.ARCHIVED)
        for gap in in_flight.gaps(first, last):
            in_flight.add(Run(*gap, RecordState.ARCHIVED, 0, Batch(*gap)))
        in_flight.advance()

    def _archive_aborted(self, acquired: Iterable[AcquiredRange], aborted: Sequence[Span]) -> list[AcquiredRange]:
        """Archive records of aborted transactions; returns what is left."""
        left = []
        for first, last, delivery_count in acquired:
            for span in aborted:
                if span.last < first or span.first > last:
                    continue
                for run in self._in_flight.within(max(first, span.first), min(last, span.last)):
                    run.member = ""
                    self._in_flight.set_state(run, RecordState.ARCHIVED)
                if span.first > first:
                    left.append(AcquiredRange(first, span.first - 1, delivery_count))
                first = span.last + 1
            if first <= last:
                left.append(AcquiredRange(first, last, delivery_count))
        return left

    # -- acknowledging ------------------------------------------------------------------------------------------------

    def acknowledge(self, member: str, acknowledgements: Iterable[Acknowledgement], now_ms: int) -> Write | None:
        """None if there is nothing to persist: the acknowledgement holds already."""
        changes = _Changes(self._in_flight, self._settings())
        try:
            for acknowledgement in acknowledgements:
                for first, last, kind in _by_type(acknowledgement):
                    self._acknowledge(changes, member, first, last, kind, now_ms)
        except KafkaError:
            self._undo(changes.transition)
            raise
        return changes.write()

    def _acknowledge(
        self, changes: _Changes, member: str, first: int, last: int, kind: AcknowledgeType, now_ms: int
    ) -> None:
        in_flight = self._in_flight
        first = max(first, in_flight.start_offset)
        if last < first:
            return
        if last > in_flight.end_offset:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"offset {last} is past the acquired records")
        self._check_owned(member, first, last)
        runs = in_flight.within(first, last)
        if kind is AcknowledgeType.RENEW:
            settings = self._settings()
            if not settings.renew_enabled:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "locks cannot be renewed in this group")
            for run in runs:
                self._lock(run, now_ms + settings.record_lock_duration_ms)
            return
        for run in runs:
            changes.acknowledge(run, kind)

    def _check_owned(self, member: str, first: int, last: int) -> None:
        for run in self._in_flight.overlapping(first, last):
            if run.first > first:
                break
            if run.state is not RecordState.ACQUIRED or run.transition is not None:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, f"offset {first} is not acquired")
            if run.member != member:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, f"another member has acquired offset {first}")
            first = run.last + 1
        if first <= last:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, f"offset {first} is not acquired")

    def release(self, member: str) -> Write | None:
        """The member's session ended: release what it has acquired."""
        changes = _Changes(self._in_flight, self._settings())
        for run in self._in_flight:
            if run.member == member and run.state is RecordState.ACQUIRED:
                changes.acknowledge(run, AcknowledgeType.RELEASE)
        return changes.write()

    # -- persisting ---------------------------------------------------------------------------------------------------

    def committed(self, write: Write) -> None:
        """The write is persisted; its dead letters can be copied."""
        for run in self._changed_by(write.transition):
            self._in_flight.settle(run)
        self._in_flight.advance()

    def failed(self, write: Write, now_ms: int) -> Write | None:
        """The write could not be persisted. Returns another one that is due now.

        Records that were acknowledged are acquired as before, or released if their lock has ended. What holds anyway
        is sent again, so that a later leader knows the delivery counts.
        """
        if not write.is_firm:
            self._undo(write.transition)
            return self.expire(now_ms)
        changes = _Changes(self._in_flight, self._settings(), is_firm=True)
        for first, last, state, delivery_count in write.batches:
            for run in self._in_flight.overlapping(first, last):
                is_same = (run.state, run.delivery_count) == (state, delivery_count)
                if is_same and run.transition in (None, write.transition):
                    changes.to(run, state, Reason.DELIVERY_COUNT)
        return changes.write()

    def _undo(self, transition: Transition) -> None:
        for run in self._changed_by(transition):
            self._in_flight.set_state(run, RecordState.ACQUIRED)
            self._lock(run, run.lock_ends_ms)

    def _changed_by(self, transition: Transition) -> list[Run]:
        return [
            run
            for first, last in transition.spans
            for run in self._in_flight.overlapping(first, last)
            if run.transition is transition
        ]

    # -- locks --------------------------------------------------------------------------------------------------------

    @property
    def wake_at_ms(self) -> int | None:
        """When the next lock ends."""
        while self._locks and not self._locked(*self._locks[0]):
            heappop(self._locks)
        return self._locks[0][0] if self._locks else None

    def expire(self, now_ms: int) -> Write | None:
        """Release the records whose lock has ended."""
        changes = _Changes(self._in_flight, self._settings(), is_firm=True)
        while self._locks and self._locks[0][0] <= now_ms:
            for run in self._locked(*heappop(self._locks)):
                changes.acknowledge(run, AcknowledgeType.RELEASE, Outcome.TIMED_OUT)
                run.member = ""
        return changes.write()

    def _lock(self, run: Run, ends_ms: int) -> None:
        run.lock_ends_ms = ends_ms
        heappush(self._locks, (ends_ms, run.first, run.last))
        if len(self._locks) > 2 * self._in_flight.open_count + STALE_LOCKS:
            self._locks = [
                (held.lock_ends_ms, held.first, held.last)
                for held in self._in_flight
                if held.state is RecordState.ACQUIRED
            ]
            heapify(self._locks)

    def _locked(self, ends_ms: int, first: int, last: int) -> list[Run]:
        """The records that are still locked until then. If an acknowledgement is being persisted, its outcome decides
        (`failed` locks the records again)."""
        return [
            run
            for run in self._in_flight.overlapping(first, last)
            if run.lock_ends_ms == ends_ms and run.state is RecordState.ACQUIRED
        ]

    # -- dead letters -------------------------------------------------------------------------------------------------

    def dead_letters(self) -> list[DeadLetter]:
        """Records that another leader was about to copy to the dead letter queue."""
        limit = self._settings().delivery_count_limit
        return [
            DeadLetter(
                run.first,
                run.last,
                run.delivery_count,
                Reason.DELIVERY_COUNT if run.delivery_count >= limit else Reason.REJECTED,
            )
            for run in self._in_flight
            if run.state is RecordState.ARCHIVING
        ]

    def dead_lettered(self, letter: DeadLetter) -> Write | None:
        """The records are in the dead letter queue, or cannot be copied."""
        changes = _Changes(self._in_flight, self._settings(), is_firm=True)
        first = max(letter.first, self._in_flight.start_offset)
        for run in self._in_flight.overlapping(first, letter.last):
            if run.state is RecordState.ARCHIVING and run.transition is None:
                changes.to(run, RecordState.ARCHIVED)
        return changes.write()


class _Changes:
    """Changes of state that are persisted together."""

    def __init__(self, in_flight: InFlight, settings: DeliverySettings, *, is_firm: bool = False) -> None:
        """`is_firm`: the changes hold whether they can be persisted or not."""
        self.transition = Transition()
        self._in_flight = in_flight
        self._limit = settings.delivery_count_limit
        self._discarded = RecordState.ARCHIVING if settings.has_dead_letter_queue else RecordState.ARCHIVED
        self._is_firm = is_firm
        self._batches: list[StateBatch] = []
        self._dead_letters: list[DeadLetter] = []
        self._outcomes: Counter[Outcome] = Counter()

    def acknowledge(self, run: Run, kind: AcknowledgeType, released: Outcome = Outcome.RELEASED) -> None:
        """`released`: the outcome if the record is released."""
        match kind:
            case AcknowledgeType.ACCEPT:
                self._outcomes[Outcome.ACCEPTED] += run.size
                self.to(run, RecordState.ACKNOWLEDGED)
            case AcknowledgeType.GAP:
                self.to(run, RecordState.ARCHIVED)
            case AcknowledgeType.REJECT:
                self._outcomes[Outcome.REJECTED] += run.size
                self.to(run, self._discarded, Reason.REJECTED)
            case _ if run.delivery_count >= self._limit:
                self._outcomes[Outcome.EXHAUSTED] += run.size
                self.to(run, self._discarded, Reason.DELIVERY_COUNT)
            case _:
                self._outcomes[released] += run.size
                self.to(run, RecordState.AVAILABLE)

    def to(self, run: Run, state: RecordState, reason: Reason | None = None) -> None:
        # A record that is released can be delivered at once. One that is final stays above the start offset until that
        # is persisted: below it, acknowledgements that are too late would be confirmed.
        can_be_acquired = self._is_firm and state is RecordState.AVAILABLE
        self._in_flight.set_state(run, state, None if can_be_acquired else self.transition)
        self.transition.spans.append(Span(run.first, run.last))
        if state is RecordState.ARCHIVING and reason is not None:
            self._dead_letters.append(DeadLetter(run.first, run.last, run.delivery_count, reason))
        batches = self._batches
        if batches and (batches[-1].last + 1, *batches[-1][2:]) == (run.first, state, run.delivery_count):
            batches[-1] = StateBatch(batches[-1].first, run.last, state, run.delivery_count)
        else:
            batches.append(StateBatch(run.first, run.last, state, run.delivery_count))

    def write(self) -> Write | None:
        if not self._batches:
            return None
        return Write(
            self._in_flight.start_offset,
            self._in_flight.final_count,
            tuple(self._batches),
            self.transition,
            self._is_firm,
            tuple(self._dead_letters),
            self._outcomes,
        )


def _by_type(acknowledgement: Acknowledgement) -> Iterator[tuple[int, int, AcknowledgeType]]:
    """The ranges of equal types."""
    first, last, types = acknowledgement
    if len(types) == 1:
        yield first, last, types[0]
        return
    for kind, group in groupby(types):
        size = sum(1 for _ in group)
        yield first, first + size - 1, kind
        first += size
