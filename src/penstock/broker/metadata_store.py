"""The metadata log and its snapshots on disk.

The log is a partition log like any other, synced before anything in it counts. A snapshot is written beside it under a
`.part` name, synced and renamed, so that a file with a snapshot's name is whole. Snapshots and the log before them are
kept as long as `metadata.max.retention.bytes` and `.ms` allow; the newest snapshot always stays, and the log never
begins after the oldest one.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from penstock.broker.formatting import metadata_log_directory
from penstock.io.files import FileSystem, read_file, write_file_atomically
from penstock.log.checkpoints import LEADER_EPOCH_CHECKPOINT, MalformedCheckpoint, read_epoch_checkpoint
from penstock.log.log import Log
from penstock.metadata.delta import MetadataDelta, ReplayFailed
from penstock.metadata.image import EMPTY_IMAGE, MetadataImage
from penstock.metadata.serde import UnknownRecord, decode_record
from penstock.metadata.snapshot import (
    BOOTSTRAP_SNAPSHOT,
    MAX_BATCH_BYTES,
    DecodedSnapshot,
    QuorumConfiguration,
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
    snapshot_id,
)
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from penstock.protocol.codec import MalformedMessage
from penstock.protocol.messages.control_records import KRaftVersionRecord, VotersRecord
from penstock.raft.quorum_state import (
    QUORUM_STATE_FILE,
    ElectionState,
    MalformedQuorumState,
    decode_quorum_state,
    encode_quorum_state,
)
from penstock.raft.voters import VoterSet
from penstock.records.batch import (
    HEADER_SIZE,
    Buffer,
    CorruptBatch,
    check_crc,
    iterate_headers,
    read_header,
)
from penstock.records.control import parse_quorum_record
from penstock.records.record import iterate_records
from penstock.settings.node import NodeSettings
from penstock.settings.topic import TopicSettings

logger = logging.getLogger("penstock.quorum")

METADATA_PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
_PART_SUFFIX: Final = ".part"
_SEGMENT: Final = re.compile(r"[0-9]{20}\.log")
_READ_BYTES: Final = 1024 * 1024


class MetadataLost(KafkaError):
    """The metadata on disk cannot be read back. The node must not start: it would forget its topics."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class StoredSnapshot(NamedTuple):
    id: SnapshotId
    path: str


@dataclass(slots=True)
class Recovered:
    image: MetadataImage
    quorum: QuorumConfiguration
    # Whether the voters were found in the log or a snapshot of it, and not only in the checkpoint of the format.
    quorum_in_log: bool
    # The records a new cluster begins with, as the format left them.
    bootstrap: DecodedSnapshot | None
    last_snapshot: SnapshotId
    # How much log there is behind that snapshot.
    bytes_after_snapshot: int = 0


class MetadataStore:
    def __init__(self, files: FileSystem, settings: NodeSettings) -> None:
        self.directory = metadata_log_directory(settings)
        self._files = files
        self._settings = settings
        self._log: Log | None = None

    @property
    def log(self) -> Log:
        assert self._log is not None, "recover() comes first"
        return self._log

    # -- start ---------------------------------------------------------------------------------------------------------

    def recover(self, now_ms: int) -> Recovered:
        """Image and quorum as of the end of the log: the newest snapshot that can be read, and the log after it."""
        self._remove_leftovers()
        bootstrap = self._read_snapshot(StoredSnapshot(BOOTSTRAP_SNAPSHOT, self._path(BOOTSTRAP_SNAPSHOT)))
        recovered = Recovered(
            EMPTY_IMAGE, bootstrap.quorum if bootstrap else QuorumConfiguration(), False, bootstrap, BOOTSTRAP_SNAPSHOT
        )
        candidates = [stored for stored in self.snapshots() if stored.id != BOOTSTRAP_SNAPSHOT]
        for stored in reversed(candidates):
            snapshot = self._read_snapshot(stored)
            if snapshot is not None:
                self._restore(recovered, stored.id, snapshot)
                break
        start = recovered.last_snapshot.offset
        self._check_committed(start)
        self._log = Log.open(
            self._files,
            self.directory,
            METADATA_PARTITION,
            TopicSettings(
                segment_bytes=self._settings.metadata_segment_bytes,
                segment_ms=self._settings.metadata_log_segment_ms,
                retention_ms=-1,
                retention_bytes=-1,
            ),
            clean_shutdown=False,
            recovery_point=start,
            log_start_offset=0,
            now_ms=now_ms,
            topic_id=METADATA_TOPIC_ID,
        )
        if self.log.log_start_offset > start:
            raise MetadataLost(
                f"{self.directory}: the log begins at {self.log.log_start_offset}, and no snapshot reaches that far"
            )
        if self.log.log_end_offset < start:
            logger.warning("%s ends at %d, before its snapshot at %d", self.directory, self.log.log_end_offset, start)
            self.log.truncate_fully_and_start_at(start)
        self._replay_log(recovered)
        return recovered

    def _restore(self, recovered: Recovered, stored: SnapshotId, snapshot: DecodedSnapshot) -> None:
        delta = MetadataDelta(EMPTY_IMAGE)
        try:
            delta.replay_all(snapshot.records)
        except ReplayFailed as error:
            raise MetadataLost(f"{self._path(stored)}: {error}") from error
        recovered.image = delta.apply(stored.offset - 1, stored.epoch, snapshot.last_contained_timestamp_ms)
        recovered.quorum = snapshot.quorum
        recovered.quorum_in_log = snapshot.quorum.voters is not None
        recovered.last_snapshot = stored

    def _check_committed(self, start: int) -> None:
        """Opening a log cuts it where it is damaged, which is right for a tail that was never synced. Whatever lies
        before the begin of an epoch in the epoch checkpoint was synced, though, and committed: damage there is loss.
        """
        path = os.path.join(self.directory, LEADER_EPOCH_CHECKPOINT)
        try:
            epochs = read_epoch_checkpoint(self._files, path)
        except MalformedCheckpoint as error:
            logger.error("%s; what it would tell about the log is not checked", error)
            return
        committed = max((start_offset for _, start_offset in epochs), default=0)
        offset = start
        bases = [int(name[:20]) for name in self._files.list(self.directory) if _SEGMENT.fullmatch(name)]
        for base, following in zip(bases, [*bases[1:], committed + 1], strict=False):
            if following <= offset:
                continue  # in the snapshot
            if base > offset or offset >= committed:
                break
            offset = max(offset, self._good_until(base, committed))
        if offset < committed:
            raise MetadataLost(
                f"{self.directory} was written and synced up to offset {committed}, but is damaged or missing at "
                f"{offset}: restore it from a backup"
            )

    def _good_until(self, base_offset: int, limit: int) -> int:
        """The offset behind the last batch of a segment that can be read, or one at or above `limit`."""
        file = self._files.open(os.path.join(self.directory, f"{base_offset:020d}.log"), read_only=True)
        position, offset = 0, base_offset
        try:
            while offset < limit:
                header = read_header(file.pread(HEADER_SIZE, position))
                if header.base_offset != offset or not HEADER_SIZE <= header.size <= MAX_BATCH_BYTES:
                    break
                check_crc(file.pread(header.size, position), 0, header)
                position, offset = position + header.size, header.next_offset
        except CorruptBatch:
            pass  # the end of the file, or of what is good in it
        finally:
            file.close()
        return offset

    def _replay_log(self, recovered: Recovered) -> None:
        for data in self._read_log(recovered.image.offset + 1):
            for position, header in iterate_headers(data):
                check_crc(data, position, header)
                if header.base_offset <= recovered.image.offset:
                    continue  # in the snapshot already
                delta = MetadataDelta(recovered.image)
                try:
                    for record in iterate_records(data, position, header, max_size=MAX_BATCH_BYTES):
                        if not header.is_control:
                            delta.replay(decode_record(record.value))
                            continue
                        message = parse_quorum_record(record)
                        if isinstance(message, KRaftVersionRecord):
                            recovered.quorum = QuorumConfiguration(message.kraft_version, recovered.quorum.voters)
                        elif isinstance(message, VotersRecord):
                            recovered.quorum = QuorumConfiguration(
                                recovered.quorum.kraft_version, VoterSet.from_record(message)
                            )
                            recovered.quorum_in_log = True
                except (ReplayFailed, UnknownRecord, MalformedMessage, KafkaError) as error:
                    raise MetadataLost(
                        f"{self.directory}: the batch at offset {header.base_offset} cannot be replayed: {error}"
                    ) from error
                recovered.image = delta.apply(header.last_offset, header.leader_epoch, header.max_timestamp)
                recovered.bytes_after_snapshot += header.size

    def _read_log(self, offset: int) -> Iterator[Buffer]:
        end = self.log.log_end_offset
        while offset < end:
            data = self.log.read(offset, _READ_BYTES, end).data
            headers = [header for _, header in iterate_headers(data)]
            if not headers:
                raise MetadataLost(f"{self.directory}: nothing can be read at offset {offset}, before the end {end}")
            yield data
            offset = headers[-1].next_offset

    def _read_snapshot(self, stored: StoredSnapshot) -> DecodedSnapshot | None:
        """None if there is no such file or it is damaged; whether that can be lived with, the log decides."""
        try:
            return decode_snapshot(read_file(self._files, stored.path))
        except FileNotFoundError:
            return None
        except (KafkaError, UnknownRecord, MalformedMessage) as error:
            logger.error("%s cannot be used: %s", stored.path, error)
            return None

    def _remove_leftovers(self) -> None:
        for name in self._files.list(self.directory):
            if name.endswith((_PART_SUFFIX, ".checkpoint.deleted")):
                self._files.remove(os.path.join(self.directory, name))

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
        """Durable on return."""
        data = encode_quorum_state(state, min(kraft_version, 1), voter_ids)
        write_file_atomically(self._files, os.path.join(self.directory, QUORUM_STATE_FILE), data)

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def snapshots(self) -> list[StoredSnapshot]:
        """Oldest first."""
        found = ((snapshot_id(name), os.path.join(self.directory, name)) for name in self._files.list(self.directory))
        return sorted(StoredSnapshot(identity, path) for identity, path in found if identity is not None)

    def write_snapshot(self, image: MetadataImage, quorum: QuorumConfiguration, now_ms: int) -> SnapshotId:
        """Runs on a worker thread; durable on return."""
        identity = SnapshotId(image.offset + 1, image.epoch)
        path = self._path(identity)
        part = path + _PART_SUFFIX
        self._files.remove(part)
        file = self._files.open(part, create=True)
        try:
            position = 0
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
        return identity

    def expired_snapshots(self, now_ms: int) -> tuple[list[str], int]:
        """The files of snapshots that retention no longer wants, and the offset the log may begin at without them."""
        kept = self.snapshots()
        sizes = {stored.path: self._files.size(stored.path) for stored in kept}
        total = self.log.size + sum(sizes.values())
        expired: list[str] = []
        max_bytes, max_ms = self._settings.metadata_max_retention_bytes, self._settings.metadata_max_retention_ms
        while len(kept) > 1:
            oldest = kept[0]
            too_large = 0 <= max_bytes < total
            too_old = 0 <= max_ms < now_ms - self._files.modified_ms(oldest.path)
            if not too_large and not too_old:
                break
            expired.append(oldest.path)
            # With a snapshot goes the log up to the next.
            total -= sizes[oldest.path] + self._log_bytes_between(oldest.id.offset, kept[1].id.offset)
            del kept[0]
        return expired, kept[0].id.offset if kept else 0

    def _log_bytes_between(self, start: int, end: int) -> int:
        segments = self.log.segments
        return sum(
            segment.size
            for segment, following in pairwise(segments)
            if start <= segment.base_offset and following.base_offset <= end
        )

    def remove_files(self, paths: list[str]) -> None:
        """Runs on a worker thread. What cannot be removed now goes another time."""
        for path in paths:
            try:
                self._files.remove(path)
            except OSError as error:
                logger.warning("%s cannot be removed: %s", path, error)

    def _path(self, identity: SnapshotId) -> str:
        return os.path.join(self.directory, identity.file_name)
