"""FindCoordinator: which broker looks after a group or a transactional id.

Versions 0-6: 4 asks for many at once. No coordinator is available yet, and the answer says so. The API is served all
the same because librdkafka takes its presence for that of LZ4 compression, and compresses nothing without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.FIND_COORDINATOR
VERSIONS = (0, 6)

BATCHED_SINCE = 4
WHY = "groups and transactions are not served yet"


def handle(node: Node, request: Request, message: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if request.version < BATCHED_SINCE:
        return FindCoordinatorResponse(
            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=WHY, node_id=-1, host="", port=-1
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, port=-1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=WHY)
            for key in message.coordinator_keys
        ]
    )
