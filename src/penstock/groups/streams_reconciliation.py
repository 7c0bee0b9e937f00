"""Reconciliation of streams groups: how a member moves from its current tasks to its target.

    Stable           a new target              -> first it must revoke tasks, if there are any to revoke
    UnrevokedTasks   it has revoked all        -> the target's epoch, with the free tasks of its target
    UnreleasedTasks  others released tasks     -> it gets these too
    anything         nothing missing           -> Stable, in the target's epoch

As in consumer groups, a member learns what it must give up from an assignment without those tasks, and confirms with a
heartbeat that lists what it has. An active task is free while none runs it. Beyond that a process may have a task in
one role only: a task is not free for a member while another member of its process has it.

A member may change its own role in a task without a gap, and so keeps the state it has on disk. An active task becomes
a standby, and standby and warm-up become each other, with the answer that takes the old role away. A standby or warm-up
stays until the member really gets the active task, which another member may still run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.groups.streams_group import StreamsGroup
from penstock.groups.streams_member import NOTHING, StreamsMember, StreamsMemberState
from penstock.groups.streams_tasks import OwnedTasks, Task, Tasks, TaskSets
from penstock.model.errors import ErrorCode, KafkaError


class WantedTasks(NamedTuple):
    """The target of a member, and its epoch."""

    epoch: int
    target: TaskSets


def reconcile(group: StreamsGroup, member: StreamsMember, wanted: WantedTasks, owned: TaskSets | None) -> StreamsMember:
    """Return the member after its heartbeat. `owned`: the tasks it lists; None if it lists none."""
    if member.is_reconciled_to(wanted.epoch):
        return member
    if member.state is StreamsMemberState.UNREVOKED_TASKS and _still_has(member.revoking, owned):
        return member
    if member.state is StreamsMemberState.UNKNOWN and owned != TaskSets():
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
        )
    return _advance(group, member, wanted, owned)


def _still_has(revoking: OwnedTasks, owned: TaskSets | None) -> bool:
    """Whether the member may still have revoked tasks. A member that lists nothing may still have all of them."""
    return not revoking.is_empty and (owned is None or owned.overlaps(revoking.sets))


def _advance(group: StreamsGroup, member: StreamsMember, wanted: WantedTasks, owned: TaskSets | None) -> StreamsMember:
    has, target = member.assigned, wanted.target
    active = {task: epoch for task, epoch in has.active.items() if task in target.active}
    standby, warmup = has.standby & target.standby, has.warmup & target.warmup
    missing = TaskSets(target.active - has.active.keys(), target.standby - has.standby, target.warmup - has.warmup)
    is_taken = _Taken(group, member)
    granted = TaskSets(
        _free(missing.active, is_taken.active),
        _free(missing.standby, is_taken.standby),
        _free(missing.warmup, is_taken.warmup),
    )
    waits = granted != missing
    # Changes of role that need no other member.
    standby |= granted.standby & (has.active.keys() | has.warmup)
    warmup |= granted.warmup & has.standby
    # A task that the member will run is promoted, not given up.
    revoking = OwnedTasks(
        {task: epoch for task, epoch in has.active.items() if task not in target.active},
        has.standby - target.standby - warmup - target.active,
        has.warmup - target.warmup - standby - target.active,
    )
    must_revoke = _still_has(revoking, owned)
    promoted = frozenset() if must_revoke else granted.active
    standby |= (has.standby & target.active) - promoted
    warmup |= (has.warmup & target.active) - promoted
    if must_revoke:
        return member._replace(
            state=StreamsMemberState.UNREVOKED_TASKS,
            previous_epoch=member.epoch,
            assigned=OwnedTasks(active, standby, warmup),
            revoking=revoking,
        )
    state = StreamsMemberState.UNRELEASED_TASKS if waits else StreamsMemberState.STABLE
    assigned = OwnedTasks(
        {**active, **dict.fromkeys(granted.active, wanted.epoch)}, standby | granted.standby, warmup | granted.warmup
    )
    if (member.state, member.epoch, member.assigned) == (state, wanted.epoch, assigned):
        # It still waits for the same tasks.
        return member
    return member._replace(
        state=state, epoch=wanted.epoch, previous_epoch=member.epoch, assigned=assigned, revoking=NOTHING
    )


def _free(tasks: Tasks, is_taken: Callable[[Task], bool]) -> Tasks:
    return frozenset(task for task in tasks if not is_taken(task))


class _Taken:
    """Whether a task is not free for a member in a role."""

    def __init__(self, group: StreamsGroup, member: StreamsMember) -> None:
        self._group = group
        self._process = member.process_id
        self._has = member.assigned

    def active(self, task: Task) -> bool:
        return (
            self._group.active_in(task) is not None
            or self._neighbour_has_standby(task)
            or self._neighbour_has_warmup(task)
        )

    def standby(self, task: Task) -> bool:
        return (
            (self._group.active_in(task) == self._process and task not in self._has.active)
            or self._process in self._group.standby_in(task)
            or self._neighbour_has_warmup(task)
        )

    def warmup(self, task: Task) -> bool:
        return (
            self._group.active_in(task) == self._process
            or self._neighbour_has_standby(task)
            or self._process in self._group.warmup_in(task)
        )

    def _neighbour_has_standby(self, task: Task) -> bool:
        """Whether another member of the process has a standby of the task."""
        return self._process in self._group.standby_in(task) and task not in self._has.standby

    def _neighbour_has_warmup(self, task: Task) -> bool:
        return self._process in self._group.warmup_in(task) and task not in self._has.warmup
