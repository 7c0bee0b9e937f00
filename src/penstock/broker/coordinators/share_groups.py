"""Requests of share groups that need both the group's coordinator and the share coordinators of its partitions.

The group's shard decides and says what to ask; the questions leave when its records are committed, and the outcome goes
back to the shard. If the coordinator moves meanwhile, the next one finds in the group's records what is not finished:
heartbeats request an initialization again, and a deletion can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from penstock.broker.coordinators.coordinator import Coordinator
from penstock.broker.coordinators.end_offsets import EndOffsets, Ends
from penstock.broker.coordinators.questions import Gathering
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.coordinators.share_states import DELETE, INITIALIZE, SUMMARY, ShareStates
from penstock.coordinator.decision import Caller, Decision, Reply
from penstock.groups.consumer_member import Target
from penstock.groups.shard import GroupShard
from penstock.groups.share_heartbeat import HeartbeatReply, Initialization
from penstock.groups.share_offsets import AlterReply, DeletePlan, InitializedPartitions
from penstock.metadata.image import Metadata
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID, TopicPartition, Uuid
from penstock.protocol.messages import (
    delete_share_group_state,
    describe_share_group_offsets,
    initialize_share_group_state,
    read_share_group_state_summary,
)
from penstock.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from penstock.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    TopicResult,
)
from penstock.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from penstock.share_state.key import SharePartitionKey

# The error of each partition; NONE where all went well.
Errors = dict[tuple[Uuid, int], ErrorCode]

NO_OFFSET = -1


class ShareGroups:
    def __init__(
        self, groups: Coordinator[GroupShard], states: ShareStates, end_offsets: EndOffsets, metadata: Metadata
    ) -> None:
        self._groups = groups
        self._states = states
        self._end_offsets = end_offsets
        self._metadata = metadata

    # -- members -------------------------------------------------------------------------------------------------------

    def heartbeat(
        self,
        message: ShareGroupHeartbeatRequest,
        caller: Caller,
        answer: Callable[[ShareGroupHeartbeatResponse], None],
    ) -> None:
        def answered(reply: HeartbeatReply) -> None:
            answer(reply.response)
            if reply.initialization is not None:
                self._initialize(reply.initialization, lambda errors: None)

        self._groups.submit(
            message.group_id,
            lambda shard, token, now_ms: shard.share_group_heartbeat(message, token, caller, now_ms),
            Waiting(answered, lambda code: HeartbeatReply(ShareGroupHeartbeatResponse(error_code=code))),
        )

    def _initialize(self, asked: Initialization, done: Callable[[Errors], None]) -> None:
        """Initialize partitions, report the outcome to the group, and then call `done`."""
        parts = {
            (topic_id, index): initialize_share_group_state.Partition(
                partition=index, state_epoch=asked.state_epoch, start_offset=start_offset
            )
            for topic_id, offsets in asked.start_offsets.items()
            for index, start_offset in offsets.items()
        }

        def answered(errors: Errors) -> None:
            self._report(asked.group_id, errors)
            done(errors)

        self._ask_all(INITIALIZE, asked.group_id, parts, lambda results: answered(_errors_of(results)))

    def _report(self, group_id: str, errors: Errors) -> None:
        for succeeded in (True, False):
            partitions: dict[Uuid, frozenset[int]] = {}
            for (topic_id, index), code in errors.items():
                if (code is ErrorCode.NONE) == succeeded:
                    partitions[topic_id] = partitions.get(topic_id, frozenset()) | {index}
            if partitions:
                report = partial(_report_to, group_id=group_id, partitions=partitions, succeeded=succeeded)
                self._groups.submit(group_id, report, Waiting(lambda reply: None, lambda code: code))

    def _ask_all(
        self,
        api: Any,
        group_id: str,
        parts: Mapping[tuple[Uuid, int], Any],
        done: Callable[[dict[tuple[Uuid, int], Any]], None],
    ) -> None:
        """Ask the share coordinators of several partitions; `done` gets all results."""
        results: dict[tuple[Uuid, int], Any] = {}
        gathering = Gathering(len(parts), lambda: done(results))

        def answered(place: tuple[Uuid, int], result: Any) -> None:
            results[place] = result
            gathering.one_more()

        for place, part in parts.items():
            self._states.ask(api, SharePartitionKey(group_id, *place), part, partial(answered, place))

    # -- offsets -------------------------------------------------------------------------------------------------------

    def alter_offsets(
        self, message: AlterShareGroupOffsetsRequest, answer: Callable[[AlterShareGroupOffsetsResponse], None]
    ) -> None:
        def answered(reply: AlterReply) -> None:
            if reply.initialization is None:
                answer(reply.response)
            else:
                self._initialize(reply.initialization, partial(finished, reply.response))

        def finished(response: AlterShareGroupOffsetsResponse, errors: Errors) -> None:
            for topic in response.responses:
                for part in topic.partitions:
                    code = errors.get((topic.topic_id, part.partition_index), ErrorCode.NONE)
                    if code:
                        part.error_code, part.error_message = code, code.text
            answer(response)

        self._groups.submit(
            message.group_id,
            lambda shard, token, now_ms: shard.share_offsets.alter(message, token),
            Waiting(answered, lambda code: AlterReply(AlterShareGroupOffsetsResponse(error_code=code))),
            writes=True,
        )

    def delete_offsets(
        self, message: DeleteShareGroupOffsetsRequest, answer: Callable[[DeleteShareGroupOffsetsResponse], None]
    ) -> None:
        group_id = message.group_id

        def begun(plan: DeletePlan) -> None:
            if plan.partitions:
                self._delete_states(group_id, plan.partitions, partial(deleted, plan.response))
            else:
                answer(plan.response)

        def deleted(response: DeleteShareGroupOffsetsResponse, errors: dict[Uuid, ErrorCode]) -> None:
            topics = self._metadata.image.topics
            response.responses[:0] = [
                TopicResult(
                    topic_id=topic_id,
                    topic_name=topics.name_of(topic_id) or "",
                    error_code=code,
                    error_message=code.text or None,
                )
                for topic_id, code in errors.items()
            ]
            finished = [topic_id for topic_id, code in errors.items() if not code]
            self._groups.submit(
                group_id,
                lambda shard, token, now_ms: Decision(
                    shard.share_offsets.finish_delete_offsets(group_id, finished), [Reply(token, response)]
                ),
                Waiting(answer, lambda code: DeleteShareGroupOffsetsResponse(error_code=code)),
                writes=True,
            )

        self._groups.submit(
            group_id,
            lambda shard, token, now_ms: shard.share_offsets.begin_delete_offsets(message, token),
            Waiting(begun, lambda code: DeletePlan({}, DeleteShareGroupOffsetsResponse(error_code=code))),
            writes=True,
        )

    def _delete_states(self, group_id: str, partitions: Target, done: Callable[[dict[Uuid, ErrorCode]], None]) -> None:
        """Delete the state of partitions; `done` gets an error for each topic."""
        parts = {
            (topic_id, index): delete_share_group_state.Partition(partition=index)
            for topic_id, indexes in partitions.items()
            for index in sorted(indexes)
        }

        def answered(results: dict[tuple[Uuid, int], Any]) -> None:
            errors = dict.fromkeys(partitions, ErrorCode.NONE)
            for (topic_id, _), code in _errors_of(results).items():
                errors[topic_id] = errors[topic_id] or code
            done(errors)

        self._ask_all(DELETE, group_id, parts, answered)

    def delete_group(self, group_id: str, caller: Caller, answer: Callable[[DeleteGroupsResponse], None]) -> None:
        """Delete a group of any kind: of a share group first the state that the share coordinators have."""

        def refusal(code: ErrorCode) -> DeleteGroupsResponse:
            return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group_id, error_code=code)])

        def begun(plan: DeletePlan) -> None:
            if plan.response.error_code:
                answer(refusal(ErrorCode(plan.response.error_code)))
            else:
                self._delete_states(group_id, plan.partitions, deleted)

        def deleted(errors: dict[Uuid, ErrorCode]) -> None:
            code = next((each for each in errors.values() if each), ErrorCode.NONE)
            if code:
                answer(refusal(code))
                return
            asked = DeleteGroupsRequest(groups_names=[group_id])
            self._groups.submit(
                group_id,
                lambda shard, token, now_ms: shard.delete_groups(asked, token, caller, now_ms),
                Waiting(answer, refusal),
                writes=True,
            )

        self._groups.submit(
            group_id,
            lambda shard, token, now_ms: shard.share_offsets.begin_delete_group(group_id, token),
            Waiting(begun, lambda code: DeletePlan({}, DeleteShareGroupOffsetsResponse(error_code=code))),
            writes=True,
        )

    # -- describing offsets --------------------------------------------------------------------------------------------

    def describe_offsets(
        self,
        group_id: str,
        topics: Collection[describe_share_group_offsets.Topic] | None,
        answer: Callable[[describe_share_group_offsets.GroupResult], None],
    ) -> None:
        """Tell where a group starts to read, in these topics or in all it has read, and its lag."""
        result = describe_share_group_offsets.GroupResult(group_id=group_id)
        if topics is None:
            self._groups.submit(
                group_id,
                lambda shard, token, now_ms: shard.share_offsets.partitions_of(group_id, token),
                Waiting(
                    lambda reply: (
                        self._describe(result, reply.partitions, answer)
                        if isinstance(reply, InitializedPartitions)
                        else answer(reply)
                    ),
                    lambda code: describe_share_group_offsets.GroupResult(
                        group_id=group_id, error_code=code, error_message=code.text
                    ),
                ),
            )
            return
        partitions: dict[Uuid, frozenset[int]] = {}
        for topic in topics:
            topic_id = self._metadata.image.topics.id_of(topic.topic_name)
            if topic_id is not None:
                partitions[topic_id] = frozenset(topic.partitions)
                continue
            # As for offsets of other groups: there are none, which is no error.
            result.topics.append(
                describe_share_group_offsets.TopicResult(
                    topic_name=topic.topic_name,
                    topic_id=ZERO_UUID,
                    partitions=[
                        describe_share_group_offsets.PartitionResult(partition_index=index, start_offset=NO_OFFSET)
                        for index in topic.partitions
                    ],
                )
            )
        self._describe(result, partitions, answer)

    def _describe(
        self,
        result: describe_share_group_offsets.GroupResult,
        partitions: Target,
        answer: Callable[[describe_share_group_offsets.GroupResult], None],
    ) -> None:
        parts = {
            (topic_id, index): read_share_group_state_summary.Partition(partition=index)
            for topic_id, indexes in partitions.items()
            for index in sorted(indexes)
        }

        def summarized(summaries: dict[tuple[Uuid, int], Any]) -> None:
            names = {topic_id: self._metadata.image.topics.name_of(topic_id) or "" for topic_id in partitions}
            counted = [
                TopicPartition(names[topic_id], index)
                for (topic_id, index), summary in summaries.items()
                if _is_countable(summary)
            ]
            self._end_offsets.ask(counted, lambda ends: described(names, summaries, ends))

        def described(names: dict[Uuid, str], summaries: dict[tuple[Uuid, int], Any], ends: Ends) -> None:
            result.topics[:0] = [
                describe_share_group_offsets.TopicResult(
                    topic_name=names[topic_id],
                    topic_id=topic_id,
                    partitions=[
                        _described(summaries[topic_id, index], ends.get(TopicPartition(names[topic_id], index)))
                        for index in sorted(indexes)
                    ],
                )
                for topic_id, indexes in partitions.items()
            ]
            answer(result)

        self._ask_all(SUMMARY, result.group_id, parts, summarized)


def _report_to(
    shard: GroupShard, token: Waiting, now_ms: int, *, group_id: str, partitions: Target, succeeded: bool
) -> Decision:
    return shard.share_initialized(group_id, partitions, succeeded)


def _errors_of(results: Mapping[tuple[Uuid, int], Any]) -> Errors:
    return {place: ErrorCode(result.error_code) for place, result in results.items()}


def _is_countable(summary: read_share_group_state_summary.PartitionResult) -> bool:
    return not summary.error_code and summary.start_offset >= 0 and summary.delivery_complete_count >= 0


def _described(
    summary: read_share_group_state_summary.PartitionResult, end: int | ErrorCode | None
) -> describe_share_group_offsets.PartitionResult:
    index = summary.partition
    if summary.error_code:
        return describe_share_group_offsets.PartitionResult(partition_index=index, start_offset=NO_OFFSET)
    if isinstance(end, ErrorCode):
        return describe_share_group_offsets.PartitionResult(
            partition_index=index, error_code=end, error_message=end.text
        )
    return describe_share_group_offsets.PartitionResult(
        partition_index=index,
        start_offset=summary.start_offset,
        leader_epoch=summary.leader_epoch,
        lag=-1 if end is None else end - summary.start_offset - summary.delivery_complete_count,
    )
