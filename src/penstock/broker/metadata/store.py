"""Stores the metadata log and its snapshots on disk, and presents them to the quorum.

The log is a partition log like any other, synced before its content counts. A snapshot is written beside it under a
`.part` name, synced and renamed, so that a file with a snapshot's name is complete; this includes snapshots fetched
from the leader. Snapshots and the log before them are kept as long as `metadata.max.retention.bytes` and `.ms` allow.
The newest snapshot always stays, and the log never begins after the oldest one.

This is the quorum's `LogView`. The quorum queries it at every step, so snapshots are listed once and cached.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Final

from penstock.broker.metadata.formatting import metadata_log_directory
from penstock.broker.metadata.recovery import (
    MetadataLost,
    Recovered,
    StoredSnapshot,
    check_committed,
    image_of,
    read_history,
    read_snapshot,
    recover_snapshot,
)
from penstock.io.files import File, FileSystem, read_file, write_file_atomically
from penstock.log.log import Log, NoRoom
from penstock.metadata.image import MetadataImage
from penstock.metadata.snapshot import (
    BOOTSTRAP_SNAPSHOT,
    QuorumConfiguration,
    SnapshotId,
    encode_snapshot,
    snapshot_id,
)
from penstock.model.ids import TopicPartition
from penstock.model.ownership import owned_by_loop
from penstock.model.topics import METADATA_TOPIC, METADATA_TOPIC_ID
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.quorum_state import (
    QUORUM_STATE_FILE,
    ElectionState,
    MalformedQuorumState,
    decode_quorum_state,
    encode_quorum_state,
)
from penstock.raft.voter_history import VoterHistory
from penstock.records.batch import Buffer
from penstock.replication.epochs import UNDEFINED_EPOCH
from penstock.settings.node import NodeSettings
from penstock.settings.topic import TopicSettings

logger = logging.getLogger("penstock.quorum")

METADATA_PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
_PART_SUFFIX: Final = ".part"
_DOWNLOAD_SUFFIX: Final = ".download.part"


@owned_by_loop(
    anywhere=(
        "log",
        "write_election",
        "write_snapshot",
        "sync_and_write_snapshot",
        "remove_files",
        "_path",
        "_finish_download",
    )
)
class MetadataStore:
    def __init__(self, files: FileSystem, settings: NodeSettings) -> None:
        self.directory = metadata_log_directory(settings)
        self._files = files
        self._settings = settings
        self._log: Log | None = None
        self._sizes: dict[OffsetAndEpoch, int] = {}  # sizes of the snapshots, oldest first
        self._download: tuple[OffsetAndEpoch, File] | None = None
        self._reading: tuple[OffsetAndEpoch, File] | None = None

    @property
    def log(self) -> Log:
        assert self._log is not None, "recover() comes first"
        return self._log

    # -- start ---------------------------------------------------------------------------------------------------------

    def recover(self, now_ms: int, history: VoterHistory, *, can_fetch_again: bool) -> Recovered:
        """Load the newest readable snapshot, and open the log, which continues from there or ends before it.

        `can_fetch_again`: True for an observer, which does not count for commits; the leader still has what it lost.
        """
        self._remove_leftovers()
        stored_snapshots = self.snapshots()
        snapshots = [stored for stored in stored_snapshots if stored.id != BOOTSTRAP_SNAPSHOT]
        bootstrap = StoredSnapshot(BOOTSTRAP_SNAPSHOT, self._path(BOOTSTRAP_SNAPSHOT))
        recovered = recover_snapshot(self._files, bootstrap, snapshots, history)
        start = recovered.last_snapshot.offset
        if not can_fetch_again:
            check_committed(self._files, self.directory, start)
        self._log = Log.open(
            self._files,
            self.directory,
            METADATA_PARTITION,
            TopicSettings(
                segment_bytes=self._settings.metadata_segment_bytes,
                segment_ms=self._settings.metadata_log_segment_ms,
                retention_ms=-1,
                retention_bytes=-1,
                flush_messages=1,
            ),
            clean_shutdown=False,
            recovery_point=start,
            log_start_offset=stored_snapshots[0].id.offset if stored_snapshots else 0,
            now_ms=now_ms,
            topic_id=METADATA_TOPIC_ID,
        )
        if self.log.log_start_offset > start:
            if not can_fetch_again:
                raise MetadataLost(
                    f"{self.directory}: the log begins at {self.log.log_start_offset}, and no snapshot reaches that far"
                )
            logger.warning("%s begins at %d, and no snapshot reaches it", self.directory, self.log.log_start_offset)
            self.log.truncate_fully_and_start_at(start)
        elif not self._agrees_with(recovered.last_snapshot):
            logger.warning("%s ends or differs before its snapshot at %d", self.directory, start)
            self.log.truncate_fully_and_start_at(start)
        for stored in snapshots:
            if stored.id <= recovered.last_snapshot and stored.id.offset >= self.log.log_start_offset:
                self._sizes[_key(stored.id)] = self._files.size(stored.path)
        read_history(self.log, start, history)
        return recovered

    def _agrees_with(self, snapshot: SnapshotId) -> bool:
        """Whether the log leads to the snapshot. A log that does not is older than the fetched snapshot, and what it
        has beyond was never committed."""
        log, offset = self.log, snapshot.offset
        if log.log_end_offset < offset:
            return False
        epoch = log.epochs.epoch_for_offset(offset - 1)
        if epoch == UNDEFINED_EPOCH and log.log_end_offset == offset:
            # The log is empty. A power loss may have kept epochs that are older than the snapshot.
            epoch = log.epochs.latest
        return epoch in (snapshot.epoch, UNDEFINED_EPOCH)  # unknown: the log was trimmed to begin at the snapshot

    def _remove_leftovers(self) -> None:
        for name in self._files.list(self.directory):
            if name.endswith((_PART_SUFFIX, ".checkpoint.deleted")):
                self._files.remove(os.path.join(self.directory, name))

    # -- the quorum's LogView ------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def synced_offset(self) -> int:
        return self.log.recovery_point

    @property
    def last_epoch(self) -> int:
        latest = self.log.epochs.latest
        if latest >= 0:
            return latest
        newest = self.latest_snapshot
        return 0 if newest is None else newest.epoch

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        if self.log.log_start_offset == 0:
            return None
        return next(iter(self._sizes), None)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return next(reversed(self._sizes), None)

    def snapshot_size(self, snapshot: OffsetAndEpoch) -> int | None:
        return self._sizes.get(snapshot)

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch | None:
        found, end = self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)
        return None if found < 0 else OffsetAndEpoch(end, found)

    # -- election ------------------------------------------------------------------------------------------------------

    def read_election(self) -> ElectionState | None:
        path = os.path.join(self.directory, QUORUM_STATE_FILE)
        try:
            return decode_quorum_state(read_file(self._files, path))
        except FileNotFoundError:
            return None
        except MalformedQuorumState as error:
            raise MetadataLost(f"{path}: {error}") from error

    def write_election(self, state: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]) -> None:
        """Durable on return. Runs on any thread."""
        data = encode_quorum_state(state, min(kraft_version, 1), voter_ids)
        write_file_atomically(self._files, os.path.join(self.directory, QUORUM_STATE_FILE), data)

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def snapshots(self) -> list[StoredSnapshot]:
        """Oldest first."""
        found = ((snapshot_id(name), os.path.join(self.directory, name)) for name in self._files.list(self.directory))
        return sorted(StoredSnapshot(identity, path) for identity, path in found if identity is not None)

    def write_snapshot(self, image: MetadataImage, quorum: QuorumConfiguration, now_ms: int) -> tuple[SnapshotId, int]:
        """Returns the id and size of the snapshot. Runs on a worker thread; durable on return."""
        identity = SnapshotId(image.offset + 1, image.epoch)
        path = self._path(identity)
        part = path + _PART_SUFFIX
        self._files.remove(part)
        file = self._files.open(part, create=True)
        position = 0
        try:
            for batch in encode_snapshot(
                image.to_records(),
                metadata_version=image.metadata_version,
                quorum=quorum,
                epoch=image.epoch,
                last_contained_timestamp_ms=image.timestamp_ms,
                now_ms=now_ms,
            ):
                file.pwrite(batch, position)
                position += len(batch)
            file.sync()
        finally:
            file.close()
        self._files.rename(part, path)
        self._files.sync_directory(self.directory)
        return identity, position

    def sync_and_write_snapshot(
        self, image: MetadataImage, quorum: QuorumConfiguration, now_ms: int
    ) -> tuple[SnapshotId, int]:
        """For an observer, which does not sync its log otherwise: the next start does not check the log before a
        snapshot, so it must not be torn. Runs on a worker thread."""
        self.log.flush()
        return self.write_snapshot(image, quorum, now_ms)

    def snapshot_written(self, identity: SnapshotId, size: int) -> None:
        """Other nodes can fetch the snapshot from now on."""
        self._sizes[_key(identity)] = size
        self._sizes = dict(sorted(self._sizes.items()))

    def read_snapshot_part(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> bytes:
        """Read a part of a snapshot; the file stays open for the next part."""
        if self._reading is None or self._reading[0] != snapshot:
            self._stop_reading()
            path = self._path(SnapshotId(*snapshot))
            self._reading = snapshot, self._files.open(path, read_only=True)
        return self._reading[1].pread(max_bytes, position)

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading[1].close()
            self._reading = None

    def expired_snapshots(self, now_ms: int) -> tuple[list[str], int]:
        """The files of snapshots that retention removes, and the offset the log may then begin at."""
        kept = self.snapshots()
        sizes = {stored.path: self._files.size(stored.path) for stored in kept}
        total = self.log.size + sum(sizes.values())
        expired: list[StoredSnapshot] = []
        max_bytes, max_ms = self._settings.metadata_max_retention_bytes, self._settings.metadata_max_retention_ms
        while len(kept) > 1:
            oldest = kept[0]
            too_large = 0 <= max_bytes < total
            too_old = 0 <= max_ms < now_ms - self._files.modified_ms(oldest.path)
            superfluous = kept[1].id.offset <= self.log.log_start_offset
            if not too_large and not too_old and not superfluous:
                break
            expired.append(oldest)
            # Removing a snapshot also removes the log up to the next one.
            total -= sizes[oldest.path] + self._log_bytes_between(oldest.id.offset, kept[1].id.offset)
            del kept[0]
        for stored in expired:
            self._sizes.pop(_key(stored.id), None)
        self._stop_reading()
        return [stored.path for stored in expired], kept[0].id.offset if kept else 0

    def _log_bytes_between(self, start: int, end: int) -> int:
        segments = self.log.segments
        return sum(
            segment.size
            for segment, following in pairwise(segments)
            if start <= segment.base_offset and following.base_offset <= end
        )

    def remove_files(self, paths: list[str]) -> None:
        """Runs on a worker thread. A file that cannot be removed now is removed another time."""
        for path in paths:
            try:
                self._files.remove(path)
            except OSError as error:
                logger.warning("%s cannot be removed yet: %s", path, error)

    # -- a snapshot fetched from the leader ----------------------------------------------------------------------------

    def start_download(self, snapshot: OffsetAndEpoch) -> None:
        self.give_download_up()
        path = self._path(SnapshotId(*snapshot)) + _DOWNLOAD_SUFFIX
        self._files.remove(path)
        self._download = snapshot, self._files.open(path, create=True)

    def write_download(self, snapshot: OffsetAndEpoch, position: int, data: Buffer) -> None:
        assert self._download is not None and self._download[0] == snapshot, "start_download() comes first"
        self._download[1].pwrite(data, position)

    def give_download_up(self) -> None:
        if self._download is not None:
            snapshot, file = self._download
            self._download = None
            file.close()
            self._files.remove(self._path(SnapshotId(*snapshot)) + _DOWNLOAD_SUFFIX)

    def finish_download(
        self, snapshot: OffsetAndEpoch
    ) -> Callable[[], tuple[MetadataImage, QuorumConfiguration] | None]:
        """Returns a function for a worker thread: it syncs the file and renames it, durably on return. Its result is
        the content, or None if the file was damaged in transit and has been deleted."""
        assert self._download is not None and self._download[0] == snapshot, "start_download() comes first"
        file, self._download = self._download[1], None
        return partial(self._finish_download, SnapshotId(*snapshot), file)

    def _finish_download(self, identity: SnapshotId, file: File) -> tuple[MetadataImage, QuorumConfiguration] | None:
        path = self._path(identity)
        try:
            file.sync()
        finally:
            file.close()
        part = path + _DOWNLOAD_SUFFIX
        decoded = read_snapshot(self._files, StoredSnapshot(identity, part))
        if decoded is None:
            self._files.remove(part)
            return None
        image = image_of(identity, decoded)
        self._files.rename(part, path)
        self._files.sync_directory(self.directory)
        return image, decoded.quorum

    def begin_at(self, snapshot: OffsetAndEpoch) -> None:
        """Make the log empty, beginning after a snapshot that was fetched."""
        self.log.truncate_fully_and_start_at(snapshot.offset)
        self._sizes = {snapshot: self._files.size(self._path(SnapshotId(*snapshot)))}

    def close(self, *, clean: bool) -> None:
        if self._download is not None:
            self._download[1].close()
        self._stop_reading()
        self.log.close(clean=clean)

    def _path(self, identity: SnapshotId) -> str:
        return os.path.join(self.directory, identity.file_name)


def disk_is_full(error: BaseException) -> bool:
    cause = error.__cause__
    return isinstance(error, NoRoom) or (isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT))


def _key(identity: SnapshotId) -> OffsetAndEpoch:
    return OffsetAndEpoch(identity.offset, identity.epoch)
