"""The records of `__share_group_state`: keys preceded by their type, values by their version (both int16).

A snapshot is the whole state of a share partition; an update is what changed since. A null snapshot deletes the state.
"""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32, Int64, Uuid


class ShareSnapshotKey(Message, key=0, versions="0"):
    group_id: str = field("0")
    topic_id: Uuid = field("0")
    partition: Int32 = field("0")


class ShareSnapshotValue(Message, key=0, versions="0", flexible="0+"):
    snapshot_epoch: Int32 = field("0+")
    state_epoch: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    start_offset: Int64 = field("0+")
    delivery_complete_count: Int32 = field("0+", default=-1, tag=0)
    create_timestamp: Int64 = field("0+")
    write_timestamp: Int64 = field("0+")
    state_batches: list[StateBatch] = field("0+")


class ShareUpdateKey(Message, key=1, versions="0"):
    group_id: str = field("0")
    topic_id: Uuid = field("0")
    partition: Int32 = field("0")


class ShareUpdateValue(Message, key=1, versions="0", flexible="0+"):
    snapshot_epoch: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    # -1 if the start offset has not changed.
    start_offset: Int64 = field("0+")
    delivery_complete_count: Int32 = field("0+", default=-1, tag=0)
    state_batches: list[StateBatch] = field("0+")


class StateBatch(Message):
    first_offset: Int64 = field("0+")
    last_offset: Int64 = field("0+")
    # 0 available, 2 acknowledged, 4 archived.
    delivery_state: Int8 = field("0+")
    delivery_count: Int16 = field("0+")


RECORD_TYPES: dict[int, tuple[type[Message], type[Message]]] = {
    0: (ShareSnapshotKey, ShareSnapshotValue),
    1: (ShareUpdateKey, ShareUpdateValue),
}
