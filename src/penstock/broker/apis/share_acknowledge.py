"""ShareAcknowledge: acknowledge records of a share group without fetching others.

Versions 1-2: 2 adds the renewal of locks. The response waits until the acknowledgements are persisted. With epoch -1
the request closes the member's share session.
"""

from __future__ import annotations

from penstock.broker.apis.services import ShareServices
from penstock.broker.apis.share_requests import Acknowledging, session_of
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionResult,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from penstock.shares.sessions import FINAL_EPOCH

VERSIONS = (1, 2)


def handle(
    services: ShareServices, request: Request, message: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | None:
    try:
        key = session_of(services, request, message.group_id, message.member_id)
        session = services.shares.sessions.acknowledge(key, message.share_session_epoch)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.detail)
    acknowledging = Acknowledging(services, request, key, is_renewal=message.is_renew_ack)
    answer = request.park(mute=True)

    def done() -> None:
        response = _response(services, request, acknowledging)
        response.acquisition_lock_timeout_ms = services.shares.settings_of(
            key.group_id
        ).delivery.record_lock_duration_ms
        answer(response)
        if message.share_session_epoch == FINAL_EPOCH:
            services.shares.close_session(session)

    acknowledging.run(message.topics, done)
    return None


def _response(services: ShareServices, request: Request, acknowledging: Acknowledging) -> ShareAcknowledgeResponse:
    response = ShareAcknowledgeResponse()
    by_topic: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    for key, code in acknowledging.results.items():
        topic = by_topic.get(key.topic_id)
        if topic is None:
            topic = by_topic[key.topic_id] = ShareAcknowledgeTopicResponse(topic_id=key.topic_id)
            response.responses.append(topic)
        result = PartitionResult(
            partition_index=key.partition, error_code=code, error_message=code.text if code else None
        )
        topic.partitions.append(result)
        name = services.metadata.image.topics.name_of(key.topic_id) if code is not ErrorCode.NONE else None
        hint = None if name is None else services.hints.hint(request.connection, name, key.partition, code)
        if hint is not None:
            result.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
            if all(endpoint.node_id != hint.leader_id for endpoint in response.node_endpoints):
                response.node_endpoints.append(
                    NodeEndpoint(node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack)
                )
    return response
