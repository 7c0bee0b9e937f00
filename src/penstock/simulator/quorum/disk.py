"""The disk of a simulated node of the quorum: what the node has written, and what survives a power loss.

A log is a list of batches. Every batch contains the fingerprint of the whole log up to it, so two logs can be compared
by one batch of each. A snapshot is such a fingerprint, with the voters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

from penstock.protocol.codec import decode, encode
from penstock.protocol.messages.control_records import VotersRecord
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.quorum_state import ElectionState
from penstock.raft.ready import ControlRecord
from penstock.raft.voters import VoterSet
from penstock.replication.epochs import LeaderEpochs

Payload = str | ControlRecord
NOTHING_YET = bytes(8)
BEGINNING = OffsetAndEpoch(0, 0)


class Batch(NamedTuple):
    base_offset: int
    epoch: int
    payloads: tuple[Payload, ...]
    # Of the log up to and including this batch.
    fingerprint: bytes

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.payloads)

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.next_offset, self.epoch)


class Snapshot(NamedTuple):
    id: OffsetAndEpoch
    fingerprint: bytes
    kraft_version: int
    voters: VoterSet | None

    def to_bytes(self) -> bytes:
        voters = b"" if self.voters is None else encode(self.voters.to_record(), 0)
        return self.fingerprint + bytes([self.kraft_version]) + voters

    @classmethod
    def from_bytes(cls, identity: OffsetAndEpoch, data: bytes) -> Snapshot:
        voters = VoterSet.from_record(decode(VotersRecord, data[9:], 0)) if len(data) > 9 else None
        return cls(identity, data[:8], data[8], voters)


@dataclass(frozen=True, slots=True)
class LogImage:
    """The complete content of the log's files at one moment."""

    start: OffsetAndEpoch = BEGINNING
    start_fingerprint: bytes = NOTHING_YET
    batches: tuple[Batch, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()

    @property
    def end(self) -> OffsetAndEpoch:
        return self.batches[-1].end if self.batches else self.start

    def fingerprint_at(self, offset: int) -> bytes | None:
        """The fingerprint of the log up to `offset`; None if no batch ends there."""
        if offset == self.start.offset:
            return self.start_fingerprint
        return next((batch.fingerprint for batch in reversed(self.batches) if batch.next_offset == offset), None)

    def holds(self, offset: int, fingerprint: bytes) -> bool:
        """Whether the log up to `offset` is the one with that fingerprint, as a log or as a snapshot."""
        if offset < self.start.offset:
            # A snapshot was made from it. Whether from the right log, the next compared offset shows.
            return True
        return self.fingerprint_at(offset) == fingerprint


@dataclass(slots=True)
class Disk:
    """`log` is what the process sees, `synced` what survives a power loss at least. The same for the election."""

    directory_id: bytes
    log: LogImage = field(default_factory=LogImage)
    synced: LogImage = field(default_factory=LogImage)
    election: ElectionState | None = None
    synced_election: ElectionState | None = None
    # What the node was formatted with.
    bootstrap: tuple[ControlRecord, ...] = ()
    # Syncs that began before the log was cut say nothing about what was written later.
    cuts: int = 0
    _syncs_begun: int = 0
    _last_sync: int = 0

    def sync_begun(self) -> int:
        self._syncs_begun += 1
        return self._syncs_begun

    def sync_ended(self, number: int, image: LogImage) -> None:
        """A sync that a crashed process left may end after those of the next process, and then adds nothing."""
        if number > self._last_sync:
            self._last_sync, self.synced = number, image

    def lose_power(self, random: Random) -> None:
        """Unsynced data may survive or not; the last appended data is lost first."""
        self.election = self.synced_election
        self.cuts += 1
        if self.log.start != self.synced.start or random.random() < 0.5:
            self.log = self.synced
            return
        agreed = 0
        for ours, theirs in zip(self.log.batches, self.synced.batches, strict=False):
            if ours != theirs:
                break
            agreed += 1
        kept = random.randint(agreed, len(self.log.batches))
        snapshots = self.synced.snapshots
        self.log = replace(self.log, batches=self.log.batches[:kept], snapshots=snapshots)
        self.synced = self.log


class SimulatedRaftLog:
    """The log as the state machine reads it (`LogView`), and as the simulation's runtime writes it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._epochs = LeaderEpochs((batch.epoch, batch.base_offset) for batch in self.image.batches)

    @property
    def image(self) -> LogImage:
        return self._disk.log

    # -- LogView ---------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self.image.start.offset

    @property
    def end_offset(self) -> int:
        return self.image.end.offset

    @property
    def last_epoch(self) -> int:
        return self.image.end.epoch

    @property
    def synced_offset(self) -> int:
        image, synced = self.image, self._disk.synced
        if image is synced:
            return image.end.offset
        if synced.start != image.start:
            return image.start.offset
        offset = image.start.offset
        for ours, theirs in zip(image.batches, synced.batches, strict=False):
            if ours is not theirs and ours != theirs:
                break
            offset = ours.next_offset
        return offset

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return self.image.start if self.image.start.offset else None

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self.image.snapshots[-1].id if self.image.snapshots else None

    def snapshot_size(self, snapshot: OffsetAndEpoch) -> int | None:
        found = self.snapshot(snapshot)
        return None if found is None else len(found.to_bytes())

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch | None:
        found, offset = self._epochs.end_offset_for(epoch, self.end_offset)
        return None if found < 0 else OffsetAndEpoch(offset, found)

    # -- writing ---------------------------------------------------------------------------------------------------

    def append(self, epoch: int, payloads: Sequence[Payload]) -> Batch:
        image = self.image
        before = image.batches[-1].fingerprint if image.batches else image.start_fingerprint
        hashed = hashlib.blake2b(before, digest_size=8)
        hashed.update(repr((epoch, payloads)).encode())
        batch = Batch(image.end.offset, epoch, tuple(payloads), hashed.digest())
        self.append_fetched([batch])
        return batch

    def append_fetched(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            assert batch.base_offset == self.end_offset, f"{batch} does not fit behind {self.image.end}"
            self._disk.log = replace(self.image, batches=(*self.image.batches, batch))
            self._epochs.assign(batch.epoch, batch.base_offset)

    def truncate_to(self, offset: int) -> None:
        kept = tuple(batch for batch in self.image.batches if batch.next_offset <= offset)
        self._disk.log = replace(self.image, batches=kept)
        self._disk.cuts += 1
        assert self.end_offset == offset, f"no batch ends at {offset}"
        self._epochs.truncate_from_end(offset)

    def read(self, offset: int, max_batches: int) -> list[Batch]:
        return [batch for batch in self.image.batches if batch.base_offset >= offset][:max_batches]

    def control_records(self) -> Iterator[tuple[int, ControlRecord]]:
        for batch in self.image.batches:
            yield from control_records(batch)

    # -- snapshots -------------------------------------------------------------------------------------------------

    def snapshot(self, identity: OffsetAndEpoch) -> Snapshot | None:
        return next((snapshot for snapshot in self.image.snapshots if snapshot.id == identity), None)

    def add_snapshot(self, snapshot: Snapshot, *, trim: bool) -> None:
        """It is written and synced before it gets its name. With `trim`, the log before it is removed."""
        image = replace(self.image, snapshots=(*self.image.snapshots, snapshot))
        if trim:
            image = replace(
                image,
                start=snapshot.id,
                start_fingerprint=snapshot.fingerprint,
                batches=tuple(batch for batch in image.batches if batch.base_offset >= snapshot.id.offset),
                snapshots=(snapshot,),
            )
            self._epochs.truncate_from_start(snapshot.id.offset)
            if not image.batches:
                self._epochs.clear()
        self._replace(image)

    def install(self, snapshot: Snapshot) -> None:
        self._replace(LogImage(snapshot.id, snapshot.fingerprint, (), (snapshot,)))
        self._epochs.clear()

    def _replace(self, image: LogImage) -> None:
        """Files that a snapshot adds or removes are synced with it."""
        everything_synced = self.synced_offset
        self._disk.log = image
        self._disk.cuts += 1
        kept = tuple(batch for batch in image.batches if batch.next_offset <= everything_synced)
        self._disk.synced = replace(image, batches=kept)


def control_records(batch: Batch) -> Iterator[tuple[int, ControlRecord]]:
    for offset, payload in enumerate(batch.payloads, batch.base_offset):
        if not isinstance(payload, str):
            yield offset, payload
