"""What the quorum has to know about a replica's log, and the two questions replicas settle by leader epoch.

Two logs agree up to some offset exactly if the batch before it was written by the same leader epoch in both. So a
follower sends the offset it wants and the epoch of the last batch it has. If the leader's log ended that epoch earlier,
or never had it, the leader answers with the largest epoch it knows not above it and where that ended (the diverging
epoch); the follower truncates to where the two may still agree, and asks again. What the leader no longer has as log
comes as a snapshot.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class OffsetAndEpoch(NamedTuple):
    """An end of a log or of an epoch in it (the first offset not contained, the epoch of the last that is). As
    `snapshot`, the name of a snapshot."""

    offset: int
    epoch: int


class LogView(Protocol):
    """The metadata log as the quorum reads it. It never writes: what is to be written goes out as an effect.

    It reaches at least as far as its latest snapshot: where a power loss took more, it begins, empty, at that.
    """

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """Of the last batch or, if there is none, of the snapshot the log begins with; 0 for a new log."""
        ...

    @property
    def synced_offset(self) -> int:
        """Everything below it survives a power loss."""
        ...

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        """The one at the start of the log, if that is not 0. The bootstrap checkpoint is not a snapshot."""
        ...

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    def snapshot_size(self, snapshot: OffsetAndEpoch) -> int | None:
        """In bytes; None if there is no such snapshot."""
        ...

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch | None:
        """The largest epoch among the batches not above `epoch`, and where it ended.

        An epoch below all of them ended where the first begins. None for one above all, or without batches.
        """
        ...


class Valid(NamedTuple):
    """The logs agree up to the offset that was asked for."""


class Diverging(NamedTuple):
    end: OffsetAndEpoch


class SnapshotNeeded(NamedTuple):
    snapshot: OffsetAndEpoch


def compare_fetch(log: LogView, offset: int, last_fetched_epoch: int) -> Valid | Diverging | SnapshotNeeded:
    """The leader's verdict on a replica that ends at `offset`, with a last batch of `last_fetched_epoch`."""
    latest = log.latest_snapshot
    if offset == 0 and latest is not None:
        # With nothing to agree on, a snapshot is the shorter way.
        return SnapshotNeeded(latest)
    if offset == 0 and log.start_offset == 0:
        return Valid()
    earliest = log.earliest_snapshot
    if (
        earliest is not None
        and latest is not None
        and (
            offset < log.start_offset
            or (offset == log.start_offset and last_fetched_epoch != earliest.epoch)
            or last_fetched_epoch < earliest.epoch
        )
    ):
        return SnapshotNeeded(latest)
    end = _end_of(log, last_fetched_epoch)
    if end.epoch != last_fetched_epoch or end.offset < offset:
        return Diverging(end)
    return Valid()


def truncation_offset(log: LogView, diverging: OffsetAndEpoch) -> int:
    """Up to where a follower's log may still agree with a leader that answered `diverging`."""
    local = _end_of(log, diverging.epoch)
    if local.epoch == diverging.epoch:
        return min(local.offset, diverging.offset)
    return local.offset


def _end_of(log: LogView, epoch: int) -> OffsetAndEpoch:
    end = log.end_offset_for(epoch)
    if end is None:
        return OffsetAndEpoch(log.end_offset, log.last_epoch)
    earliest = log.earliest_snapshot
    if earliest is not None and end == (earliest.offset, epoch):
        # Before the first batch is what the snapshot contains, and that ends with the snapshot's epoch.
        return earliest
    return end
