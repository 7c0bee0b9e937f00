"""Encodes metadata records: the values of the records in `__cluster_metadata` and in snapshots.

A value is a frame version (1), the record's type and its version, each an unsigned varint, and then the body. The
cluster's metadata.version determines the version of a record, so that every node of the cluster can read it.

A value of a type or version that this software does not know becomes an `UnservedRecord`, which is encoded as the bytes
it was decoded from.
"""

from __future__ import annotations

from penstock.metadata.features import METADATA_4_3_IV0
from penstock.metadata.unserved import UnservedRecord
from penstock.protocol.codec import decode, encode
from penstock.protocol.declaration import Message
from penstock.protocol.messages import metadata_records
from penstock.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from penstock.protocol.primitives import MalformedMessage, read_uvarint, uvarint

_FRAME_VERSION = 1

_RECORDS: dict[int, type[Message]] = {
    cls.__schema__.key: cls
    for cls in vars(metadata_records).values()
    if isinstance(cls, type) and issubclass(cls, Message) and cls.__schema__.key is not None
}


def record_version(record_type: type[Message], metadata_version: int) -> int:
    """The version in which a record is written. Types that are not listed here have only one version."""
    if record_type is RegisterBrokerRecord:
        return 4 if metadata_version >= METADATA_4_3_IV0 else 3
    if record_type is BrokerRegistrationChangeRecord:
        return 3 if metadata_version >= METADATA_4_3_IV0 else 2
    if record_type in (PartitionRecord, PartitionChangeRecord):
        return 2
    return 0


def encode_record(record: Message, metadata_version: int) -> bytes:
    if isinstance(record, UnservedRecord):
        return record.value
    key = record.__schema__.key
    assert key is not None, f"{type(record).__name__} is no metadata record"
    version = record_version(type(record), metadata_version)
    return uvarint(_FRAME_VERSION) + uvarint(key) + uvarint(version) + encode(record, version)


def decode_record(value: bytes | None) -> Message:
    """Decode a record; MalformedMessage if the bytes are not a record."""
    if not value:
        raise MalformedMessage("a metadata record without a value")
    try:
        frame_version, position = read_uvarint(value, 0)
        if frame_version != _FRAME_VERSION:
            return UnservedRecord(value=bytes(value))
        key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except IndexError:
        raise MalformedMessage("a metadata record that ends in its first bytes") from None
    record_type = _RECORDS.get(key)
    versions = None if record_type is None else record_type.__schema__.versions
    if record_type is None or versions is None or version not in versions:
        return UnservedRecord(value=bytes(value))
    return decode(record_type, value, version, position)
