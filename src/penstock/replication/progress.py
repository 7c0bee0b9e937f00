"""The leader's state of one follower, derived from the follower's fetches.

A follower's fetch offset is its acknowledgement: "I have everything below". So this must be true on the follower's disk
by the time it sends the request, and the leader relies on it.

A follower that reaches the leader's records within the lag limit counts as caught up even if it is always a little
behind. What counts is when it last had everything the leader had at some moment, not whether it has everything now.
"""

from __future__ import annotations

UNKNOWN_OFFSET = -1
NO_BROKER_EPOCH = -1
NEVER_MS = -(1 << 62)


class Follower:
    __slots__ = (
        "_leader_end_at_fetch", "broker_epoch", "broker_id", "caught_up_ms", "fetched_ms", "log_end", "log_start",
    )  # fmt: skip

    def __init__(self, broker_id: int, caught_up_ms: int) -> None:
        self.broker_id = broker_id
        self.log_end = UNKNOWN_OFFSET
        self.log_start = UNKNOWN_OFFSET
        # The registration it fetched under; None before its first fetch, NO_BROKER_EPOCH if the fetch had none.
        self.broker_epoch: int | None = None
        self.caught_up_ms = caught_up_ms
        self.fetched_ms = NEVER_MS
        self._leader_end_at_fetch = UNKNOWN_OFFSET

    def fetched(self, offset: int, log_start: int, broker_epoch: int, leader_end: int, now_ms: int) -> None:
        """Record a fetch from `offset` on, at a time when the leader's log ended at `leader_end`."""
        if offset >= leader_end:
            caught_up_ms = now_ms
        elif offset >= self._leader_end_at_fetch:
            caught_up_ms = self.fetched_ms  # it has everything the leader had at that fetch
        else:
            caught_up_ms = self.caught_up_ms
        if caught_up_ms > self.caught_up_ms:
            self.caught_up_ms = caught_up_ms
        self.log_end = offset
        self.log_start = log_start
        self.broker_epoch = broker_epoch
        self.fetched_ms = now_ms
        if leader_end > self._leader_end_at_fetch:
            self._leader_end_at_fetch = leader_end

    def left_behind(self, leader_end: int, now_ms: int) -> None:
        """The leader's log is about to grow beyond `leader_end`. A follower that has everything so far does not fetch
        again before there is new data, so this is the last moment at which it was known to be caught up."""
        if self.log_end == leader_end:
            self.caught_up_ms = now_ms

    def is_caught_up(self, leader_end: int, now_ms: int, lag_max_ms: int) -> bool:
        return self.log_end == leader_end or now_ms - self.caught_up_ms <= lag_max_ms
