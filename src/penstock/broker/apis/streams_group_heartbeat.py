"""StreamsGroupHeartbeat: the one membership request of streams groups (KIP-1071).

The broker creates the internal topics of the application that are missing, if the client may create topics. Versions
0-1: 1 adds a wider field for the acceptable recovery lag, and the status of missing client tags.
"""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import member_of
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.net.request import Request
from penstock.groups.streams_heartbeat import StreamsReply
from penstock.groups.streams_topology import StatusCode
from penstock.model.errors import MESSAGE_MAX, ErrorCode
from penstock.model.topics import INTERNAL_TOPICS, topic_name_problem
from penstock.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)
from penstock.security.authorizer import CLUSTER, Operation, group_resource, topic_resource

VERSIONS = (0, 1)

ERRORS_MAX = 3


def handle(
    services: GroupServices, request: Request, message: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse | None:
    def refusal(code: ErrorCode, text: str | None = None) -> StreamsGroupHeartbeatResponse:
        return StreamsGroupHeartbeatResponse(error_code=code, error_message=text and text[:MESSAGE_MAX])

    if not services.coordinators.serves_streams_groups:
        return refusal(ErrorCode.UNSUPPORTED_VERSION)
    if not request.may(Operation.READ, group_resource(message.group_id)):
        return refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    topics = [] if message.topology is None else _topics_of(message.topology)
    own = [name for name in topics if name in INTERNAL_TOPICS]
    if own:
        text = f"Use of Kafka internal topics {','.join(own)} in a Kafka Streams topology is prohibited."
        return refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
    invalid = [name for name in topics if topic_name_problem(name) is not None]
    if invalid:
        text = f"Topic names {','.join(invalid)} are not valid topic names."
        return refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
    if not all(request.may(Operation.DESCRIBE, topic_resource(name)) for name in topics):
        return refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    answer = request.park()

    def answered(reply: StreamsReply) -> None:
        if reply.missing:
            _create_topics(services, request, reply)
        answer(reply.response)

    caller = member_of(request)
    services.coordinators.groups.submit(
        message.group_id,
        lambda shard, token, now_ms: shard.streams_group_heartbeat(message, token, caller, now_ms),
        Waiting(answered, lambda code: StreamsReply(refusal(code))),
    )
    return None


def _topics_of(topology: Topology) -> list[str]:
    found: dict[str, None] = {}
    for each in topology.subtopologies:
        found.update(dict.fromkeys((*each.source_topics, *each.repartition_sink_topics)))
        found.update(dict.fromkeys(topic.name for topic in each.repartition_source_topics))
        found.update(dict.fromkeys(topic.name for topic in each.state_changelog_topics))
    return list(found)


def _create_topics(services: GroupServices, request: Request, reply: StreamsReply) -> None:
    """Request the missing topics, or say why they cannot be created. Members ask again with every heartbeat."""
    names = [topic.name for topic in reply.missing]
    if not request.could(Operation.CREATE, CLUSTER):
        forbidden = [name for name in names if not request.may(Operation.CREATE, topic_resource(name))]
        if forbidden:
            _add_detail(reply.response, f"; Unauthorized to CREATE on topics {', '.join(forbidden)}.")
            return
    failures = services.topic_creation.failures_of(names)
    if failures:
        listed = ", ".join(f"{name} ({reason})" for name, reason in failures[:ERRORS_MAX])
        more = f" and {len(failures) - ERRORS_MAX} more" if len(failures) > ERRORS_MAX else ""
        _add_detail(reply.response, f"; Creation failed: {listed}{more}.")
    services.topic_creation.ask(reply.missing)


def _add_detail(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    for status in response.status or ():
        if status.status_code == StatusCode.MISSING_INTERNAL_TOPICS:
            status.status_detail += detail
