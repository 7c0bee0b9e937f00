"""Recovers the metadata from disk when a node starts.

The newest readable snapshot is the initial image. The log after it is not replayed yet: only the quorum can say which
part of it is committed. Its control records are read now, because the version and the voters apply as soon as they are
appended.

The metadata log is not repaired in place. Damage in its committed part stops a voter (`MetadataLost`); an observer
truncates its log and fetches again.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.io.files import FileSystem, read_file
from penstock.log.checkpoints import LEADER_EPOCH_CHECKPOINT, MalformedCheckpoint, read_epoch_checkpoint
from penstock.log.log import Log
from penstock.metadata.delta import MetadataDelta, ReplayFailed
from penstock.metadata.image import EMPTY_IMAGE, MetadataImage
from penstock.metadata.snapshot import MAX_BATCH_BYTES, DecodedSnapshot, SnapshotId, decode_snapshot
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.codec import MalformedMessage
from penstock.protocol.messages.control_records import KRaftVersionRecord, VotersRecord
from penstock.raft.ready import ControlRecord
from penstock.raft.voter_history import BOOTSTRAP_OFFSET, VoterHistory
from penstock.records.batch import HEADER_SIZE, Buffer, CorruptBatch, check_crc, iterate_headers, read_header
from penstock.records.control import parse_quorum_record
from penstock.records.record import iterate_records

logger = logging.getLogger("penstock.quorum")

_SEGMENT: Final = re.compile(r"[0-9]{20}\.log")
_READ_BYTES: Final = 1024 * 1024


class MetadataLost(KafkaError):
    """The metadata on disk cannot be read. The node must not start: it would lose its topics."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class StoredSnapshot(NamedTuple):
    id: SnapshotId
    path: str


@dataclass(slots=True)
class Recovered:
    """The state found on disk; `image` and `history` are as of `last_snapshot` until the log is read too."""

    image: MetadataImage
    history: VoterHistory
    # The initial records of a new cluster, as formatting wrote them.
    bootstrap: DecodedSnapshot | None
    last_snapshot: SnapshotId


def read_snapshot(files: FileSystem, stored: StoredSnapshot) -> DecodedSnapshot | None:
    """None if the file is missing or damaged; the log decides whether the node can start without it."""
    try:
        return decode_snapshot(read_file(files, stored.path))
    except FileNotFoundError:
        return None
    except (KafkaError, MalformedMessage) as error:
        logger.error("%s cannot be used: %s", stored.path, error)
        return None


def image_of(identity: SnapshotId, snapshot: DecodedSnapshot) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    try:
        delta.replay_all(snapshot.records)
    except ReplayFailed as error:
        raise MetadataLost(f"the snapshot at {identity.offset} cannot be replayed: {error}") from error
    return delta.apply(identity.offset - 1, identity.epoch, snapshot.last_contained_timestamp_ms)


def recover_snapshot(
    files: FileSystem, bootstrap: StoredSnapshot, snapshots: Sequence[StoredSnapshot], history: VoterHistory
) -> Recovered:
    """Load the newest readable snapshot into an empty `history`; without one, load only the format's checkpoint."""
    begin = read_snapshot(files, bootstrap)
    recovered = Recovered(EMPTY_IMAGE, history, begin, bootstrap.id)
    for stored in reversed(snapshots):
        snapshot = read_snapshot(files, stored)
        if snapshot is not None:
            recovered.image = image_of(stored.id, snapshot)
            recovered.last_snapshot = stored.id
            history.reset(stored.id.offset, snapshot.quorum.kraft_version, snapshot.quorum.voters)
            return recovered
    if begin is not None and begin.quorum.kraft_version:
        history.add_version(BOOTSTRAP_OFFSET, begin.quorum.kraft_version)
        if begin.quorum.voters is not None:
            history.add_voters(BOOTSTRAP_OFFSET, begin.quorum.voters)
    return recovered


def read_history(log: Log, start: int, history: VoterHistory) -> None:
    """Read the control records of the log, beginning at `start`."""
    for data in read_log(log, start):
        for offset, record in control_records(data):
            if offset >= start:
                history.replay(offset, record)


def control_records(data: Buffer) -> list[tuple[int, ControlRecord]]:
    """The control records that set the version or the voters, with their offsets."""
    found: list[tuple[int, ControlRecord]] = []
    for position, header in iterate_headers(data):
        if not header.is_control:
            continue
        check_crc(data, position, header)
        for record in iterate_records(data, position, header, max_size=MAX_BATCH_BYTES):
            message = parse_quorum_record(record)
            if isinstance(message, KRaftVersionRecord | VotersRecord):
                found.append((record.offset, message))
    return found


def read_log(log: Log, offset: int) -> Iterator[Buffer]:
    end = log.log_end_offset
    while offset < end:
        data = log.read(offset, _READ_BYTES, end).data
        headers = [header for _, header in iterate_headers(data)]
        if not headers:
            raise MetadataLost(f"{log.directory}: nothing can be read at offset {offset}, before the end {end}")
        yield data
        offset = headers[-1].next_offset


def check_committed(files: FileSystem, directory: str, start: int) -> None:
    """Raise MetadataLost if the committed part of the log is damaged.

    Opening a log truncates it where it is damaged, which is right for a tail that was never synced. But everything
    before the start of an epoch in the epoch checkpoint was synced and acknowledged to other nodes: damage there is
    data loss.
    """
    path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT)
    try:
        epochs = read_epoch_checkpoint(files, path)
    except MalformedCheckpoint as error:
        logger.error("%s; what it would tell about the log is not checked", error)
        return
    committed = max((start_offset for _, start_offset in epochs), default=0)
    offset = start
    bases = [int(name[:20]) for name in files.list(directory) if _SEGMENT.fullmatch(name)]
    for base, following in zip(bases, [*bases[1:], committed + 1], strict=False):
        if following <= offset:
            continue  # covered by the snapshot
        if base > offset or offset >= committed:
            break
        offset = max(offset, _good_until(files, directory, base, committed))
    if offset < committed:
        raise MetadataLost(
            f"{directory} was written and synced up to offset {committed}, but is damaged or missing at "
            f"{offset}: restore it from a backup"
        )


def _good_until(files: FileSystem, directory: str, base_offset: int, limit: int) -> int:
    """The offset after the last readable batch of a segment, or one at or above `limit`."""
    file = files.open(os.path.join(directory, f"{base_offset:020d}.log"), read_only=True)
    position, offset = 0, base_offset
    try:
        while offset < limit:
            header = read_header(file.pread(HEADER_SIZE, position))
            if header.base_offset != offset or not HEADER_SIZE <= header.size <= MAX_BATCH_BYTES:
                break
            check_crc(file.pread(header.size, position), 0, header)
            position, offset = position + header.size, header.next_offset
    except CorruptBatch:
        pass  # the end of the file, or of its readable part
    finally:
        file.close()
    return offset
