"""ElectLeaders: preferred leaders now, or any leader where there is none. Versions 0-2: 1 adds the kind of election."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.metadata.forwarding import forward
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.security.authorizer import CLUSTER, Operation

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.ELECT_LEADERS
VERSIONS = (0, 2)


def handle(node: Node, request: Request, message: ElectLeadersRequest) -> ElectLeadersResponse | None:
    def refusal(error: KafkaError) -> ElectLeadersResponse:
        return ElectLeadersResponse(error_code=error.code)

    if not request.may(Operation.ALTER, CLUSTER):
        return refusal(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    forward(node, request, lambda controller: controller.elect_leaders(message), refusal)
    return None
