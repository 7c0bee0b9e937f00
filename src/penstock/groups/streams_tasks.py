"""Tasks of a streams application: units of work that its members run.

A subtopology has one task for each partition of its input. A task is *active* in one member, which processes records. A
*standby* of it keeps a copy of its state elsewhere; a *warm-up* builds such a copy before the task moves there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from penstock.protocol.messages.streams_structs import TaskIds


class Task(NamedTuple):
    subtopology: str
    partition: int


Tasks: TypeAlias = frozenset[Task]
NO_TASKS: Final[Tasks] = frozenset()


class TaskSets(NamedTuple):
    """The tasks of a member by role."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    def overlaps(self, other: TaskSets) -> bool:
        """Whether any task has the same role in both."""
        return any(not mine.isdisjoint(theirs) for mine, theirs in zip(self, other, strict=True))

    def is_within(self, other: TaskSets) -> bool:
        return all(mine <= theirs for mine, theirs in zip(self, other, strict=True))


class OwnedTasks(NamedTuple):
    """The tasks of a member by role, active ones with the epoch in which it got them."""

    active: Mapping[Task, int] = {}
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    @property
    def sets(self) -> TaskSets:
        return TaskSets(frozenset(self.active), self.standby, self.warmup)

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)


class _TaskIds(Protocol):
    subtopology_id: str
    partitions: list[int]


def tasks_of(ids: Iterable[_TaskIds]) -> Tasks:
    return frozenset(Task(each.subtopology_id, partition) for each in ids for partition in each.partitions)


def reported(
    active: Sequence[_TaskIds] | None, standby: Sequence[_TaskIds] | None, warmup: Sequence[_TaskIds] | None
) -> TaskSets | None:
    """Return the tasks that a request lists; None if it lists none."""
    if active is None or standby is None or warmup is None:
        return None
    return TaskSets(tasks_of(active), tasks_of(standby), tasks_of(warmup))


def by_subtopology(tasks: Iterable[Task]) -> dict[str, list[int]]:
    """Group tasks, sorted."""
    found: dict[str, list[int]] = {}
    for task in sorted(tasks):
        found.setdefault(task.subtopology, []).append(task.partition)
    return found


def ids_of(tasks: Iterable[Task]) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=parts) for name, parts in by_subtopology(tasks).items()]
