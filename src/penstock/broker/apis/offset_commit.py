"""OffsetCommit: stores the committed offsets of a group.

Versions 2-10: 6 adds leader epochs, 7 static members, 9 members of the new protocol, 10 topic ids.
"""

from __future__ import annotations

from penstock.broker.apis.commit_admission import Admission, refuser
from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import caller_of
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.security.authorizer import Operation, group_resource

VERSIONS = (2, 10)

TOPIC_IDS_SINCE = 10

_refuse = refuser(OffsetCommitResponseTopic, OffsetCommitResponsePartition)


def handle(services: GroupServices, request: Request, message: OffsetCommitRequest) -> OffsetCommitResponse | None:
    if not request.may(Operation.READ, group_resource(message.group_id)):
        return _refusal(message.topics, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    admission = Admission(services.metadata.image, request, _refuse)
    for topic in message.topics:
        admission.admit(topic, by_id=request.version >= TOPIC_IDS_SINCE)
    if not admission.known and message.topics:
        return OffsetCommitResponse(topics=admission.refused)
    message.topics = known = admission.known
    park = request.park()

    def answer(response: OffsetCommitResponse) -> None:
        admission.add_refused(response.topics)
        park(response)

    caller = caller_of(request)
    services.coordinators.groups.submit(
        message.group_id,
        lambda shard, token, now_ms: shard.offset_commit(message, token, caller, now_ms),
        Waiting(answer, lambda code: _refusal(known, code)),
        writes=True,
    )
    return None


def _refusal(topics: list[OffsetCommitRequestTopic], code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[_refuse(topic, code) for topic in topics])
