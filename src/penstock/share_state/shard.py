"""The share coordinator of one partition of `__share_group_state`.

The group coordinator initializes and deletes the state of a share partition, and reads its summary; the leader of the
partition reads the state once and then writes what changes. Requests name many share partitions, and each may belong to
another coordinator: the caller splits them, and an operation here is about one. It answers with the part of the
response that is about this share partition.

Laws:

- State exists from its initialization to its deletion. Everything else is refused before and after.
- A write of an older leader epoch or an older state epoch is refused, and a read of an older leader epoch. A read of a
  newer leader epoch is recorded before it is answered: from then on older leaders cannot write.
- The start offset never goes back within a state epoch, and merged batches lose nothing (see `batches`).
- Of each share partition the log has the last snapshot and all updates after it. What comes before the oldest of these
  snapshots, `needed_from`, may be deleted.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from penstock.coordinator.decision import Decision, Reply, Token
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import ZERO_UUID, Uuid
from penstock.model.ownership import owned_by_loop
from penstock.protocol.declaration import Message
from penstock.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from penstock.protocol.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from penstock.settings.shares import ShareSettings
from penstock.share_state.batches import NO_OFFSET, Batch, combine
from penstock.share_state.key import SharePartitionKey
from penstock.share_state.state import (
    NO_COUNT,
    NO_EPOCH,
    ShareState,
    batches_of,
    replayed_snapshot,
    replayed_update,
    snapshot_record,
    tombstone,
    update_record,
)

# Snapshots of idle partitions to write in one tick.
_SNAPSHOTS_PER_TICK: Final = 500


class Topics(Protocol):
    """What the coordinator needs to know about topics."""

    def topic_name(self, topic_id: Uuid) -> str | None: ...

    def partition_count(self, name: str) -> int: ...


@owned_by_loop()
class ShareStateShard:
    def __init__(self, settings: ShareSettings, topics: Topics) -> None:
        self._settings = settings
        self._topics = topics
        self.states: dict[SharePartitionKey, ShareState] = {}
        self._next_check_ms: int | None = None

    # -- the log -------------------------------------------------------------------------------------------------------

    def replay(self, key: Message, value: Message | None, offset: int) -> None:
        """Replay the record at an offset. Only this method changes the states."""
        if isinstance(key, ShareSnapshotKey):
            name = SharePartitionKey(key.group_id, key.topic_id, key.partition)
            if value is None:
                self.states.pop(name, None)
            else:
                assert isinstance(value, ShareSnapshotValue)
                self.states[name] = replayed_snapshot(self.states.get(name), value, offset)
        elif isinstance(key, ShareUpdateKey) and value is not None:
            assert isinstance(value, ShareUpdateValue)
            name = SharePartitionKey(key.group_id, key.topic_id, key.partition)
            self.states[name] = replayed_update(self.states.get(name), value, offset)

    def needed_from(self, end_offset: int) -> int:
        """The first offset that a new coordinator needs. `end_offset`: of the log."""
        return min((state.snapshot_at for state in self.states.values()), default=end_offset)

    def loaded(self, now_ms: int) -> Decision:
        self._next_check_ms = now_ms + self._settings.share_coordinator_cold_partition_snapshot_interval_ms
        return self._without_deleted_topics()

    def resigned(self) -> list[Reply]:
        return []

    def topics_deleted(self, topic_ids: Collection[Uuid]) -> Decision:
        """Delete the state of share partitions whose topic is gone."""
        return Decision([tombstone(key) for key in self.states if key.topic_id in topic_ids], [])

    def _without_deleted_topics(self) -> Decision:
        """Topics may be deleted while there is no coordinator to notice."""
        gone = {key.topic_id for key in self.states if self._topics.topic_name(key.topic_id) is None}
        return self.topics_deleted(gone)

    # -- time ----------------------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> int | None:
        return self._next_check_ms

    def tick(self, now_ms: int) -> Decision:
        """Write snapshots of idle share partitions, so that the log before them can be deleted.

        If all are idle, nothing grows, and nothing is gained.
        """
        interval_ms = self._settings.share_coordinator_cold_partition_snapshot_interval_ms
        self._next_check_ms = now_ms + interval_ms
        out = Decision([], [])
        if all(state.is_cold for state in self.states.values()):
            return out
        for key, state in self.states.items():
            if now_ms - state.write_timestamp >= interval_ms:
                if len(out.records) == _SNAPSHOTS_PER_TICK:
                    self._next_check_ms = now_ms
                    break
                renewed = state._replace(snapshot_epoch=state.snapshot_epoch + 1, write_timestamp=now_ms)
                out.records.append(snapshot_record(key, renewed))
        return out

    # -- requests ------------------------------------------------------------------------------------------------------

    def initialize(
        self, key: SharePartitionKey, asked: initialize_share_group_state.Partition, token: Token, now_ms: int
    ) -> Decision:
        result = initialize_share_group_state.PartitionResult(partition=key.partition)
        out = Decision([], [Reply(token, result)])
        state = self.states.get(key)
        try:
            _check_numbers(key, state_epoch=asked.state_epoch)
            if state is not None and asked.state_epoch < state.state_epoch:
                raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
            self._check_exists(key)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            return out
        wanted = asked.state_epoch, asked.start_offset
        if state is None or (state.state_epoch, state.start_offset) != wanted:
            new = ShareState(
                snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
                state_epoch=asked.state_epoch,
                leader_epoch=NO_EPOCH,
                start_offset=asked.start_offset,
                # From an unknown start nothing can be counted.
                delivery_complete_count=NO_COUNT if asked.start_offset == NO_OFFSET else 0,
                batches=[],
                create_timestamp=now_ms,
                write_timestamp=now_ms,
            )
            out.records.append(snapshot_record(key, new))
        return out

    def read(
        self, key: SharePartitionKey, asked: read_share_group_state.Partition, token: Token, now_ms: int
    ) -> Decision:
        result = read_share_group_state.PartitionResult(partition=key.partition)
        out = Decision([], [Reply(token, result)])
        try:
            _check_numbers(key, leader_epoch=asked.leader_epoch)
            state = self._initialized(key, "Read")
            if asked.leader_epoch < state.fencing_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            self._check_exists(key)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            return out
        result.state_epoch = state.state_epoch
        result.start_offset = state.start_offset
        result.state_batches = state.state_batches()
        if asked.leader_epoch > state.fencing_epoch:
            self._write(key, state, state._replace(leader_epoch=asked.leader_epoch), [], now_ms, out)
        return out

    def write(
        self, key: SharePartitionKey, asked: write_share_group_state.Partition, token: Token, now_ms: int
    ) -> Decision:
        result = write_share_group_state.PartitionResult(partition=key.partition)
        out = Decision([], [Reply(token, result)])
        try:
            _check_numbers(key, leader_epoch=asked.leader_epoch, state_epoch=asked.state_epoch)
            state = self._initialized(key, "Write")
            if asked.leader_epoch < state.fencing_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            if asked.state_epoch < state.state_epoch:
                raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
            self._check_exists(key)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            return out
        count = asked.delivery_complete_count
        if asked.start_offset < state.start_offset:
            count = state.delivery_complete_count
        elif asked.start_offset == state.start_offset:
            count = max(count, state.delivery_complete_count)
        start_offset = max(asked.start_offset, state.start_offset)
        after = state._replace(start_offset=start_offset, delivery_complete_count=count)
        self._write(key, state, after, batches_of(asked.state_batches), now_ms, out)
        return out

    def _write(
        self,
        key: SharePartitionKey,
        before: ShareState,
        after: ShareState,
        changed: list[Batch],
        now_ms: int,
        out: Decision,
    ) -> None:
        """Write an update, or a snapshot if there have been many updates."""
        if before.updates < self._settings.share_coordinator_snapshot_update_records_per_snapshot:
            out.records.append(update_record(key, after, combine([], changed, after.start_offset)))
            return
        snapshot = after._replace(
            snapshot_epoch=before.snapshot_epoch + 1,
            batches=combine(before.batches, changed, after.start_offset),
            create_timestamp=now_ms,
            write_timestamp=now_ms,
        )
        out.records.append(snapshot_record(key, snapshot))

    def delete(
        self, key: SharePartitionKey, asked: delete_share_group_state.Partition, token: Token, now_ms: int
    ) -> Decision:
        """Delete the state; nothing happens if there is none."""
        result = delete_share_group_state.PartitionResult(partition=key.partition)
        out = Decision([], [Reply(token, result)])
        try:
            _check_numbers(key)
            self._check_exists(key)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            return out
        if key in self.states:
            out.records.append(tombstone(key))
        return out

    def summary(
        self, key: SharePartitionKey, asked: read_share_group_state_summary.Partition, token: Token, now_ms: int
    ) -> Decision:
        result = read_share_group_state_summary.PartitionResult(partition=key.partition)
        try:
            _check_numbers(key)
            self._check_exists(key)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            return Decision([], [Reply(token, result)])
        state = self.states.get(key)
        result.start_offset = NO_OFFSET
        if state is not None:
            result.state_epoch = state.state_epoch
            result.leader_epoch = state.leader_epoch
            result.start_offset = state.start_offset
            result.delivery_complete_count = state.delivery_complete_count
        return Decision([], [Reply(token, result)])

    # -- checks --------------------------------------------------------------------------------------------------------

    def _initialized(self, key: SharePartitionKey, what: str) -> ShareState:
        state = self.states.get(key)
        if state is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{what} operation on uninitialized share partition not allowed."
            )
        return state

    def _check_exists(self, key: SharePartitionKey) -> None:
        name = self._topics.topic_name(key.topic_id)
        if name is None or key.partition >= self._topics.partition_count(name):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _check_numbers(key: SharePartitionKey, *, leader_epoch: int = 0, state_epoch: int = 0) -> None:
    if key.topic_id == ZERO_UUID:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if key.partition < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
    if leader_epoch < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The leader epoch cannot be a negative number.")
    if state_epoch < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The state epoch cannot be a negative number.")
