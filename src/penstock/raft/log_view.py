"""The view of a replica's log that the quorum needs, and the comparison of two logs by leader epoch.

Two logs agree up to an offset exactly if the batch before it was written by the same leader epoch in both. So a
follower sends the offset it wants and the epoch of its last batch. If that epoch ended earlier in the leader's log, or
is not in it, the leader answers with the largest epoch it knows that is not above it, and the end of that epoch (the
diverging epoch). The follower truncates to the offset up to which the two may still agree, and fetches again. Data that
the leader no longer has as log is transferred as a snapshot.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class OffsetAndEpoch(NamedTuple):
    """The end of a log or of an epoch in it: the first offset not contained, and the epoch of the last contained one.
    As `snapshot`, the name of a snapshot."""

    offset: int
    epoch: int


class LogView(Protocol):
    """The metadata log as the quorum reads it. The quorum never writes: writes go out as effects.

    The log reaches at least as far as its latest snapshot: if a power loss took more, it begins, empty, at the
    snapshot.
    """

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch or, if there is none, of the snapshot the log begins with; 0 for a new log."""
        ...

    @property
    def synced_offset(self) -> int:
        """Everything below it survives a power loss."""
        ...

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        """The snapshot at the start of the log, if that is not 0. The bootstrap checkpoint is not a snapshot."""
        ...

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    def snapshot_size(self, snapshot: OffsetAndEpoch) -> int | None:
        """The size in bytes; None if there is no such snapshot."""
        ...

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch | None:
        """The largest epoch among the batches that is not above `epoch`, and where it ended.

        An epoch below all of them ended where the first begins. None for one above all, or if there are no batches.
        """
        ...


class Valid(NamedTuple):
    """The logs agree up to the requested offset."""


class Diverging(NamedTuple):
    end: OffsetAndEpoch


class SnapshotNeeded(NamedTuple):
    snapshot: OffsetAndEpoch


def compare_fetch(log: LogView, offset: int, last_fetched_epoch: int) -> Valid | Diverging | SnapshotNeeded:
    """The leader's verdict on a replica that ends at `offset`, with a last batch of `last_fetched_epoch`."""
    latest = log.latest_snapshot
    if offset == 0 and latest is not None:
        # The logs have nothing in common, so a snapshot is shorter.
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
    """The offset up to which a follower's log may still agree with a leader that answered `diverging`."""
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
        # The data before the first batch is in the snapshot, and ends with the snapshot's epoch.
        return earliest
    return end
