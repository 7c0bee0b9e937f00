"""Requests of strangers: whatever they say, in any version, there is one answer, and no group is the worse for it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from group_world import World
from penstock.groups.settings import GroupCoordinatorSettings
from penstock.protocol.declaration import Message
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest
from penstock.protocol.messages.sync_group import SyncGroupRequest
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from properties.protocol_strategies import message, versions_of
from property_examples import examples

HANDLERS: dict[str, type[Message]] = {
    "join_group": JoinGroupRequest,
    "sync_group": SyncGroupRequest,
    "heartbeat": HeartbeatRequest,
    "leave_group": LeaveGroupRequest,
    "consumer_group_heartbeat": ConsumerGroupHeartbeatRequest,
    "offset_commit": OffsetCommitRequest,
    "txn_offset_commit": TxnOffsetCommitRequest,
    "offset_fetch": OffsetFetchRequest,
    "offset_delete": OffsetDeleteRequest,
    "list_groups": ListGroupsRequest,
    "describe_groups": DescribeGroupsRequest,
    "consumer_group_describe": ConsumerGroupDescribeRequest,
    "delete_groups": DeleteGroupsRequest,
}


def world() -> World:
    """A classic group, a consumer group, one that moves between them, and one that only has offsets."""
    made = World(settings=GroupCoordinatorSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=0))
    for line in (
        "topic a partitions=3",
        "join g c1 v=3",
        "sync g c1 c1=a:0,1,2",
        "join g c2 v=3 instance=i1",
        "beat h m1 topics=a",
        "beat h m2 topics=a instance=i2",
        "join k c3 v=3",
        "sync k c3 c3=a:0,1,2",
        "beat k m3 topics=a",
        "commit s x a:0@1",
        "txn-commit s x a:1@2",
    ):
        made.run(line)
    return made


def plausible(made: World) -> dict[str, list[Any]]:
    """What a request may say so that it gets further than the first check."""
    members = [client.member_id for client in made.clients.values()]
    return {
        "group_id": ["g", "h", "k", "s", "new"],
        "member_id": [*members, ""],
        "instance_id": ["i1", "i2", None],
        "group_instance_id": ["i1", "i2", None],
        "generation_id": [-1, 0, 1, 2],
        "generation_id_or_member_epoch": [-1, 0, 1, 2],
        "member_epoch": [-2, -1, 0, 1, 2],
        "session_timeout_ms": [10_000],
        "rebalance_timeout_ms": [-1, 0, 30_000],
        "protocol_type": ["consumer"],
        "subscribed_topic_names": [["a"], ["a", "b"], [], None],
        "subscribed_topic_regex": ["a.*", "(", None],
        "server_assignor": ["range", None],
        "topic_partitions": [[], None],
    }


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_there_is_one_answer_to_anything(data: st.DataObject) -> None:
    made = world()
    pools = plausible(made)
    for _ in range(data.draw(st.integers(1, 8))):
        handler = data.draw(st.sampled_from(sorted(HANDLERS)))
        cls = HANDLERS[handler]
        version = data.draw(st.sampled_from(versions_of(cls)))
        request = data.draw(message(cls, version))
        for name in cls.__schema__.names:
            field = next(entry for entry in cls.__schema__.fields if entry.name == name)
            if name in pools and version in field.versions and data.draw(st.integers(0, 9)):
                values = [value for value in pools[name] if value is not None or version in field.nullable]
                setattr(request, name, data.draw(st.sampled_from(values)))
        waiting = len(made.waiting)
        decision = made.ask(handler, request, "stranger", version, 77 if handler == "txn_offset_commit" else -1)
        if handler not in ("join_group", "sync_group"):
            # All but these are answered at once; and so may be others that waited.
            assert any(type(reply.response).__name__[:4] == type(request).__name__[:4] for reply in decision.replies)
            assert len(made.waiting) <= waiting
        made.advance(data.draw(st.sampled_from((0, 1000, 40_000))))
        assert made.replayed().state.durable() == made.shard.state.durable()
    made.fail_over()
    assert not made.waiting
