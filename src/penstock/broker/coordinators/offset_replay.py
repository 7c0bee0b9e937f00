"""Reads committed offsets directly from the bytes of their records, without decoding messages.

After a failover there may be hundreds of thousands of them, and no group of the partition continues until they are
loaded. Coordinators write nearly all of them in one form (version 4, short metadata, a topic id); this module reads
that form with one `struct` per record. Keys of one group and topic differ in their last four bytes only, and map to the
same dictionary. All other records take the general path.
"""

from __future__ import annotations

import struct
from typing import Final

from penstock.groups.offset_store import CommittedOffset, OffsetStore
from penstock.model.ids import Uuid
from penstock.protocol.codec import decode_from
from penstock.protocol.messages.group_records import OffsetCommitKey

_TYPE: Final = b"\x00\x01"
_VERSION: Final = 4
# Version, offset, leader epoch, length of the metadata plus one. After the metadata: the commit timestamp, one tagged
# field, its tag, its size, a topic id.
_HEAD: Final = struct.Struct(">hqiB")
_TAIL: Final = struct.Struct(">q3s16s")
_TOPIC_ID_FIELD: Final = b"\x01\x00\x10"
_SIZE: Final = _HEAD.size + _TAIL.size - 1
_LENGTH_MAX: Final = 0x7F

_unpack_head = _HEAD.unpack_from
_unpack_tail = _TAIL.unpack_from
_unpack_partition = struct.Struct(">i").unpack_from
_new_tuple = tuple.__new__


class OffsetReplay:
    """Called with a record outside of any transaction; returns False for a record in another form."""

    def __init__(self, offsets: OffsetStore) -> None:
        self._offsets = offsets
        self._partitions: dict[bytes, dict[int, CommittedOffset]] = {}
        self._removals = offsets.removals
        self._topic_ids: dict[Uuid, Uuid] = {}

    def __call__(self, key: bytes | None, value: bytes | None) -> bool:
        if key is None or value is None or len(value) <= _SIZE or key[:2] != _TYPE:
            return False
        version, offset, leader_epoch, length = _unpack_head(value)
        if version != _VERSION or not 1 <= length <= _LENGTH_MAX or len(value) != _SIZE + length:
            return False
        timestamp, field, topic_id = _unpack_tail(value, 14 + length)
        if field != _TOPIC_ID_FIELD:
            return False
        if self._removals != self._offsets.removals:
            # A cached dictionary may have been removed.
            self._removals = self._offsets.removals
            self._partitions.clear()
        partitions = self._partitions.get(key[:-4])
        if partitions is None:
            named, end = decode_from(OffsetCommitKey, key, 0, 2)
            if end != len(key):
                return False
            partitions = self._partitions[key[:-4]] = self._offsets.partitions_of(named.group, named.topic)
        (partition,) = _unpack_partition(key, len(key) - 4)
        partitions[partition] = _new_tuple(
            CommittedOffset,
            (
                offset,
                leader_epoch,
                value[15 : 14 + length].decode() if length > 1 else "",
                timestamp,
                -1,
                self._topic_ids.setdefault(topic_id, topic_id),
                self._offsets.next_sequence(),
            ),
        )
        return True
