"""The state of one share partition, as the records of `__share_group_state` describe it.

A snapshot is the whole state; an update is what changed. Values are immutable: a record makes a new state from the
previous one.

Three epochs. The state epoch is that of the group when it last initialized the partition: writes of an older one are
fenced. The leader epoch is that of the partition's leader: older leaders are fenced. The snapshot epoch counts
snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.coordinator.decision import CoordinatorRecord
from penstock.protocol.messages import read_share_group_state, write_share_group_state
from penstock.protocol.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)
from penstock.share_state.batches import NO_OFFSET, Batch, combine
from penstock.share_state.key import SharePartitionKey

NO_EPOCH: Final = -1
NO_COUNT: Final = -1


class ShareState(NamedTuple):
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    # NO_OFFSET: the leader has not chosen yet where the group begins.
    start_offset: int
    # How many records from the start offset on are final; NO_COUNT if that is unknown.
    delivery_complete_count: int
    batches: list[Batch]
    create_timestamp: int = NO_EPOCH
    write_timestamp: int = NO_EPOCH
    # The highest leader epoch ever seen, which the record may have forgotten after an initialization.
    fencing_epoch: int = NO_EPOCH
    # The offset of the snapshot in the log, and the number of updates since.
    snapshot_at: int = 0
    updates: int = 0

    @property
    def is_cold(self) -> bool:
        """Whether the last snapshot was made because the partition was idle."""
        return self.create_timestamp != self.write_timestamp

    def state_batches(self) -> list[read_share_group_state.StateBatch]:
        return [
            read_share_group_state.StateBatch(
                first_offset=batch.first,
                last_offset=batch.last,
                delivery_state=batch.state,
                delivery_count=batch.deliveries,
            )
            for batch in self.batches
        ]


def replayed_snapshot(before: ShareState | None, value: ShareSnapshotValue, offset: int) -> ShareState:
    return ShareState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=batches_of(value.state_batches),
        create_timestamp=value.create_timestamp,
        write_timestamp=value.write_timestamp,
        fencing_epoch=max(value.leader_epoch, NO_EPOCH if before is None else before.fencing_epoch),
        snapshot_at=offset,
    )


def replayed_update(before: ShareState | None, value: ShareUpdateValue, offset: int) -> ShareState:
    if before is None:
        # Its snapshot is missing from the log, which only another implementation can have caused.
        before = ShareState(value.snapshot_epoch, NO_EPOCH, NO_EPOCH, NO_OFFSET, NO_COUNT, [], snapshot_at=offset)
    start_offset = before.start_offset if value.start_offset == NO_OFFSET else value.start_offset
    leader_epoch = before.leader_epoch if value.leader_epoch == NO_EPOCH else value.leader_epoch
    return before._replace(
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=combine(before.batches, batches_of(value.state_batches), start_offset),
        fencing_epoch=max(before.fencing_epoch, leader_epoch),
        updates=before.updates + 1,
    )


def snapshot_record(key: SharePartitionKey, state: ShareState) -> CoordinatorRecord:
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_timestamp,
        write_timestamp=state.write_timestamp,
        state_batches=_stored(state.batches),
    )
    return CoordinatorRecord(_snapshot_key(key), value)


def update_record(key: SharePartitionKey, state: ShareState, changed: Iterable[Batch]) -> CoordinatorRecord:
    """`state` is the state after the update, `changed` its new batches."""
    value = ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        state_batches=_stored(changed),
    )
    return CoordinatorRecord(
        ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), value
    )


def tombstone(key: SharePartitionKey) -> CoordinatorRecord:
    return CoordinatorRecord(_snapshot_key(key), None)


def batches_of(batches: Iterable[StateBatch | write_share_group_state.StateBatch]) -> list[Batch]:
    return [
        Batch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count) for batch in batches
    ]


def _snapshot_key(key: SharePartitionKey) -> ShareSnapshotKey:
    return ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)


def _stored(batches: Iterable[Batch]) -> list[StateBatch]:
    return [
        StateBatch(
            first_offset=batch.first,
            last_offset=batch.last,
            delivery_state=batch.state,
            delivery_count=batch.deliveries,
        )
        for batch in batches
    ]
