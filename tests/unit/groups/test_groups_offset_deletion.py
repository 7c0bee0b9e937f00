"""Many offsets go slice by slice: with their topic, and because they are old."""

from __future__ import annotations

from group_world import Topics
from penstock.coordinator.decision import Decision
from penstock.groups.records import offset_record
from penstock.groups.settings import GroupCoordinatorSettings
from penstock.groups.shard import GroupShard

GROUPS, PARTITIONS = 300, 10
SLICE_MAX = 1100
NOW_MS = 1_000


def shard_with_offsets(topics: Topics) -> GroupShard:
    settings = GroupCoordinatorSettings()
    shard = GroupShard(settings, lambda _: settings, lambda: bytes(16), topics)
    for name in ("gone", "kept"):
        topics.create(name, PARTITIONS)
        commit(shard, topics, name)
    shard.loaded(NOW_MS)
    return shard


def commit(shard: GroupShard, topics: Topics, name: str) -> None:
    topic_id = topics.topic_id(name)
    assert topic_id is not None
    for group in range(GROUPS):
        for partition in range(PARTITIONS):
            key, value = offset_record(
                f"g{group}",
                name,
                partition,
                offset=1,
                leader_epoch=0,
                metadata="",
                commit_timestamp=NOW_MS,
                topic_id=topic_id,
            )
            shard.replay(key, value)


def carry_out(shard: GroupShard, decision: Decision) -> int:
    for key, value in decision.records:
        shard.replay(key, value)
    return len(decision.records)


def count(shard: GroupShard, topic: str) -> int:
    return sum(len(shard.state.offsets.of_group(f"g{group}").get(topic, {})) for group in range(GROUPS))


def test_offsets_of_a_deleted_topic_go_slice_by_slice() -> None:
    topics = Topics()
    shard = shard_with_offsets(topics)
    slices = [carry_out(shard, shard.topics_deleted([topics.delete("gone")], NOW_MS))]
    while shard.deadline == NOW_MS:
        slices.append(carry_out(shard, shard.tick(NOW_MS)))
    assert sum(slices) == GROUPS * PARTITIONS
    assert max(slices) <= SLICE_MAX
    assert (count(shard, "gone"), count(shard, "kept")) == (0, GROUPS * PARTITIONS)


def test_a_topic_that_is_there_again_meanwhile_keeps_its_offsets() -> None:
    topics = Topics()
    shard = shard_with_offsets(topics)
    carry_out(shard, shard.topics_deleted([topics.delete("gone")], NOW_MS))
    topics.create("gone", PARTITIONS)
    commit(shard, topics, "gone")
    while shard.deadline == NOW_MS:
        carry_out(shard, shard.tick(NOW_MS))
    assert count(shard, "gone") == GROUPS * PARTITIONS


def test_several_topics_at_once() -> None:
    topics = Topics()
    shard = shard_with_offsets(topics)
    for name in ("gone", "kept"):
        carry_out(shard, shard.topics_deleted([topics.delete(name)], NOW_MS))
    while shard.deadline == NOW_MS:
        assert carry_out(shard, shard.tick(NOW_MS)) <= SLICE_MAX
    assert (count(shard, "gone"), count(shard, "kept")) == (0, 0)


def test_old_offsets_go_slice_by_slice() -> None:
    topics = Topics()
    shard = shard_with_offsets(topics)
    later_ms = NOW_MS + shard.state.settings.offsets_retention_ms
    gone = 0
    while (deadline := shard.deadline) is not None and deadline <= later_ms:
        some = carry_out(shard, shard.tick(later_ms))
        assert some <= 2 * SLICE_MAX
        gone += some
        if not count(shard, "kept"):
            break
    assert gone >= 2 * GROUPS * PARTITIONS
    assert not shard.state.classic
