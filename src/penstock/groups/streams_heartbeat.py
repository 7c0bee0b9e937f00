"""StreamsGroupHeartbeat: the one membership request of streams groups (KIP-1071).

With epoch 0 a member joins and sends its topology, with -1 it leaves, with -2 it leaves and will return under its
instance id. Otherwise the request carries the last epoch the member received; the previous one is accepted from a
member that has no task it should not have, because the answer may have been lost. A null field means "unchanged".

`StreamsMembership` does the steps; this module checks requests, finds the member, and makes the answer. The answer has
tasks only if they changed, if the member joins, or if it lists other tasks than it was assigned. It says in `status`
why a member has none. Missing internal topics go to the runtime, which has them created.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from penstock.coordinator.decision import Caller, Decision, Reply, Token
from penstock.groups.consumer_member import JOINING, LEAVING, LEAVING_FOR_A_WHILE
from penstock.groups.draft import StreamsDraft
from penstock.groups.modern_group import unreleased
from penstock.groups.records import classic_group_record
from penstock.groups.state import GroupState
from penstock.groups.streams_endpoints import partitions_by_endpoint
from penstock.groups.streams_group import StreamsGroup, TaskOffsets
from penstock.groups.streams_member import NOTHING, StreamsMember, address_of, tags_of
from penstock.groups.streams_membership import RACK_AWARE_TAGS, StreamsMembership
from penstock.groups.streams_records import current_record
from penstock.groups.streams_tasks import Task, TaskSets, ids_of, reported
from penstock.groups.streams_topology import Problem, StatusCode, check_topology
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.create_topics import CreatableTopic
from penstock.protocol.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from penstock.protocol.messages.streams_structs import TaskIds, TaskOffset

# Older clients fail on a status they do not know.
MISSING_TAGS_TOLD_SINCE: Final = 1


class StreamsReply(NamedTuple):
    """The answer to a heartbeat, and the internal topics that must be created."""

    response: StreamsGroupHeartbeatResponse
    missing: tuple[CreatableTopic, ...] = ()


class StreamsHeartbeat:
    def __init__(self, state: GroupState) -> None:
        self._state = state
        self.membership = StreamsMembership(state)

    def heartbeat(self, request: StreamsGroupHeartbeatRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        out = Decision([], [])
        try:
            _check(request)
            if request.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
                reply = StreamsReply(self._leave(request, out))
            else:
                reply = self._beat(request, caller, now_ms, out)
        except KafkaError as error:
            response = StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
            return Decision([], [Reply(token, StreamsReply(response))])
        out.replies.append(Reply(token, reply))
        return out

    # -- join and heartbeat --------------------------------------------------------------------------------------------

    def _beat(self, request: StreamsGroupHeartbeatRequest, caller: Caller, now_ms: int, out: Decision) -> StreamsReply:
        group_id = request.group_id
        joins = request.member_epoch == JOINING
        offsets = _offsets(request.task_offsets), _offsets(request.task_end_offsets)
        owned = reported(request.active_tasks, request.standby_tasks, request.warmup_tasks)
        if joins:
            draft = self._open(group_id)
            limit = self._state.settings.streams_max_size
            draft.group.check_room_for(limit, "streams", request.member_id, request.instance_id)
            member, replaced = self._admit(draft, request)
            is_behind = False
            owned = TaskSets()
        else:
            live = streams_group_or_error(self._state, group_id)
            member, replaced = _known(live, request), None
            # A member of the previous epoch may list tasks that are older than its last assignment.
            is_behind = request.member_epoch != member.epoch
            draft = StreamsDraft(live)
        wished = _wished(member, request, caller)
        problems: list[Problem] = []
        confirmed = None if is_behind else owned
        if joins or wished != member or self.membership.is_due(draft.group, now_ms):
            if not joins:
                draft = StreamsDraft.of(draft.group)
            moved = self.membership.update(draft, member, wished, request.topology, confirmed, now_ms, problems)
        else:
            self.membership.check_tasks(draft.group, owned)
            moved = self.membership.follow(draft.group, member, confirmed)
            if moved != member:
                draft.records.append(current_record(group_id, moved.member_id, moved))
        # Nothing below can refuse the request.
        out.records.extend(draft.records)
        group = self._state.streams.setdefault(group_id, StreamsGroup(group_id))
        self._keep(group, draft.group, moved, request, offsets)
        if replaced is not None:
            self.membership.forget(group_id, replaced.member_id)
        self.membership.watch(group_id, None if joins else member, moved, now_ms)
        # The answer with the last assignment may have been lost.
        is_mistaken = owned is not None and owned != moved.assigned.sets
        had = None if joins or is_behind or is_mistaken else member.assigned
        if moved.endpoint != member.endpoint or (moved.endpoint is not None and moved.assigned != member.assigned):
            group.endpoint_epoch += 1
        response = self._response(group_id, moved, had is None or had != moved.assigned)
        self._tell_endpoints(response, group, draft.group, moved, request.endpoint_information_epoch)
        configured = group.configured
        if configured is not None and configured.problem is not None:
            problems.append(configured.problem)
        problems += self._warnings(group, draft.group.topology_epoch, moved, caller.api_version)
        response.status = [Status(status_code=each.code, status_detail=each.detail) for each in problems]
        return StreamsReply(response, () if configured is None else configured.missing)

    def _open(self, group_id: str) -> StreamsDraft:
        """Return a draft of the group that a member joins: a new one, or in place of an empty classic group."""
        group = self._state.streams.get(group_id)
        if group is not None:
            return StreamsDraft.of(group)
        draft = StreamsDraft(StreamsGroup(group_id))
        classic = self._state.classic.get(group_id)
        if classic is not None and classic.is_empty:
            draft.records.append(classic_group_record(group_id, None))
        elif self._state.kind_of(group_id) is not None:
            raise _not_found(self._state, group_id)
        return draft

    def _admit(
        self, draft: StreamsDraft, request: StreamsGroupHeartbeatRequest
    ) -> tuple[StreamsMember, StreamsMember | None]:
        """Return the member that joins, and the static member it replaces."""
        if request.instance_id is not None:
            existing = draft.group.static_member(request.instance_id)
            # A member that was fenced joins again under the same id.
            if existing is not None and (
                existing.member_id != request.member_id or existing.epoch == LEAVING_FOR_A_WHILE
            ):
                if existing.epoch != LEAVING_FOR_A_WHILE:
                    raise unreleased(request.member_id, request.instance_id, existing.member_id)
                return self.membership.replace(draft, existing, request.member_id), existing
        return draft.group.members.get(request.member_id, StreamsMember(request.member_id)), None

    def _keep(
        self,
        group: StreamsGroup,
        draft: StreamsGroup,
        member: StreamsMember,
        request: StreamsGroupHeartbeatRequest,
        offsets: tuple[dict[Task, int] | None, dict[Task, int] | None],
    ) -> None:
        """Set the soft state: on the group itself, not on its draft."""
        group.configured, group.checked_version = draft.configured, draft.checked_version
        if offsets != (None, None):
            before = group.task_offsets.get(member.member_id, TaskOffsets())
            group.task_offsets[member.member_id] = TaskOffsets(
                before.offsets if offsets[0] is None else offsets[0],
                before.end_offsets if offsets[1] is None else offsets[1],
            )
        if request.shutdown_application and group.shutdown_by is None:
            group.shutdown_by = member.member_id

    # -- answer --------------------------------------------------------------------------------------------------------

    def _response(self, group_id: str, member: StreamsMember, with_tasks: bool) -> StreamsGroupHeartbeatResponse:
        settings = self._state.settings_of(group_id)
        response = StreamsGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=settings.streams_heartbeat_interval_ms,
            task_offset_interval_ms=settings.streams_task_offset_interval_ms,
            acceptable_recovery_lag=settings.streams_acceptable_recovery_lag,
        )
        if with_tasks:
            response.active_tasks = ids_of(member.assigned.active)
            response.standby_tasks = ids_of(member.assigned.standby)
            response.warmup_tasks = ids_of(member.assigned.warmup)
        return response

    def _tell_endpoints(
        self,
        response: StreamsGroupHeartbeatResponse,
        group: StreamsGroup,
        draft: StreamsGroup,
        moved: StreamsMember,
        known_epoch: int,
    ) -> None:
        """Tell where the tasks of all members are, if the member does not know yet."""
        response.endpoint_information_epoch = group.endpoint_epoch
        if group.endpoint_epoch != known_epoch and group.configured is not None:
            members = {**draft.members, moved.member_id: moved}
            response.partitions_by_user_endpoint = partitions_by_endpoint(
                members.values(), group.configured, self._state.topics
            )

    def _warnings(
        self, group: StreamsGroup, topology_epoch: int, member: StreamsMember, version: int
    ) -> Iterable[Problem]:
        if member.topology_epoch < topology_epoch:
            yield Problem(
                StatusCode.STALE_TOPOLOGY,
                f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch "
                f"{topology_epoch}.",
            )
        if group.shutdown_by is not None:
            yield Problem(
                StatusCode.SHUTDOWN_APPLICATION,
                f"Streams group member {group.shutdown_by} encountered a fatal error and requested a shutdown for the "
                "entire application.",
            )
        wanted = self.membership.assignment_configs(group.group_id).get(RACK_AWARE_TAGS, "")
        missing = [tag for tag in filter(None, wanted.split(",")) if tag not in dict(member.tags)]
        if missing and version >= MISSING_TAGS_TOLD_SINCE:
            yield Problem(
                StatusCode.MISSING_CLIENT_TAGS,
                f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. Configure "
                "them via 'client.tag.<tagKey>' in your Streams config.",
            )

    # -- leave ---------------------------------------------------------------------------------------------------------

    def _leave(self, request: StreamsGroupHeartbeatRequest, out: Decision) -> StreamsGroupHeartbeatResponse:
        group = streams_group_or_error(self._state, request.group_id)
        member = group.identified(request.member_id, request.instance_id)
        if request.shutdown_application and group.shutdown_by is None:
            group.shutdown_by = request.member_id
        if request.member_epoch == LEAVING_FOR_A_WHILE:
            # It keeps its tasks. When it returns under another id, it has them since epoch 0.
            kept = member.assigned._replace(active=dict.fromkeys(member.assigned.active, 0))
            left = member._replace(epoch=LEAVING_FOR_A_WHILE, assigned=kept, revoking=NOTHING)
            out.records.append(current_record(group.group_id, member.member_id, left))
        else:
            self.membership.fence(group, [member], out)
        return StreamsGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch, status=[])


def streams_group_or_error(state: GroupState, group_id: str) -> StreamsGroup:
    group = state.streams.get(group_id)
    if group is None:
        raise _not_found(state, group_id)
    return group


def _not_found(state: GroupState, group_id: str) -> KafkaError:
    reason = "not found" if state.kind_of(group_id) is None else "is not a streams group"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")


# -- request ---------------------------------------------------------------------------------------------------------


def _check(request: StreamsGroupHeartbeatRequest) -> None:
    epoch = request.member_epoch
    for name, value in (
        ("Member", request.member_id),
        ("Group", request.group_id),
        ("Instance", request.instance_id),
        ("Rack", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}Id can't be empty.")
    tasks = (("Active", request.active_tasks), ("Standby", request.standby_tasks), ("Warmup", request.warmup_tasks))
    if epoch == JOINING:
        _check_join(request, tasks)
    elif epoch == LEAVING_FOR_A_WHILE and request.instance_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < LEAVING_FOR_A_WHILE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    if len({ids is None for _, ids in tasks}) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "If one task-type is non-null, all must be non-null.")
    if epoch != JOINING and request.topology is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology can only be provided when (re-)joining.")


def _check_join(request: StreamsGroupHeartbeatRequest, tasks: Collection[tuple[str, Sequence[TaskIds] | None]]) -> None:
    if request.rebalance_timeout_ms == -1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    for name, ids in tasks:
        if ids is None or ids:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}Tasks must be empty when (re-)joining.")
    if request.topology is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology must be non-null when (re-)joining.")
    check_topology(request.topology)


def _known(group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> StreamsMember:
    """Return the member; raise KafkaError if its id, instance id or epoch is wrong."""
    member = group.identified(request.member_id, request.instance_id)
    epoch = request.member_epoch
    owned = reported(request.active_tasks, request.standby_tasks, request.warmup_tasks)
    is_late = epoch < member.epoch and epoch == member.previous_epoch
    if epoch == member.epoch or (is_late and owned is not None and owned.is_within(member.assigned.sets)):
        return member
    relation = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {relation} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _wished(member: StreamsMember, request: StreamsGroupHeartbeatRequest, caller: Caller) -> StreamsMember:
    """Apply the request's fields to the member."""
    endpoint = address_of(request.user_endpoint)
    if endpoint is None and request.member_epoch != JOINING:
        endpoint = member.endpoint
    timeout_ms, topology = request.rebalance_timeout_ms, request.topology
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=member.topology_epoch if topology is None else topology.epoch,
        process_id=member.process_id if request.process_id is None else request.process_id,
        endpoint=endpoint,
        tags=member.tags if request.client_tags is None else tags_of(request.client_tags),
    )


def _offsets(entries: Sequence[TaskOffset] | None) -> dict[Task, int] | None:
    if entries is None:
        return None
    found: dict[Task, int] = {}
    for entry in entries:
        task = Task(entry.subtopology_id, entry.partition)
        if task in found:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Task offsets contain a duplicate entry for subtopology {task.subtopology} and partition "
                f"{task.partition}.",
            )
        found[task] = entry.offset
    return found
