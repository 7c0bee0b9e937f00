"""Metadata that this software does not serve: records of a kind or a version that is not known here.

A cluster that runs other software as well (a later Penstock, Apache Kafka) may write such records. A node that does not
understand a record must not lose it: the node may serve its metadata to others, lead the quorum later, or be upgraded
and read its own snapshots again. So an unserved record is kept as the bytes it had, in their order, in the image and in
every snapshot; the log has it anyway.

What an unserved record means is unknown, so a record after it that contradicts the image may be its consequence (a
change of a partition that a record of a later version created). Such a record is kept too, in place of stopping the
node. A controller with unserved records in its image does not lead: it cannot decide about what it cannot read.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import read_uvarint


class UnservedRecord(Message):
    """A record as it is in the log: frame version, type and version, each an unsigned varint, and the body."""

    value: bytes = field("0+")


def kind_of(record: UnservedRecord) -> str:
    """The frame, type and version, in words for the operator."""
    frame, position = read_uvarint(record.value, 0)
    if frame != 1:
        return f"frame version {frame}"
    key, position = read_uvarint(record.value, position)
    version, _ = read_uvarint(record.value, position)
    return f"type {key}, version {version}"


def kinds_of(records: Iterable[UnservedRecord]) -> list[str]:
    return sorted({kind_of(record) for record in records})
