"""The share coordinator's answers, and that its log is enough to know everything."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.coordinators.serde import SHARE_STATE_RECORDS
from penstock.coordinator.decision import Decision
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID, Uuid, uuid_text
from penstock.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from penstock.settings.shares import ShareSettings
from penstock.share_state.batches import Batch
from penstock.share_state.key import SharePartitionKey
from penstock.share_state.shard import ShareStateShard

TOPIC = b"t" * 16
KEY = SharePartitionKey("g", TOPIC, 0)
OTHER = SharePartitionKey("g", TOPIC, 1)


class Topics:
    def __init__(self) -> None:
        self.names: dict[Uuid, str] = {TOPIC: "t"}

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self.names.get(topic_id)

    def partition_count(self, name: str) -> int:
        return 2


class World:
    """A shard whose decisions are replayed as they pass through their bytes."""

    def __init__(self, **settings: Any) -> None:
        self.settings = ShareSettings(**settings)
        self.topics = Topics()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = 1000
        self.shard = ShareStateShard(self.settings, self.topics)
        self.carry_out(self.shard.loaded(self.now_ms))

    def carry_out(self, decision: Decision) -> Any:
        for record in decision.records:
            self.log.append(SHARE_STATE_RECORDS.encode(record))
            self._replay(self.shard, len(self.log) - 1)
        return decision.replies[0].response if decision.replies else None

    def _replay(self, shard: ShareStateShard, offset: int) -> None:
        known = SHARE_STATE_RECORDS.decode(*self.log[offset])
        assert known is not None
        shard.replay(known.key, known.value, offset)

    def loaded_from(self, offset: int) -> ShareStateShard:
        shard = ShareStateShard(self.settings, self.topics)
        for at in range(offset, len(self.log)):
            self._replay(shard, at)
        return shard

    def initialize(self, key: SharePartitionKey = KEY, epoch: int = 1, start: int = -1) -> int:
        asked = initialize_share_group_state.Partition(partition=key.partition, state_epoch=epoch, start_offset=start)
        result = self.carry_out(self.shard.initialize(key, asked, "token", self.now_ms))
        return int(result.error_code)

    def read(self, leader_epoch: int, key: SharePartitionKey = KEY) -> Any:
        asked = read_share_group_state.Partition(partition=key.partition, leader_epoch=leader_epoch)
        return self.carry_out(self.shard.read(key, asked, "token", self.now_ms))

    def write(
        self,
        *batches: Batch,
        key: SharePartitionKey = KEY,
        leader: int = 5,
        epoch: int = 1,
        start: int = -1,
        count: int = 0,
    ) -> int:
        asked = write_share_group_state.Partition(
            partition=key.partition,
            leader_epoch=leader,
            state_epoch=epoch,
            start_offset=start,
            delivery_complete_count=count,
            state_batches=[
                write_share_group_state.StateBatch(
                    first_offset=batch.first,
                    last_offset=batch.last,
                    delivery_state=batch.state,
                    delivery_count=batch.deliveries,
                )
                for batch in batches
            ],
        )
        return int(self.carry_out(self.shard.write(key, asked, "token", self.now_ms)).error_code)

    def delete(self, key: SharePartitionKey = KEY) -> int:
        asked = delete_share_group_state.Partition(partition=key.partition)
        return int(self.carry_out(self.shard.delete(key, asked, "token", self.now_ms)).error_code)

    def summary(self, key: SharePartitionKey = KEY) -> tuple[int, ...]:
        asked = read_share_group_state_summary.Partition(partition=key.partition)
        found = self.carry_out(self.shard.summary(key, asked, "token", self.now_ms))
        assert not found.error_code
        return found.state_epoch, found.leader_epoch, found.start_offset, found.delivery_complete_count


def test_a_partition_from_its_initialization_to_its_deletion() -> None:
    world = World()
    assert world.read(5).error_code == ErrorCode.INVALID_REQUEST
    assert world.write() == ErrorCode.INVALID_REQUEST
    assert world.summary() == (0, 0, -1, -1)
    assert world.initialize() == 0
    assert world.summary() == (1, -1, -1, -1)
    found = world.read(5)
    assert (found.state_epoch, found.start_offset, found.state_batches) == (1, -1, [])
    assert world.write(Batch(10, 14, 0, 1), Batch(15, 19, 2, 1), start=10, count=5) == 0
    assert world.write(Batch(10, 14, 2, 1), start=20) == 0
    assert world.summary() == (1, 5, 20, 0)
    assert world.read(5).state_batches == []
    assert world.delete() == 0
    assert world.delete() == 0
    assert world.summary() == (0, 0, -1, -1)
    assert len(world.log) == 5


def test_old_leaders_and_old_states_are_fenced() -> None:
    world = World()
    world.initialize()
    assert world.read(5).error_code == 0
    assert world.read(4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert world.write(leader=4) == ErrorCode.FENCED_LEADER_EPOCH
    assert world.initialize(epoch=3, start=7) == 0
    assert world.initialize(epoch=2) == ErrorCode.FENCED_STATE_EPOCH
    assert world.write(epoch=1) == ErrorCode.FENCED_STATE_EPOCH
    # The new state does not forget which leader was the last.
    assert world.write(leader=4, epoch=3) == ErrorCode.FENCED_LEADER_EPOCH
    assert world.read(5).start_offset == 7


def test_what_is_repeated_changes_nothing() -> None:
    world = World()
    world.initialize()
    world.read(5)
    length = len(world.log)
    assert world.initialize() == 0
    assert world.read(5).error_code == 0
    assert len(world.log) == length


def test_the_start_does_not_go_back() -> None:
    world = World()
    world.initialize(start=0)
    world.write(start=50, count=3)
    world.write(Batch(20, 60, 2, 1), start=40, count=9)
    assert world.summary()[2:] == (50, 3)
    assert world.shard.states[KEY].batches == [Batch(50, 60, 2, 1)]
    world.write(start=50, count=1)
    assert world.summary()[2:] == (50, 3)


def test_snapshots_make_the_log_before_them_superfluous() -> None:
    world = World(share_coordinator_snapshot_update_records_per_snapshot=3)
    world.initialize()
    world.initialize(OTHER)
    for offset in range(10):
        assert world.write(Batch(offset, offset, offset % 3 * 2, 1), start=0, count=offset) == 0
    # The other partition has its first snapshot only.
    assert world.shard.needed_from(len(world.log)) == 1
    world.write(key=OTHER, start=5)
    for _ in range(3):
        world.write(key=OTHER, start=5)
    needed_from = world.shard.needed_from(len(world.log))
    assert 1 < needed_from < len(world.log)
    assert world.loaded_from(needed_from).states == world.shard.states == world.loaded_from(0).states
    assert world.shard.states[KEY].snapshot_epoch == 2


def test_idle_partitions_get_a_snapshot_once() -> None:
    world = World()
    world.initialize()
    world.write(Batch(0, 9, 2, 1), start=0)
    deadline = world.shard.deadline
    assert deadline is not None
    world.now_ms = deadline
    world.initialize(OTHER)
    world.carry_out(world.shard.tick(world.now_ms))
    assert world.shard.needed_from(len(world.log)) == 2
    assert world.shard.states[KEY].batches == [Batch(0, 9, 2, 1)]
    world.now_ms += 300_000
    world.carry_out(world.shard.tick(world.now_ms))
    length = len(world.log)
    world.now_ms += 300_000
    world.carry_out(world.shard.tick(world.now_ms))
    assert len(world.log) == length


def test_state_goes_with_its_topic() -> None:
    world = World()
    world.initialize()
    del world.topics.names[TOPIC]
    assert world.write() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # The coordinator that comes next was not told.
    shard = world.loaded_from(0)
    assert [record.value for record in shard.loaded(world.now_ms).records] == [None]
    world.carry_out(world.shard.topics_deleted({TOPIC}))
    assert not world.shard.states
    assert world.shard.needed_from(2) == 2


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (SharePartitionKey("g", TOPIC, -1), ErrorCode.INVALID_REQUEST),
        (SharePartitionKey("g", TOPIC, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (SharePartitionKey("g", ZERO_UUID, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (SharePartitionKey("g", b"x" * 16, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_partitions_that_do_not_exist(key: SharePartitionKey, code: ErrorCode) -> None:
    world = World()
    assert world.initialize(key) == code
    assert world.delete(key) == code
    assert not world.log


def test_negative_epochs() -> None:
    world = World()
    assert world.initialize(epoch=-1) == ErrorCode.INVALID_REQUEST
    world.initialize()
    assert world.read(-1).error_code == ErrorCode.INVALID_REQUEST
    assert world.write(leader=-1) == ErrorCode.INVALID_REQUEST
    assert world.write(epoch=-1) == ErrorCode.INVALID_REQUEST


def test_the_text_of_a_key() -> None:
    key = SharePartitionKey("a:b", TOPIC, 7)
    assert str(key) == f"a:b:{uuid_text(TOPIC)}:7"
    assert SharePartitionKey.parse(str(key)) == key
    for text in ("", "g", "g:7", f"g:{uuid_text(TOPIC)}:x", f":{uuid_text(TOPIC)}:7", "g:short:7"):
        with pytest.raises(ValueError, match="is not"):
            SharePartitionKey.parse(text)
