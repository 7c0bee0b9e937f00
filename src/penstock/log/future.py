"""The future log of a replica that moves to another log directory: follows the current log and then replaces it.

Everything here except `read` and `prepare` belongs to the event loop's thread. The copy is made in pieces: a worker
thread reads from the current log, then the event loop appends to the future log as a follower does. Between two pieces
anything may happen to the current log. Cuts at its end are applied to the future log immediately, and before the cut
itself (`cut`), so the future log never holds records that the current one lacks, not even on disk. All other changes
are found by comparing the two logs (`replication.moving.next_step`).

Compaction, and repairs that rewrite segments, must not touch the current log meanwhile. Otherwise the copy could
contain a record from before a compaction but lack its tombstone, which a later compaction removed: the record would
reappear.

The last piece is copied together with the swap, without a pause (`complete`, then `swap`). At the swap the replica
keeps its log object, which adopts the files of the future log (`stored.StoredLog.adopt`). `promotion` describes the
state after a crash in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from penstock.io.files import Buffer, FileSystem
from penstock.log.directory import Checkpoint, LogDirectory
from penstock.log.log import Log
from penstock.log.promotion import prepare_promotion, promote
from penstock.records.batch import read_header
from penstock.replication.moving import AdvanceStart, CaughtUp, Copy, Cut, StartOver, next_step

logger = logging.getLogger("penstock.log")

PIECE_BYTES = 256 * 1024


class Piece(NamedTuple):
    """The data of the current log from an offset on."""

    data: Buffer
    """Whole batches; empty if there are none up to `end`."""
    end: int
    """The end of the log when the read was requested."""
    cuts: int
    """The log's number of cuts when the read was requested."""


class FutureLog:
    def __init__(self, current: Log, log: Log, source: LogDirectory, target: LogDirectory) -> None:
        """`log` is the copy, in `target`, of `current`, in `source`."""
        self.current = current
        self.log = log
        self.source = source
        self.target = target
        self.copied_bytes = 0
        self._cuts = 0

    @property
    def lag(self) -> int:
        """The number of offsets by which the copy is behind."""
        return max(0, self.current.log_end_offset - self.log.log_end_offset)

    # -- copying

    def next_copy(self, now_ms: int, remove: Callable[[list[str]], None]) -> int | None:
        """Apply to the future log what the current one has lost. Returns the next offset to copy; None if the copy has
        caught up. `remove` receives the paths of files that are no longer needed."""
        log = self.log
        while True:
            match next_step(self.current.extent, log.extent):
                case StartOver(offset):
                    log.truncate_fully_and_start_at(offset)
                case Cut(offset):
                    log.truncate_to(offset)
                case AdvanceStart(offset):
                    log.advance_log_start(offset)
                    remove(log.delete_old_segments(now_ms, log.log_start_offset))  # the current log handles retention
                case Copy(offset):
                    return offset
                case CaughtUp():
                    return None

    def read(self, offset: int) -> Callable[[], Piece]:
        """Return the read of the next piece, to be run on a worker thread."""
        cuts, current = self._cuts, self.current
        end = current.log_end_offset

        def read() -> Piece:
            return Piece(current.read(offset, PIECE_BYTES, end).data, end, cuts)

        return read

    def append(self, piece: Piece, now_ms: int) -> None:
        """Append a piece; drop it if the current log was cut after the read."""
        if piece.cuts != self._cuts:
            return
        log = self.log
        if not piece.data:
            log.skip_to(piece.end, now_ms)
            return
        view = memoryview(piece.data)
        if log.log_end_offset == log.log_start_offset:
            # The first batch may begin below the log start, which is then inside the batch.
            first = read_header(view)
            if first.base_offset < log.log_end_offset:
                log.truncate_fully_and_start_at(first.base_offset)
        log.append_preassigned(view, now_ms)
        self.copied_bytes += len(view)

    def cut(self, offset: int) -> None:
        """Cut the copy: the current log is about to be cut at `offset`."""
        self._cuts += 1
        if offset < self.log.log_end_offset:
            self.log.truncate_to(offset)

    # -- the swap

    def prepare(self, files: FileSystem, checkpoint: Checkpoint) -> None:
        """Write what must survive a crash after the swap. Runs on a worker thread, once the copy has caught up and is
        flushed. `checkpoint` is the target directory's."""
        self.target.write_checkpoint(checkpoint)
        prepare_promotion(files, self.log.directory, self.current.directory)

    def complete(self, now_ms: int, max_bytes: int, remove: Callable[[list[str]], None]) -> bool:
        """Copy the remaining data without a pause. False if that is more than `max_bytes`, would wait for the disk, or
        if since `prepare` a cut was left unfinished or the log start moved and is not durable yet."""
        current, log = self.current, self.log
        begin = self.copied_bytes
        while (offset := self.next_copy(now_ms, remove)) is not None:
            if self.copied_bytes - begin > max_bytes:
                return False
            end = current.log_end_offset
            found = current.read_cached(offset, PIECE_BYTES, end)
            if found is None:
                return False
            self.append(Piece(found.data, end, self._cuts), now_ms)
        if current.is_unsettled or log.is_unsettled or not self.target.has_start(log):
            return False
        log.take_epochs(current)
        if log.recovery_point < current.recovery_point:
            # Readers may have seen it because it was synced. The amount is small: the rest was flushed a moment ago.
            log.flushed(log.flush())
        return True

    def swap(self, files: FileSystem, unique: str) -> str | None:
        """Let the current log continue with the files of the future one. Returns the path of the old files, which can
        be removed after `promotion.finish_promotion`; None if they could not be set aside: the next start does that.

        OSError: nothing has changed. `promotion.Undecided`: the outcome is unknown.
        """
        current, partition = self.current, self.current.topic_partition
        current.adopt(self.log, promote(files, self.target, self.log))
        self.target.take_over(current)
        try:
            return self.source.release(partition, unique)
        except OSError as error:
            logger.error("%s: the old log of %s cannot be set aside: %s", self.source.path, partition, error)
            return None
