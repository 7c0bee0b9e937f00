"""The leader epochs of one partition: the start offset of each.

A leader writes its epoch into every batch. The list of (epoch, start offset), ascending in both, answers the question
that a replica asks after a change of leader: "where did epoch E end in your log?" (KIP-101, KIP-279). An epoch ends at
the start of the next known one; the latest ends at the log end.

Laws: epochs and start offsets both strictly ascend; a newer assignment that contradicts older entries removes them. The
entries are pure state: the log writes them to `leader-epoch-checkpoint`, and rebuilds entries that a crash lost from
the batches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.model.ownership import owned_by_loop

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


@owned_by_loop(anywhere=("entries",))  # `flush` writes a copy of them
class LeaderEpochs:
    __slots__ = ("_entries", "changes", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries: list[EpochEntry] = []
        self.latest = UNDEFINED_EPOCH
        self.changes = 0
        """The number of changes: the checkpoint is outdated if this has increased since it was written."""
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> Sequence[EpochEntry]:
        return self._entries

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` begins at `start_offset`.

        The current epoch keeps its start: only an earlier start replaces it.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} cannot start at offset {start_offset}")
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        self._changed()

    def become(self, other: LeaderEpochs) -> None:
        """Copy the entries of `other`."""
        if self._entries != other._entries:
            self._entries[:] = other._entries
            self._changed()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch not above `epoch`, and where it ended; (-1, -1) if unknown."""
        entries = self._entries
        if not entries or epoch < 0 or epoch > entries[-1].epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        following = bisect_right(entries, epoch, key=_epoch)
        # Older than all known epochs: its data is gone, and the rest begins where the first known epoch does.
        found = entries[following - 1].epoch if following else epoch
        return found, entries[following].start_offset

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch `offset` was (or would be) written under, or -1."""
        index = bisect_right(self._entries, offset, key=_start_offset)
        return self._entries[index - 1].epoch if index else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that start at or after `end_offset`."""
        index = bisect_left(self._entries, end_offset, key=_start_offset)
        if index < len(self._entries):
            del self._entries[index:]
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that ended at or before `start_offset`; the epoch that contains it now starts there."""
        index = bisect_right(self._entries, start_offset, key=_start_offset)
        if index == 0 or (index == 1 and self._entries[0].start_offset == start_offset):
            return
        self._entries[:index] = [EpochEntry(self._entries[index - 1].epoch, start_offset)]
        self._changed()

    def clear(self) -> None:
        self._entries.clear()
        self._changed()

    def _changed(self) -> None:
        self.latest = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH
        self.changes += 1


def _epoch(entry: EpochEntry) -> int:
    return entry.epoch


def _start_offset(entry: EpochEntry) -> int:
    return entry.start_offset
