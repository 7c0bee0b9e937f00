"""The assignor of share groups, `simple`: as even as possible, then as little movement as possible.

With at least as many partitions as members, each partition has one member. With more members, each partition has
several, and the number of partitions of two members differs by at most one. Members that are subscribed to different
topics share each topic by itself.

It is a function of its input alone: the same members and topics get the same assignment on every coordinator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from penstock.groups.consumer_member import Target
from penstock.model.ids import Uuid

NAME: Final = "simple"

_Partition: TypeAlias = tuple[Uuid, int]


class ShareSubscriber(NamedTuple):
    member_id: str
    topics: frozenset[Uuid]
    # Its part of the previous assignment.
    current: Target


def assign_simple(
    subscribers: Iterable[ShareSubscriber], partitions: Mapping[Uuid, Iterable[int]]
) -> dict[str, Target]:
    """Assign partitions, which are those that may be assigned, to the members."""
    members = sorted(subscribers)
    shares: dict[str, set[_Partition]] = {member.member_id: set() for member in members}
    if len({member.topics for member in members}) == 1:
        _share_out(members, _partitions_of(sorted(members[0].topics), partitions), shares)
    else:
        for topic_id in sorted({topic_id for member in members for topic_id in member.topics}):
            subscribed = [member for member in members if topic_id in member.topics]
            _share_out(subscribed, _partitions_of([topic_id], partitions), shares)
    return {member_id: _by_topic(share) for member_id, share in shares.items()}


def _partitions_of(topics: Iterable[Uuid], partitions: Mapping[Uuid, Iterable[int]]) -> list[_Partition]:
    return [(topic_id, partition) for topic_id in topics for partition in sorted(partitions.get(topic_id, ()))]


def _share_out(
    members: list[ShareSubscriber], partitions: list[_Partition], shares: dict[str, set[_Partition]]
) -> None:
    """Share partitions out among members, into their shares."""
    if not partitions:
        return
    # So many members per partition, and so many shares of partitions altogether.
    sharing = -(-len(members) // len(partitions))
    total = sharing * len(partitions)
    holders: dict[_Partition, list[str]] = {partition: [] for partition in partitions}
    unfilled: deque[tuple[str, int]] = deque()
    for index, member in enumerate(members):
        room = -(-total * (index + 1) // len(members)) + (-total * index // len(members))
        for partition in sorted((topic_id, each) for topic_id, indexes in member.current.items() for each in indexes):
            if room and partition in holders and len(holders[partition]) < sharing:
                holders[partition].append(member.member_id)
                room -= 1
        if room:
            unfilled.append((member.member_id, room))
    for has in holders.values():
        _fill(has, sharing, unfilled)
    for partition, has in holders.items():
        for member_id in has:
            shares[member_id].add(partition)


def _fill(holders: list[str], sharing: int, unfilled: deque[tuple[str, int]]) -> None:
    """Give a partition to members that have room for it, in turns."""
    for _ in range(len(unfilled)):
        if len(holders) >= sharing:
            return
        member_id, room = unfilled.popleft()
        if member_id not in holders:
            holders.append(member_id)
            room -= 1
        if room:
            unfilled.append((member_id, room))


def _by_topic(share: Iterable[_Partition]) -> Target:
    topics: dict[Uuid, set[int]] = {}
    for topic_id, partition in share:
        topics.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}
