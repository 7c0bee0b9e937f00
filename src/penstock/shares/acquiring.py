"""Chooses records for a fetch.

Records that were released come first, then new ones. Batches that were acquired together stay together, so that members
can acknowledge them together: the limit of records is exceeded by the rest of a batch, unless the client insists on it
(record-limit mode).

A batch that no member could process is dangerous for the members that get it. From half of the delivery limit on it is
delivered alone, in parts that halve with each attempt; the last attempt is for a single record. The record that is at
fault is then archived without its neighbours.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter

from penstock.shares.in_flight import Batch, InFlight, Run
from penstock.shares.states import AcquiredRange, AcquireMode, DeliverySettings, RecordState, Span

LEAST_THROTTLED = 2  # a batch is delivered whole at least this often
_first = attrgetter("first")


class Acquiring:
    """One acquisition: goes through the offsets of what was read, and takes what can be acquired."""

    def __init__(
        self,
        in_flight: InFlight,
        settings: DeliverySettings,
        lock: Callable[[Run], None],
        *,
        batches: Sequence[Span],
        mode: AcquireMode,
        batch_size: int,
        max_records: int,
    ) -> None:
        """`batches`: those read from the log. `lock` makes a member the owner of a run."""
        self._in_flight = in_flight
        self._lock = lock
        self._batches = batches
        self._is_strict = mode is AcquireMode.RECORD_LIMIT
        self._batch_size = batch_size
        self._left = max_records
        self._limit = settings.delivery_count_limit
        self._throttled_from = max(LEAST_THROTTLED, (self._limit + 1) // 2)
        self._taken: list[AcquiredRange] = []

    def run(self, first: int, last: int) -> list[AcquiredRange]:
        offset = first
        while offset <= last and self._left > 0:
            run = self._in_flight.at_or_after(offset)
            if run is None or run.first > offset:
                offset = self._take_new(offset, last if run is None else min(last, run.first - 1)) + 1
            else:
                end = min(last, run.batch.last)
                if not self._take_again(self._pieces(run.batch, offset, end)):
                    break
                offset = end + 1
        return self._taken

    # -- new records ------------------------------------------------------------------------------------------------

    def _take_new(self, first: int, last: int) -> int:
        """Acquire records for the first time; returns the last."""
        if self._left < last - first + 1:
            wanted = first + self._left - 1
            last = wanted if self._is_strict else min(last, self._end_of_batch(wanted))
        for span in self._new_batches(first, last):
            run = Run(*span, RecordState.AVAILABLE, 0, Batch(*span))
            self._in_flight.add(run)
            self._acquire(run, is_continued=False)
        return last

    def _end_of_batch(self, offset: int) -> int:
        index = bisect_right(self._batches, offset, key=_first) - 1
        return max(offset, self._batches[index].last) if index >= 0 else offset

    def _new_batches(self, first: int, last: int) -> list[Span]:
        """Batches of about the size that the client prefers, each of whole batches of the log."""
        spans = []
        if not self._is_strict and last - first + 1 > self._batch_size:
            for base, _ in self._batches:
                if first + self._batch_size <= base <= last:
                    spans.append(Span(first, base - 1))
                    first = base
        spans.append(Span(first, last))
        return spans

    # -- records that were delivered before -------------------------------------------------------------------------

    def _pieces(self, batch: Batch, first: int, last: int) -> list[Run]:
        found = [run for run in self._in_flight.overlapping(first, last) if run.batch is batch and run.can_be_acquired]
        if found and (found[0].first < first or found[-1].last > last):
            first, last = max(first, found[0].first), min(last, found[-1].last)
            found = [run for run in self._in_flight.within(first, last) if run.can_be_acquired]
        return found

    def _take_again(self, pieces: Sequence[Run]) -> bool:
        """Acquire what is available of a batch; returns false if nothing more may be delivered with it."""
        # A throttled batch is the only one of its fetch, so what was taken is all of this batch.
        most = max((piece.delivery_count for piece in pieces), default=0)
        is_throttled = most >= self._throttled_from
        if is_throttled and self._taken:
            return False
        allowed = None
        for taken, piece in enumerate(pieces):
            count = piece.delivery_count
            is_last_attempt = self._limit > LEAST_THROTTLED and count >= self._limit - 1
            if is_last_attempt and taken:
                break
            size = piece.size
            if count >= self._throttled_from and allowed is None:
                allowed = max(1, piece.batch.size >> (count - self._throttled_from + 1))
            if is_last_attempt:
                size = 1
            if allowed is not None:
                size = min(size, allowed - self._count_taken())
            if self._is_strict:
                size = min(size, self._left)
            if size <= 0:
                break
            is_partial = size < piece.size
            self._in_flight.cut_after(piece, size)
            self._acquire(piece, is_continued=taken > 0)
            if is_partial or is_last_attempt:
                break
        return not is_throttled

    def _count_taken(self) -> int:
        return sum(taken.size for taken in self._taken)

    def _acquire(self, run: Run, *, is_continued: bool) -> None:
        """`is_continued`: in the same batch as the last one."""
        run.delivery_count += 1
        self._lock(run)
        self._left -= run.size
        taken = self._taken
        if is_continued and taken[-1].last + 1 == run.first and taken[-1].delivery_count == run.delivery_count:
            taken[-1] = AcquiredRange(taken[-1].first, run.last, run.delivery_count)
        else:
            taken.append(AcquiredRange(run.first, run.last, run.delivery_count))
