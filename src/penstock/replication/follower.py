"""The follower's state of one partition: its leader, its high watermark, and the truncation after a leader change.

Leader epochs show where the follower's log diverges from the leader's (KIP-101, KIP-279), never the high watermark: it
lags behind the committed offset, and a follower that truncated to it could be elected a moment later without
acknowledged records. The leader returns the largest epoch it knows that is not above the follower's latest, and where
that epoch ended in its own log. The follower truncates to that, and asks again if it does not know that epoch either.

Laws:

- A truncation is never deeper than the leader's answer requires.
- The follower's high watermark is the leader's, as far as the follower has the records. It moves back only together
  with the log.

Pure: the leader's answers come in, truncation offsets come out.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.ownership import owned_by_loop
from penstock.replication.epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET, LeaderEpochs


class Truncation(NamedTuple):
    offset: int
    is_final: bool
    """Whether the logs are equal below `offset`; otherwise the follower must ask the leader again from there."""


@owned_by_loop()
class FollowerState:
    __slots__ = ("high_watermark", "leader_epoch", "leader_id")

    def __init__(self, *, leader_id: int, leader_epoch: int, high_watermark: int) -> None:
        """`leader_id` is -1 while there is no leader."""
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark

    def learned(self, leader_high_watermark: int, log_end: int) -> bool:
        """Apply the leader's high watermark; true if the follower's own high watermark advanced."""
        committed = min(leader_high_watermark, log_end)
        if committed > self.high_watermark:
            self.high_watermark = committed
            return True
        return False

    def truncated(self, log_end: int) -> None:
        """The log was truncated to, or restarted at, `log_end`."""
        self.high_watermark = min(self.high_watermark, log_end)

    def truncation(self, leader_answer: tuple[int, int], epochs: LeaderEpochs, log_end: int) -> Truncation:
        """Where to truncate, given the leader's epoch and its end offset for the follower's latest epoch."""
        epoch, end_offset = leader_answer
        if end_offset == UNDEFINED_OFFSET:
            # The leader knows no epoch as old as the follower's: only the high watermark is left as a reference.
            return Truncation(min(self.high_watermark, log_end), True)
        if epoch == UNDEFINED_EPOCH:
            return Truncation(min(end_offset, log_end), True)
        own_epoch, own_end_offset = epochs.end_offset_for(epoch, log_end)
        if own_end_offset == UNDEFINED_OFFSET:
            return Truncation(min(end_offset, log_end), True)
        if own_epoch != epoch:
            return Truncation(min(own_end_offset, log_end), False)
        return Truncation(min(own_end_offset, end_offset, log_end), True)
