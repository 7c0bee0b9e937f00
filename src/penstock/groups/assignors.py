"""The assignors of the consumer protocol: `range` and `uniform`.

Both give every partition of a subscribed topic to exactly one subscriber. They are functions of their input alone: the
same members and topics get the same assignment on every coordinator.

- `range` assigns topic by topic: members in order, each with a run of adjacent partitions. Members with the same
  subscriptions get the same runs of each topic, so that topics can be joined. It ignores the previous assignment.
- `uniform` assigns as evenly as the subscriptions allow. A member keeps its partitions as far as that is even.

The order of members: static members by instance id, which outlives their member ids, then the others by member id.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from penstock.groups.consumer_member import Target
from penstock.model.ids import Uuid

_Partition: TypeAlias = tuple[Uuid, int]
_Shares: TypeAlias = dict[str, set[_Partition]]


class Subscriber(NamedTuple):
    """A member as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[Uuid]
    # Its part of the previous assignment.
    current: Target


Assignment: TypeAlias = dict[str, Target]
Assignor: TypeAlias = Callable[[Iterable[Subscriber], Mapping[Uuid, int]], Assignment]


def in_order(subscribers: Iterable[Subscriber]) -> list[Subscriber]:
    def place(subscriber: Subscriber) -> tuple[bool, str]:
        return (subscriber.instance_id is None, subscriber.instance_id or subscriber.member_id)

    return sorted(subscribers, key=place)


def assign_range(subscribers: Iterable[Subscriber], partition_counts: Mapping[Uuid, int]) -> Assignment:
    members = in_order(subscribers)
    by_topic: dict[Uuid, list[str]] = {}
    for member in members:
        for topic_id in member.topics:
            by_topic.setdefault(topic_id, []).append(member.member_id)
    assignment: dict[str, dict[Uuid, frozenset[int]]] = {member.member_id: {} for member in members}
    for topic_id, member_ids in by_topic.items():
        quota, longer = divmod(partition_counts.get(topic_id, 0), len(member_ids))
        start = 0
        for position, member_id in enumerate(member_ids):
            end = start + quota + (position < longer)
            if start < end:
                assignment[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assignment)


def assign_uniform(subscribers: Iterable[Subscriber], partition_counts: Mapping[Uuid, int]) -> Assignment:
    members = in_order(subscribers)
    if not members:
        return {}
    shares, free = _keep(members, partition_counts)
    if all(member.topics == members[0].topics for member in members):
        _level(shares, free)
    else:
        _Balance(members, shares).settle(free, partition_counts)
    return {member_id: _by_topic(share) for member_id, share in shares.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}


def _keep(members: list[Subscriber], partition_counts: Mapping[Uuid, int]) -> tuple[_Shares, list[_Partition]]:
    """Return what each member has and may keep, and the partitions that no member has."""
    topics = sorted({topic_id for member in members for topic_id in member.topics})
    unowned = {(topic_id, index): None for topic_id in topics for index in range(partition_counts.get(topic_id, 0))}
    shares: _Shares = {}
    for member in members:
        share = shares[member.member_id] = set()
        for topic_id, partitions in member.current.items():
            if topic_id in member.topics:
                for partition in partitions:
                    if (topic_id, partition) in unowned:
                        del unowned[topic_id, partition]
                        share.add((topic_id, partition))
    return shares, list(unowned)


def _level(shares: _Shares, free: list[_Partition]) -> None:
    """Balance members that all read the same topics: each gets the same number of partitions, or one more."""
    total = len(free) + sum(len(share) for share in shares.values())
    quota, longer = divmod(total, len(shares))
    with_one_more: set[str] = set()
    for member_id, share in shares.items():
        allowed = quota
        if len(share) > quota and len(with_one_more) < longer:
            with_one_more.add(member_id)
            allowed += 1
        # Remove the last ones: the remaining partitions are then adjacent more often.
        surplus = sorted(share)[allowed:]
        share.difference_update(surplus)
        free.extend(surplus)
    rest = iter(sorted(free))
    for share in shares.values():
        for _ in range(quota - len(share)):
            share.add(next(rest))
    for member_id, share in shares.items():
        if len(with_one_more) < longer and member_id not in with_one_more:
            with_one_more.add(member_id)
            share.add(next(rest))


class _Balance:
    """Balance members whose subscriptions differ: each partition goes to the subscriber that has the fewest."""

    # Moving partitions of one topic can make another uneven. A few rounds settle it; perfection is not needed.
    ROUNDS: Final = 16

    def __init__(self, members: list[Subscriber], shares: _Shares) -> None:
        self._shares = shares
        self._subscribers: dict[Uuid, list[str]] = {}
        for member in members:
            for topic_id in member.topics:
                self._subscribers.setdefault(topic_id, []).append(member.member_id)

    def settle(self, free: list[_Partition], partition_counts: Mapping[Uuid, int]) -> None:
        # Topics with the most partitions per subscriber come first: the others have more freedom to compensate.
        def freedom(topic_id: Uuid) -> tuple[float, int, Uuid]:
            count = len(self._subscribers[topic_id])
            return (-partition_counts.get(topic_id, 0) / count, count, topic_id)

        order = sorted(self._subscribers, key=freedom)
        by_topic: dict[Uuid, list[_Partition]] = {}
        for partition in sorted(free):
            by_topic.setdefault(partition[0], []).append(partition)
        for topic_id in order:
            self._give_out(topic_id, by_topic.get(topic_id, []))
        for _ in range(self.ROUNDS):
            moved = [self._move(topic_id) for topic_id in order if len(self._subscribers[topic_id]) > 1]
            if not any(moved):
                break

    def _give_out(self, topic_id: Uuid, partitions: list[_Partition]) -> None:
        if not partitions:
            return
        heap = [(len(self._shares[member_id]), place) for place, member_id in enumerate(self._subscribers[topic_id])]
        heapq.heapify(heap)
        for partition in partitions:
            size, place = heap[0]
            self._shares[self._subscribers[topic_id][place]].add(partition)
            heapq.heapreplace(heap, (size + 1, place))

    def _move(self, topic_id: Uuid) -> bool:
        """Move partitions from the subscriber with the most to the one with the fewest until they are even."""
        member_ids = self._subscribers[topic_id]
        sizes = [len(self._shares[name]) for name in member_ids]
        if max(sizes) - min(sizes) <= 1:
            return False
        # The partitions of this topic that each member has; the last one is moved first.
        has = [sorted(entry for entry in self._shares[name] if entry[0] == topic_id) for name in member_ids]
        least = [(size, place) for place, size in enumerate(sizes)]
        most = [(-size, -place) for place, size in enumerate(sizes) if has[place]]
        heapq.heapify(least)
        heapq.heapify(most)
        moved = False
        while most:
            giver = -most[0][1]
            size = len(self._shares[member_ids[giver]])
            if not has[giver] or -most[0][0] != size:
                self._refresh(most, -size, -giver, keep=bool(has[giver]))
                continue
            taker = least[0][1]
            if least[0][0] != len(self._shares[member_ids[taker]]):
                heapq.heapreplace(least, (len(self._shares[member_ids[taker]]), taker))
                continue
            if size - least[0][0] <= 1:
                break
            partition = has[giver].pop()
            self._shares[member_ids[giver]].remove(partition)
            self._shares[member_ids[taker]].add(partition)
            moved = True
        return moved

    @staticmethod
    def _refresh(heap: list[tuple[int, int]], size: int, place: int, *, keep: bool) -> None:
        if keep:
            heapq.heapreplace(heap, (size, place))
        else:
            heapq.heappop(heap)


def _by_topic(share: Iterable[_Partition]) -> Target:
    found: dict[Uuid, set[int]] = {}
    for topic_id, partition in share:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}
