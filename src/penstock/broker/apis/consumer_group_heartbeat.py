"""ConsumerGroupHeartbeat: the one request of group members in the new protocol (KIP-848).

A member sends everything with it, and gets everything in its response. Versions 0-1: 1 adds subscriptions by regular
expression.
"""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import ask, member_of
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.security.authorizer import Operation, group_resource, topic_resource

API_KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS = (0, 1)


def handle(
    services: GroupServices, request: Request, message: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | None:
    def refusal(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(error_code=code)

    if not services.coordinators.serves_consumer_groups:
        return refusal(ErrorCode.UNSUPPORTED_VERSION)
    if not request.may(Operation.READ, group_resource(message.group_id)):
        return refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if any(not request.may(Operation.DESCRIBE, topic_resource(name)) for name in message.subscribed_topic_names or ()):
        return refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    caller = member_of(request)
    ask(
        services.coordinators.groups,
        request,
        message.group_id,
        lambda shard, token, now_ms: shard.consumer_group_heartbeat(message, token, caller, now_ms),
        refusal,
    )
    return None
