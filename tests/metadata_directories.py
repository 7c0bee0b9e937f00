"""The metadata of nodes of both kinds, read from their directories: the log, batch by batch, and the snapshots, each of
which is the image of the node that wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.broker.metadata.recovery import image_of
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import EMPTY_IMAGE, MetadataImage
from penstock.metadata.serde import decode_record
from penstock.metadata.snapshot import BOOTSTRAP_SNAPSHOT, SnapshotId, decode_snapshot, snapshot_id
from penstock.protocol.declaration import Message
from penstock.records.batch import BatchHeader, check_crc, iterate_headers
from penstock.records.record import iterate_records

BATCH_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True)
class MetadataDirectory:
    batches: Mapping[int, bytes]
    snapshots: Mapping[SnapshotId, MetadataImage]

    @property
    def end(self) -> int:
        return max((_header(data).next_offset for data in self.batches.values()), default=0)

    def image_at(self, offset: int) -> MetadataImage:
        """What the records before an offset say, from the beginning of the log."""
        assert min(self.batches) == 0, "the beginning of the log is gone"
        delta = MetadataDelta(EMPTY_IMAGE)
        epoch = 0
        for base, data in sorted(self.batches.items()):
            header = _header(data)
            if header.is_control or base >= offset:
                continue
            epoch = header.leader_epoch
            for record in iterate_records(data, 0, header, max_size=BATCH_BYTES_MAX):
                if record.offset < offset:
                    delta.replay(decode_record(record.value))
        return delta.apply(offset - 1, epoch, 0)


def read(data_directory: Path) -> MetadataDirectory:
    directory = data_directory / "__cluster_metadata-0"
    batches: dict[int, bytes] = {}
    for segment in sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        for place, header in iterate_headers(data):
            check_crc(data, place, header)
            batches[header.base_offset] = data[place : place + header.size]
    snapshots: dict[SnapshotId, MetadataImage] = {}
    for path in directory.glob("*.checkpoint"):
        identity = snapshot_id(path.name)
        if identity is not None and identity != BOOTSTRAP_SNAPSHOT:
            snapshots[identity] = image_of(identity, decode_snapshot(path.read_bytes()))
    return MetadataDirectory(batches, snapshots)


def compare(directories: Mapping[str, MetadataDirectory]) -> int:
    """Logs are the same bytes where both have them; every snapshot is what the log before it says, record by record.

    Returns the number of snapshots.
    """
    name, longest = max(directories.items(), key=lambda each: each[1].end)
    compared = 0
    for other, directory in directories.items():
        common = directory.batches.keys() & longest.batches.keys()
        assert common, f"{name} and {other} have no batch in common"
        for base in sorted(common):
            assert directory.batches[base] == longest.batches[base], f"{name} and {other} differ at offset {base}"
        for identity, image in sorted(directory.snapshots.items()):
            expected = longest.image_at(identity.offset)
            assert image.same_content(expected), f"{other} at {identity}: {differences(expected, image)}"
            compared += 1
    return compared


def differences(one: MetadataImage, other: MetadataImage) -> str:
    """The records that only one of them has."""
    left, right = _texts(one), _texts(other)
    return f"only by the log: {sorted(left - right)[:5]}; only in the snapshot: {sorted(right - left)[:5]}"


def _texts(image: MetadataImage) -> set[str]:
    return {_text(record) for record in image.to_records()}


def _text(record: Message) -> str:
    return repr(record)


def _header(data: bytes) -> BatchHeader:
    ((_, header),) = iterate_headers(data)
    return header
