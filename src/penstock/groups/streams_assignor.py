"""The assignor of streams groups, "sticky": tasks stay where their state is, and members get equally many.

Active tasks first. Every member gets T/n of them, some one more. A task stays with the member that runs it, as long as
that has room; else it goes to a member that has a standby of it or reported state on its disk; the rest goes to the
members that have fewest.

Then standbys, for tasks with state: on processes that do not have the task yet. The member that ran it before, or had a
standby of it, comes first, while it has no more than its share of all tasks; else the process with the fewest tasks for
each of its members. With fewer processes than copies there are fewer standbys.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.groups.streams_tasks import Task, TaskSets
from penstock.groups.streams_topology import ConfiguredSubtopology

NAME: Final = "sticky"


class StreamsSubscriber(NamedTuple):
    member_id: str
    process_id: str
    # What it has now.
    current: TaskSets
    # How far it has read the changelogs of tasks whose state it has on disk.
    offsets: Mapping[Task, int] = {}


def assign_sticky(
    members: Sequence[StreamsSubscriber], subtopologies: Mapping[str, ConfiguredSubtopology], standby_replicas: int
) -> dict[str, TaskSets]:
    if not members:
        return {}
    ordered = sorted(members)
    tasks = [Task(name, index) for name in sorted(subtopologies) for index in range(subtopologies[name].tasks)]
    stateful = [task for task in tasks if subtopologies[task.subtopology].is_stateful]
    placement = _Placement(ordered)
    ran_by = {task: each for each in ordered for task in each.current.active}
    kept_by = _holders_of_state(ordered)
    _assign_active(placement, tasks, ran_by, kept_by)
    _assign_standbys(placement, stateful, standby_replicas, len(tasks), ran_by, kept_by)
    return {
        each.member_id: TaskSets(
            frozenset(placement.active[each.member_id]), frozenset(placement.standby[each.member_id])
        )
        for each in ordered
    }


class _Placement:
    """What has been assigned so far."""

    def __init__(self, members: Iterable[StreamsSubscriber]) -> None:
        self.active: dict[str, list[Task]] = {}
        self.standby: dict[str, list[Task]] = {}
        self.counts: dict[str, int] = {}
        self.members_of: dict[str, list[StreamsSubscriber]] = {}
        self._of_process: dict[str, set[Task]] = {}
        for each in members:
            self.active[each.member_id] = []
            self.standby[each.member_id] = []
            self.counts[each.member_id] = 0
            self.members_of.setdefault(each.process_id, []).append(each)
            self._of_process[each.process_id] = set()

    def add(self, member: StreamsSubscriber, task: Task, role: dict[str, list[Task]]) -> None:
        role[member.member_id].append(task)
        self.counts[member.member_id] += 1
        self._of_process[member.process_id].add(task)

    def has(self, process_id: str, task: Task) -> bool:
        return task in self._of_process[process_id]

    def load(self, process_id: str) -> float:
        members = self.members_of[process_id]
        return sum(self.counts[each.member_id] for each in members) / len(members)


def _holders_of_state(members: Iterable[StreamsSubscriber]) -> dict[Task, list[StreamsSubscriber]]:
    """Return the members that have state of each task: those with a standby first, then those that read furthest."""
    ranked: dict[Task, list[tuple[bool, int, StreamsSubscriber]]] = {}
    for each in members:
        for task in {*each.current.standby, *each.current.warmup, *each.offsets}:
            rank = (task not in each.current.standby, -each.offsets.get(task, 0), each)
            ranked.setdefault(task, []).append(rank)
    return {task: [each for _, _, each in sorted(ranks, key=lambda rank: rank[:2])] for task, ranks in ranked.items()}


def _assign_active(
    placement: _Placement,
    tasks: Sequence[Task],
    ran_by: Mapping[Task, StreamsSubscriber],
    kept_by: Mapping[Task, Sequence[StreamsSubscriber]],
) -> None:
    share, larger_shares = divmod(len(tasks), len(placement.counts))

    def give(task: Task, candidates: Iterable[StreamsSubscriber]) -> bool:
        """Give the task to the first candidate that has room."""
        nonlocal larger_shares
        for each in candidates:
            count = placement.counts[each.member_id]
            if count < share or (count == share and larger_shares):
                larger_shares -= count == share
                placement.add(each, task, placement.active)
                return True
        return False

    # By partition: tasks of different subtopologies that read the same partition tend to stay together.
    left = sorted(tasks, key=lambda task: (task.partition, task.subtopology))
    left = [task for task in left if task not in ran_by or not give(task, [ran_by[task]])]
    left = [task for task in left if not give(task, kept_by.get(task, ()))]
    members = [each for group in placement.members_of.values() for each in group]
    queue = [(placement.counts[each.member_id], number) for number, each in enumerate(members)]
    heapq.heapify(queue)
    for task in sorted(left):
        # What all have together is all there is: the member that has fewest has room.
        count, number = heapq.heappop(queue)
        placement.add(members[number], task, placement.active)
        heapq.heappush(queue, (count + 1, number))


def _assign_standbys(
    placement: _Placement,
    tasks: Sequence[Task],
    replicas: int,
    active_count: int,
    ran_by: Mapping[Task, StreamsSubscriber],
    kept_by: Mapping[Task, Sequence[StreamsSubscriber]],
) -> None:
    replicas = min(replicas, len(placement.members_of) - 1)
    share = -(-(active_count + replicas * len(tasks)) // len(placement.counts))
    left: list[Task] = []
    for task in sorted(tasks, key=lambda task: (task.partition, task.subtopology), reverse=True):
        found = 0
        candidates = [ran_by[task]] if task in ran_by else []
        for each in (*candidates, *kept_by.get(task, ())):
            if found == replicas:
                break
            if not placement.has(each.process_id, task) and placement.counts[each.member_id] < share:
                placement.add(each, task, placement.standby)
                found += 1
        left += [task] * (replicas - found)
    queue = [(placement.load(process_id), process_id) for process_id in placement.members_of]
    heapq.heapify(queue)
    for task in sorted(left, reverse=True):
        passed = []
        entry = heapq.heappop(queue)
        while placement.has(entry[1], task):
            passed.append(entry)
            entry = heapq.heappop(queue)
        member = min(placement.members_of[entry[1]], key=lambda each: placement.counts[each.member_id])
        placement.add(member, task, placement.standby)
        for process in (*passed, (placement.load(entry[1]), entry[1])):
            heapq.heappush(queue, process)
