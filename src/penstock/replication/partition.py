"""What the leader of a partition knows about how far its records are safe.

Laws:

- The high watermark never goes back while this leader leads.
- It is the smallest offset that every in-sync replica has. The leader counts itself by its log end, or, on a topic
  that asks for a flush with every message (`flush.messages=1`), by what it has flushed.
- An acknowledgement is owed only when the high watermark has passed the record's offset.

Pure: offsets come in, a verdict comes out, and the callbacks of those who waited for an offset are handed back to the
caller to run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

Waiter = Callable[[], None]


class LeaderState:
    __slots__ = ("counts_flushed", "flushed", "high_watermark", "leader_epoch", "log_end", "waiting")

    def __init__(self, *, leader_epoch: int, log_end: int, flushed: int, counts_flushed: bool) -> None:
        self.leader_epoch = leader_epoch
        self.log_end = log_end
        self.flushed = flushed
        self.counts_flushed = counts_flushed
        self.high_watermark = flushed if counts_flushed else log_end
        self.waiting: deque[tuple[int, Waiter]] = deque()  # offsets ascend: appends are in order

    @property
    def commits_at_once(self) -> bool:
        """Whether an append is committed by the time it returns."""
        return not self.counts_flushed

    def appended(self, log_end: int) -> bool:
        """The log grew to `log_end`; true if the high watermark moved."""
        self.log_end = log_end
        if self.counts_flushed or log_end <= self.high_watermark:
            return False
        self.high_watermark = log_end
        return True

    def flushed_to(self, offset: int) -> bool:
        if offset > self.flushed:
            self.flushed = offset
        return self._advance()

    def count_flushed(self, counts_flushed: bool) -> bool:
        """The topic's flush setting changed; what was already visible stays visible."""
        self.counts_flushed = counts_flushed
        return self._advance()

    def _advance(self) -> bool:
        safe = self.flushed if self.counts_flushed else self.log_end
        if safe > self.high_watermark:
            self.high_watermark = safe
            return True
        return False

    def wait_for(self, offset: int, waiter: Waiter) -> None:
        """Run `waiter` once everything below `offset` is committed."""
        self.waiting.append((offset, waiter))

    def take_satisfied(self) -> list[Waiter]:
        waiting = self.waiting
        satisfied = []
        while waiting and waiting[0][0] <= self.high_watermark:
            satisfied.append(waiting.popleft()[1])
        return satisfied

    def take_all(self) -> list[Waiter]:
        """Leadership ends (or the topic is gone): everybody who waits must be told otherwise."""
        waiters = [waiter for _, waiter in self.waiting]
        self.waiting.clear()
        return waiters
