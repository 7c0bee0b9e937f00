"""The future log of a replica that moves to another log directory: how it follows the current one and replaces it.

Everything here but `read` and `prepare` belongs to the event loop's thread. The copy is made piece by piece: a worker
thread reads from the current log, the event loop appends to the future one, so that between two pieces anything may
happen to the current log. What happens to its end is followed at once (`cut` goes before the cut itself: the future log
never holds what the current one does not, not even on the disk); the rest is found by comparing the two
(`replication.moving.next_step`).

Compaction must leave the current log alone meanwhile. Otherwise the copy could have a record from before a compaction
and lack the tombstone, which a later one removed, and the record would be back.

The last piece is copied without a pause together with the swap (`complete`, then `swap`): see `promotion` for what a
crash in between leaves.
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
    """What the current log has from an offset on."""

    data: Buffer
    """Whole batches; empty if there is none up to `end`."""
    end: int
    """Where the log ended when this was asked for."""
    cuts: int
    """How often the log had been cut when this was asked for."""


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
        """How many offsets the copy is behind."""
        return max(0, self.current.log_end_offset - self.log.log_end_offset)

    # -- copying

    def next_copy(self, now_ms: int, remove: Callable[[list[str]], None]) -> int | None:
        """Bring the future log in line with what the current one has lost. Then where to go on copying; None if it has
        caught up. `remove` is given the paths of files that are not needed any more."""
        log = self.log
        while True:
            match next_step(self.current.extent, log.extent):
                case StartOver(offset):
                    log.truncate_fully_and_start_at(offset)
                case Cut(offset):
                    log.truncate_to(offset)
                case AdvanceStart(offset):
                    log.advance_log_start(offset)
                    remove(
                        log.delete_old_segments(now_ms, log.log_start_offset)
                    )  # retention is the current log's business
                case Copy(offset):
                    return offset
                case CaughtUp():
                    return None

    def read(self, offset: int) -> Callable[[], Piece]:
        """To be run on a worker thread."""
        cuts, current = self._cuts, self.current
        end = current.log_end_offset

        def read() -> Piece:
            return Piece(current.read(offset, PIECE_BYTES, end).data, end, cuts)

        return read

    def append(self, piece: Piece, now_ms: int) -> None:
        """A piece that was read before the current log was cut is dropped."""
        if piece.cuts != self._cuts:
            return
        log = self.log
        if not piece.data:
            log.skip_to(piece.end, now_ms)
            return
        view = memoryview(piece.data)
        if log.log_end_offset == log.log_start_offset:
            # The first batch may begin below the start of the log, which lies within it.
            first = read_header(view)
            if first.base_offset < log.log_end_offset:
                log.truncate_fully_and_start_at(first.base_offset)
        log.append_preassigned(view, now_ms)
        self.copied_bytes += len(view)

    def cut(self, offset: int) -> None:
        """The current log is about to be cut at `offset`."""
        self._cuts += 1
        if offset < self.log.log_end_offset:
            self.log.truncate_to(offset)

    # -- the swap

    def prepare(self, files: FileSystem, checkpoint: Checkpoint) -> None:
        """On a worker thread, once the copy has caught up and is flushed: what must survive a crash after the swap.
        `checkpoint` is the target directory's."""
        self.target.write_checkpoint(checkpoint)
        prepare_promotion(files, self.log.directory, self.current.directory)

    def complete(self, now_ms: int, max_bytes: int, remove: Callable[[list[str]], None]) -> bool:
        """Copy what is missing at once. False if that is more than `max_bytes`, would wait for the disk, or if more
        than that has happened since `prepare`."""
        current, log = self.current, self.log
        begin = self.copied_bytes
        while (offset := self.next_copy(now_ms, remove)) is not None:
            if self.copied_bytes - begin > max_bytes:
                return False
            end = current.log_end_offset
            found = current.read(offset, PIECE_BYTES, end, cached_only=True)
            if found is None:
                return False
            self.append(Piece(found.data, end, self._cuts), now_ms)
        if current.is_unsettled or log.is_unsettled or not self.target.has_start(log):
            return False
        log.take_epochs(current)
        if log.recovery_point < current.recovery_point:
            # Readers may have seen it because it was synced. It is little: the rest was flushed a moment ago.
            log.flushed(log.flush())
        return True

    def swap(self, files: FileSystem, unique: str) -> str | None:
        """The current log goes on with the files of the future one. The path of the old files, which can be removed
        after `promotion.finish_promotion`; None if they could not be set aside: the next start does.

        OSError if nothing has changed; `promotion.Undecided` if nobody can say.
        """
        current, partition = self.current, self.current.topic_partition
        current.adopt(self.log, promote(files, self.target, self.log))
        self.target.take_over(current)
        try:
            return self.source.release(partition, unique)
        except OSError as error:
            logger.error("%s: the old log of %s cannot be set aside: %s", self.source.path, partition, error)
            return None
