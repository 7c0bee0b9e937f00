"""The steps of one heartbeat in a streams group, and departures.

Each step builds on the records of the previous one: write the member's metadata; keep the topology that the first
member sent; compare it with the topics that exist; bump the group epoch, if any of this changed or the settings of the
assignment did; compute the target assignment, if it is for an older epoch; and reconcile the member. Most heartbeats
change nothing and cost nothing.

A group that was empty waits before its first assignment (`group.streams.initial.rebalance.delay.ms`), so that members
that start together are assigned together. Meanwhile its members have no tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.coordinator.decision import Decision
from penstock.groups.draft import StreamsDraft
from penstock.groups.state import GroupState
from penstock.groups.streams_assignor import StreamsSubscriber, assign_sticky
from penstock.groups.streams_group import StreamsGroup, TaskOffsets
from penstock.groups.streams_member import StreamsMember, StreamsMemberState
from penstock.groups.streams_reconciliation import WantedTasks, reconcile
from penstock.groups.streams_records import (
    current_record,
    epoch_record,
    member_record,
    removal,
    target_epoch_record,
    target_record,
    topology_record,
)
from penstock.groups.streams_tasks import TaskSets
from penstock.groups.streams_topology import (
    ConfiguredTopology,
    Problem,
    StatusCode,
    configure,
    required_topics,
    stored_form,
)
from penstock.groups.timers import TimerKey
from penstock.groups.topics import metadata_hash
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.streams_group_heartbeat import Topology

SESSION: Final = "streams session"
REVOKE: Final = "streams revoke"
DELAY: Final = "streams delay"

STANDBY_REPLICAS: Final = "num.standby.replicas"
RACK_AWARE_TAGS: Final = "rack.aware.assignment.tags"


class StreamsMembership:
    def __init__(self, state: GroupState) -> None:
        self._state = state

    # -- one member ----------------------------------------------------------------------------------------------------

    def is_due(self, group: StreamsGroup, now_ms: int) -> bool:
        """Whether to look at the group although the heartbeat changes nothing."""
        if group.configured is None or group.checked_version != self._state.topics.version:
            return True
        if group.assignment_epoch < group.epoch:
            return True
        return group.assignment_configs != self.assignment_configs(group.group_id)

    def follow(self, group: StreamsGroup, member: StreamsMember, owned: TaskSets | None) -> StreamsMember:
        """Reconcile a member whose metadata has not changed."""
        return reconcile(group, member, self._wanted(group, member), owned)

    def update(
        self,
        draft: StreamsDraft,
        before: StreamsMember,
        after: StreamsMember,
        topology: Topology | None,
        owned: TaskSets | None,
        now_ms: int,
        problems: list[Problem],
    ) -> StreamsMember:
        """Update a member.

        `before` is in the draft, unless it is new. The result is in the draft and holds the member's state. `problems`
        gets the reasons why it has no assignment yet.
        """
        group = draft.group
        was_empty = not group.members
        is_new = after.member_id not in group.members
        must_bump = is_new or _matters(before, after)
        if after != before or is_new:
            draft.emit(member_record(group.group_id, after.member_id, after))
        self._update_topology(draft, topology)
        configured = self._configure(group)
        self.check_tasks(group, owned)
        self._update_epoch(draft, configured, must_bump)
        if was_empty:
            delay_ms = self._state.settings_of(group.group_id).streams_initial_rebalance_delay_ms
            if delay_ms > 0:
                self._state.timers.set_unless_running(TimerKey(DELAY, group.group_id), now_ms + delay_ms)
        self._update_target(draft, configured, now_ms, problems)
        member = group.members[after.member_id]
        moved = reconcile(group, member, self._wanted(group, member), owned)
        if moved != member:
            draft.emit(current_record(group.group_id, moved.member_id, moved))
        return moved

    def _wanted(self, group: StreamsGroup, member: StreamsMember) -> WantedTasks:
        is_delayed = TimerKey(DELAY, group.group_id) in self._state.timers
        target = TaskSets() if is_delayed else group.target.get(member.member_id, TaskSets())
        return WantedTasks(group.assignment_epoch, target)

    def replace(self, draft: StreamsDraft, old: StreamsMember, member_id: str) -> StreamsMember:
        """Replace a static member that came back: the new one gets its tasks and starts at epoch 0."""
        group_id = draft.group.group_id
        target = draft.group.target.get(old.member_id, TaskSets())
        new = old._replace(member_id=member_id, epoch=0, previous_epoch=0)
        for record in removal(group_id, old.member_id):
            draft.emit(record)
        draft.emit(member_record(group_id, member_id, new))
        draft.emit(target_record(group_id, member_id, target))
        draft.emit(current_record(group_id, member_id, new))
        return draft.group.members[member_id]

    # -- the group -----------------------------------------------------------------------------------------------------

    def assignment_configs(self, group_id: str) -> dict[str, str]:
        """Return the settings that an assignment depends on, as they are kept with the group."""
        settings = self._state.settings_of(group_id)
        found = {STANDBY_REPLICAS: str(settings.streams_num_standby_replicas)}
        if settings.streams_rack_aware_assignment_tags:
            found[RACK_AWARE_TAGS] = ",".join(settings.streams_rack_aware_assignment_tags)
        return found

    def _update_topology(self, draft: StreamsDraft, sent: Topology | None) -> None:
        if sent is None:
            return
        known, topology = draft.group.topology, stored_form(sent)
        if known is None:
            draft.emit(topology_record(draft.group.group_id, topology))
        elif known.epoch <= topology.epoch and known != topology:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")

    def _configure(self, group: StreamsGroup) -> ConfiguredTopology:
        """Compare the topology with the topics, if they have changed since."""
        version = self._state.topics.version
        if group.configured is None or group.checked_version != version:
            if group.topology is None:
                raise KafkaError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY, f"Group {group.group_id} has no topology. Rejoin with one."
                )
            group.configured = configure(group.topology, self._state.topics)
            group.checked_version = version
        return group.configured

    def check_tasks(self, group: StreamsGroup, owned: TaskSets | None) -> None:
        """Raise KafkaError if a member lists tasks that do not exist."""
        configured = group.configured
        subtopologies = configured.subtopologies if configured is not None and configured.is_ready else None
        if subtopologies is None or owned is None:
            return
        for task in sorted({*owned.active, *owned.standby, *owned.warmup}):
            known = subtopologies.get(task.subtopology)
            if known is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"Subtopology {task.subtopology} does not exist in the topology."
                )
            if not 0 <= task.partition < known.tasks:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Task {task.partition} for subtopology {task.subtopology} is invalid. Number of tasks for this "
                    f"subtopology: {known.tasks}",
                )

    def _update_epoch(self, draft: StreamsDraft, configured: ConfiguredTopology, must_bump: bool) -> None:
        group = draft.group
        topics = set() if group.topology is None else required_topics(group.topology)
        current_hash = metadata_hash(topics, self._state.topics)
        validated = group.topology_epoch if configured.is_ready else -1
        configs = self.assignment_configs(group.group_id)
        known = (group.metadata_hash, group.validated_epoch, group.assignment_configs)
        if must_bump or (current_hash, validated, configs) != known:
            draft.emit(epoch_record(group.group_id, group.epoch + 1, current_hash, validated, configs))

    def _update_target(
        self, draft: StreamsDraft, configured: ConfiguredTopology, now_ms: int, problems: list[Problem]
    ) -> None:
        group = draft.group
        settings = self._state.settings_of(group.group_id)
        if TimerKey(DELAY, group.group_id) in self._state.timers:
            reason = "Assignment delayed due to the configured initial rebalance delay."
            problems.append(Problem(StatusCode.ASSIGNMENT_DELAYED, reason))
        elif group.assignment_epoch < group.epoch:
            if group.may_assign(settings.streams_assignment_interval_ms, now_ms):
                self._assign(draft, configured, now_ms)
            else:
                reason = "Assignment delayed due to the configured assignment interval."
                problems.append(Problem(StatusCode.ASSIGNMENT_DELAYED, reason))

    def _assign(self, draft: StreamsDraft, configured: ConfiguredTopology, now_ms: int) -> None:
        group = draft.group
        subscribers = [
            StreamsSubscriber(
                member.member_id,
                member.process_id,
                member.assigned.sets,
                group.task_offsets.get(member.member_id, TaskOffsets()).offsets,
            )
            for member in group.members.values()
        ]
        # Without its topics the application cannot run: no member gets a task.
        subtopologies = configured.subtopologies if configured.is_ready else None
        replicas = int(group.assignment_configs.get(STANDBY_REPLICAS, "0"))
        for member_id, target in assign_sticky(subscribers, subtopologies or {}, replicas).items():
            if group.target.get(member_id) != target:
                draft.emit(target_record(group.group_id, member_id, target))
        draft.emit(target_epoch_record(group.group_id, group.epoch, now_ms))

    def delay_ended(self, group_id: str, now_ms: int, out: Decision) -> None:
        """Compute the first assignment. Members get it with their next heartbeats."""
        group = self._state.streams.get(group_id)
        if group is None or not group.members or group.topology is None or group.assignment_epoch >= group.epoch:
            return
        draft = StreamsDraft.of(group)
        self._assign(draft, self._configure(draft.group), now_ms)
        out.records.extend(draft.records)

    # -- departures ----------------------------------------------------------------------------------------------------

    def fence(self, group: StreamsGroup, members: Iterable[StreamsMember], out: Decision) -> None:
        """Remove members, because they leave or because a timer has ended."""
        draft = StreamsDraft.of(group)
        gone = list(members)
        for member in gone:
            for record in removal(group.group_id, member.member_id):
                draft.emit(record)
            self.forget(group.group_id, member.member_id)
        if not gone:
            return
        left = draft.group
        epoch = left.epoch + 1
        draft.emit(
            epoch_record(left.group_id, epoch, left.metadata_hash, left.validated_epoch, left.assignment_configs)
        )
        if not left.members:
            # No member is left to assign to. The time is that of a group that never was assigned, so that the next
            # member need not wait.
            draft.emit(target_epoch_record(left.group_id, epoch, 0))
        elif any(member.endpoint is not None for member in gone):
            group.endpoint_epoch += 1
        out.records.extend(draft.records)

    # -- time ----------------------------------------------------------------------------------------------------------

    def overdue(self, key: TimerKey) -> StreamsMember | None:
        """Return the member whose timer has ended, if the reason still exists."""
        group = self._state.streams.get(key.group_id)
        member = None if group is None else group.members.get(key.member_id)
        if member is None or (key.kind == REVOKE and member.state is not StreamsMemberState.UNREVOKED_TASKS):
            return None
        return member

    def watch(self, group_id: str, before: StreamsMember | None, member: StreamsMember, now_ms: int) -> None:
        """Restart the member's session, and its rebalance time-out if it must give up tasks."""
        timers = self._state.timers
        session_ms = self._state.settings_of(group_id).streams_session_timeout_ms
        timers.set(TimerKey(SESSION, group_id, member.member_id), now_ms + session_ms)
        revoke = TimerKey(REVOKE, group_id, member.member_id)
        if member.state is not StreamsMemberState.UNREVOKED_TASKS:
            timers.cancel(revoke)
        elif before is None or before.revoking != member.revoking:
            timers.set(revoke, now_ms + member.rebalance_timeout_ms)

    def forget(self, group_id: str, member_id: str) -> None:
        for kind in (SESSION, REVOKE):
            self._state.timers.cancel(TimerKey(kind, group_id, member_id))

    def start_sessions(self, now_ms: int) -> None:
        for group in self._state.streams.values():
            for member in group.members.values():
                self.watch(group.group_id, None, member, now_ms)


def _matters(before: StreamsMember, after: StreamsMember) -> bool:
    """Whether a change of a member's metadata needs a new assignment. Static members may change a little."""
    if after.instance_id is None:
        return after != before
    return (after.topology_epoch, after.rack_id, after.tags, after.process_id) != (
        before.topology_epoch,
        before.rack_id,
        before.tags,
        before.process_id,
    )
