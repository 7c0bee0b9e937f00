"""The files of a log: its directory, its segments and producer snapshots, and the changes that are not synced yet.

Disk errors propagate to the log, which handles them. A log that moves to another directory gets a new `LogFiles`.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.io.files import FileSystem
from penstock.log.handles import Handles, LoopAccess
from penstock.log.producer_snapshot import ProducerSnapshots
from penstock.log.segment import DELETED_SUFFIX, Segment
from penstock.log.segments import Segments
from penstock.log.unsynced import Unsynced
from penstock.model.ownership import owned_by_loop
from penstock.replication.producers import ProducerEntry


@owned_by_loop()
class LogFiles:
    __slots__ = ("_handles", "access", "directory", "segments", "snapshot_position", "snapshots", "system", "unsynced")

    def __init__(self, system: FileSystem, directory: str, handles: Handles) -> None:
        self.system = system
        self.directory = directory
        self.access = LoopAccess(handles)
        self.segments = Segments(system, [])
        self.snapshots = ProducerSnapshots(system, directory, ())
        self.snapshot_position = 0
        """The position in the active segment of the last producer snapshot."""
        self.unsynced = Unsynced(system)
        self._handles = handles

    def create_segment(self, base_offset: int, index_interval: int, now_ms: int) -> Segment:
        return Segment.create(self.system, self.directory, base_offset, index_interval=index_interval, now_ms=now_ms)

    def snapshot_producers(self, offset: int, producers: Iterable[ProducerEntry]) -> None:
        """Write the producers to disk as of `offset`, the end of the log."""
        if self.snapshots.write(offset, producers):
            self.snapshot_position = self.segments[-1].size
            self.unsynced.add(self.snapshots.path(offset))
            self.unsynced.add_directory(self.directory)

    def remove(self, segment: Segment) -> None:
        segment.close()
        for path in segment.paths:
            self._handles.forget(path)
            self.unsynced.forget(path)
            self.system.remove(path)

    def set_aside(self, segments: Iterable[Segment]) -> list[str]:
        """Rename the segments, durably from the oldest on: if a newer one were gone and an older one back after a power
        loss, the log would have a hole, and recovery could not tell which side is right. Each log file goes durably
        before its indexes: it must not come back without its aborted transactions."""
        paths: list[str] = []
        for segment in segments:
            segment.close()
            for path in filter(self.system.exists, segment.paths):
                self._handles.forget(path)
                self.unsynced.forget(path)
                self.system.rename(path, path + DELETED_SUFFIX)
                paths.append(path + DELETED_SUFFIX)
                if path == segment.path:
                    self.system.sync_directory(self.directory)
        return paths

    def let_go(self, segments: Iterable[Segment]) -> None:
        """Close these files: their names will be reused or removed."""
        for segment in segments:
            segment.is_replaced = True
            segment.close()
            for path in segment.paths:
                self._handles.forget(path)
                self.unsynced.forget(path)

    def close(self) -> None:
        for segment in self.segments:
            segment.close()
            for path in segment.paths:
                self._handles.forget(path)

    def relocate(self, directory: str) -> None:
        """Update the paths: the directory was renamed."""
        self.close()
        for segment in self.segments:
            segment.relocate(directory)
        self.snapshots.relocate(directory)
        self.unsynced.relocate(self.directory, directory)
        self.directory = directory
