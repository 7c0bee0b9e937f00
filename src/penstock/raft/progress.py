"""The leader's view of how far each replica has replicated, and the high watermark.

A fetch from an offset means that everything before it is on the sender's disk. The high watermark is the largest offset
that a majority of the voters has reached in this way; the leader itself counts with what it has synced. Two more rules
make it safe and useful:

- It does not advance before it has passed the start of the leader's epoch. Counting alone does not commit what earlier
  leaders wrote: a majority may have it and still lose it to a later leader, until a batch of this epoch follows it.
- It never moves back. After a change of voters the count may be lower, but what was committed stays committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.model.ids import ZERO_UUID
from penstock.raft.voters import ReplicaKey, VoterSet

# How long the leader remembers an observer that stopped fetching.
OBSERVER_SESSION_TIMEOUT_MS: Final = 300_000
# A replica can become a voter only if it has fetched within this time.
CAUGHT_UP_WITHIN_MS: Final = 3_600_000


@dataclass(slots=True)
class ReplicaProgress:
    key: ReplicaKey
    end_offset: int | None = None
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    # The end of the leader's log at the last fetch: a replica that reaches it was caught up at that time.
    _leader_end_offset: int = -1

    def matches(self, key: ReplicaKey) -> bool:
        return self.key.node_id == key.node_id and self.key.directory_id in (ZERO_UUID, key.directory_id)

    def fetched(self, offset: int, leader_end_offset: int, now: int) -> None:
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now
        elif 0 < self._leader_end_offset <= offset:
            self.last_caught_up_ms = self.last_fetch_ms
        self._leader_end_offset = leader_end_offset
        self.last_fetch_ms = now
        self.end_offset = offset


class Progress:
    def __init__(self, local: ReplicaKey, voters: VoterSet, epoch_start_offset: int) -> None:
        self.local = local
        self.epoch_start_offset = epoch_start_offset
        # Unknown until a record of this epoch is committed, whatever this node knew as a follower.
        self.high_watermark: int | None = None
        self.voters: dict[int, ReplicaProgress] = {}
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}
        self.voters_changed(voters)

    def voters_changed(self, voters: VoterSet) -> None:
        """Set the voters. Keeps the progress of every replica, whether it becomes a voter or an observer."""
        known = [*self.voters.values(), *self.observers.values()]
        current: dict[int, ReplicaProgress] = {}
        for voter in voters:
            same = (other for other in known if voter.is_voter(other.key) or other.matches(voter.key))
            progress = next(same, None) or ReplicaProgress(voter.key)
            progress.key = voter.key
            current[voter.key.node_id] = progress
        kept = set(map(id, current.values()))
        self.voters = current
        self.observers = {
            progress.key: progress
            for progress in known
            if id(progress) not in kept and progress.key.node_id != self.local.node_id
        }

    def is_voter(self, key: ReplicaKey) -> bool:
        progress = self.voters.get(key.node_id)
        return progress is not None and progress.matches(key)

    def fetched(self, key: ReplicaKey, offset: int, leader_end_offset: int, now: int) -> None:
        progress = self.voters.get(key.node_id)
        if progress is None or not progress.matches(key):
            progress = self.observers.setdefault(key, ReplicaProgress(key))
        progress.fetched(offset, leader_end_offset, now)

    def synced(self, offset: int) -> None:
        """Record the leader's own synced offset. It does not count while the leader is removed from the voters."""
        progress = self.voters.get(self.local.node_id)
        if progress is not None and progress.matches(self.local):
            progress.end_offset = offset

    def advance(self) -> bool:
        """Advance the high watermark; returns whether it moved."""
        offsets = sorted(
            (_known(progress.end_offset) for progress in self.voters.values()),
            reverse=True,
        )
        offset = offsets[len(offsets) // 2]
        if offset <= self.epoch_start_offset or (self.high_watermark is not None and offset <= self.high_watermark):
            return False
        self.high_watermark = offset
        return True

    def others_most_caught_up_first(self) -> tuple[ReplicaKey, ...]:
        others = [progress for progress in self.voters.values() if not progress.matches(self.local)]
        others.sort(key=lambda progress: (-_known(progress.end_offset), progress.key))
        return tuple(progress.key for progress in others)

    def is_caught_up(self, key: ReplicaKey, now: int) -> bool:
        """Whether the replica is close enough to vote without delaying the high watermark for long."""
        progress = self.observers.get(key)
        return (
            progress is not None
            and progress.last_caught_up_ms is not None
            and progress.last_fetch_ms is not None
            and progress.last_fetch_ms > now - CAUGHT_UP_WITHIN_MS
        )

    def forget_idle_observers(self, now: int) -> None:
        self.observers = {
            key: progress
            for key, progress in self.observers.items()
            if progress.last_fetch_ms is not None and now - progress.last_fetch_ms < OBSERVER_SESSION_TIMEOUT_MS
        }


def _known(offset: int | None) -> int:
    return -1 if offset is None else offset
