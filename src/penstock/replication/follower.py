"""A follower's side of one partition: from whom it copies, how far that is committed, and what it must undo first.

Where the follower's log goes on differently from the leader's is found by leader epochs (KIP-101, KIP-279), never by
the high watermark: that lags behind what is committed, and a follower that cut its log there could be elected a moment
later without records that were acknowledged. The leader says where the largest epoch it knows, not above the
follower's latest, ended in its own log; the follower cuts what lies beyond that, and asks again if it does not know
that epoch either.

Laws:

- A cut is never deeper than the leader's answer demands.
- The follower's high watermark is the leader's, as far as the follower has the records. It goes back only with the log
  itself.

Pure: what the leader said comes in, where to cut comes out.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.ownership import owned_by_loop
from penstock.replication.epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET, LeaderEpochs


class Truncation(NamedTuple):
    offset: int
    is_final: bool
    """Whether the logs are the same below `offset`; else the leader must be asked again from there."""


@owned_by_loop()
class FollowerState:
    __slots__ = ("high_watermark", "leader_epoch", "leader_id")

    def __init__(self, *, leader_id: int, leader_epoch: int, high_watermark: int) -> None:
        """`leader_id` is -1 while nobody leads."""
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark

    def learned(self, leader_high_watermark: int, log_end: int) -> bool:
        """What the leader says is committed; true if more of the own log is than was known."""
        committed = min(leader_high_watermark, log_end)
        if committed > self.high_watermark:
            self.high_watermark = committed
            return True
        return False

    def truncated(self, log_end: int) -> None:
        """The log was cut, or begins anew, at `log_end`."""
        self.high_watermark = min(self.high_watermark, log_end)

    def truncation(self, leader_answer: tuple[int, int], epochs: LeaderEpochs, log_end: int) -> Truncation:
        """Where to cut, given the leader's epoch and its end offset for the follower's latest epoch."""
        epoch, end_offset = leader_answer
        if end_offset == UNDEFINED_OFFSET:
            # The leader knows no epoch as old as the follower's: what was committed is all there is to go by.
            return Truncation(min(self.high_watermark, log_end), True)
        if epoch == UNDEFINED_EPOCH:
            return Truncation(min(end_offset, log_end), True)
        own_epoch, own_end_offset = epochs.end_offset_for(epoch, log_end)
        if own_end_offset == UNDEFINED_OFFSET:
            return Truncation(min(end_offset, log_end), True)
        if own_epoch != epoch:
            return Truncation(min(own_end_offset, log_end), False)
        return Truncation(min(own_end_offset, end_offset, log_end), True)
