"""A log that can be copied to another log directory and go on there.

The copy, the *future* log, is a log like any other until it is promoted: batches are appended to it as a follower
appends them, so that it has indexes, leader epochs and aborted transactions of its own. Then the current log *adopts*
it: the object that the broker knows the log by stays, with its producers and its settings, and reads and writes the
other files from then on. Whoever holds on to the log need not know. Reads on worker threads begin again, as when
compacted segments were swapped in; a flush that was under way proves nothing about the new files.
"""

from __future__ import annotations

from penstock.log.handles import LoopAccess
from penstock.log.stored import StoredLog
from penstock.model.ownership import owned_by_loop
from penstock.replication.moving import Extent


@owned_by_loop(shared=("_cut_during_flush", "_epochs_changed"))
class MovableLog(StoredLog):
    @property
    def extent(self) -> Extent:
        return Extent(self.log_start_offset, self._next_offset, self.epochs)

    # -- as a future log

    def skip_to(self, offset: int, now_ms: int) -> None:
        """There is no batch between the end of the log and `offset`: compaction took them all."""
        if offset > self._next_offset:
            self._roll(offset, now_ms)

    def take_epochs(self, current: StoredLog) -> None:
        """Those of the log this is a copy of: some epochs have left no batch to learn them from."""
        if tuple(self.epochs.entries) != tuple(current.epochs.entries):
            self.epochs.clear()
            for epoch, start_offset in current.epochs.entries:
                self.epochs.assign(epoch, start_offset)
            self._latest_epoch = self.epochs.latest
            self._epochs_changed = True

    def delete_below_start(self, now_ms: int) -> list[str]:
        """Set aside segments that the log start has passed; retention is the current log's business."""
        return self.delete_old_segments(now_ms, self.log_start_offset)

    # -- as a current log

    def adopt(self, future: MovableLog, directory: str) -> None:
        """Go on with the files of `future`, which have been renamed to be in `directory`. It holds exactly what this
        log does, and is synced at least as far. The old files are let go of; `future` is not used any more."""
        assert (future.log_start_offset, future.log_end_offset) == (self.log_start_offset, self.log_end_offset)
        assert future.recovery_point >= self.recovery_point
        future.relocate(directory)
        with self._replacing:
            self._replacements += 1
            for segment in self._segments:
                segment.is_replaced = True
                segment.close()
                for path in segment.paths:
                    self._handles.forget(path)
            self.directory = directory
            self._handles = future._handles
            self._loop_access = LoopAccess(self._handles)
            self._segments = future._segments
            self._snapshots = future._snapshots
            self._snapshot_position = future._snapshot_position
            self._unsynced = future._unsynced
            self._epochs_changed |= future._epochs_changed or future.epochs.entries != self.epochs.entries
            self.recovery_point = future.recovery_point
        self.update_settings(self._settings, future._active)
        # In this order: a flush that begins meanwhile sees only the new files, or that it proves nothing.
        self._adoptions += 1
        self._cut_during_flush = self.recovery_point

    def relocate(self, directory: str) -> None:
        """The directory of this log was renamed."""
        for segment in self._segments:
            for path in segment.paths:
                self._handles.forget(path)
            segment.relocate(directory)
        self._snapshots.relocate(directory)
        self._unsynced.relocate(self.directory, directory)
        self.directory = directory
