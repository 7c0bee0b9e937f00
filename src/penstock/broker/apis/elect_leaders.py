"""ElectLeaders: elects preferred leaders, or any leader where there is none. Versions 0-2: 1 adds the election type."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.security.authorizer import CLUSTER, Operation

API_KEY = ApiKey.ELECT_LEADERS
VERSIONS = (0, 2)


def handle(services: AdminServices, request: Request, message: ElectLeadersRequest) -> ElectLeadersResponse | None:
    def refusal(error: KafkaError) -> ElectLeadersResponse:
        return ElectLeadersResponse(error_code=error.code)

    if not request.may(Operation.ALTER, CLUSTER):
        return refusal(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    topics = message.topic_partitions
    services.forwarding.forward(
        request,
        lambda controller: controller.elect_leaders(message),
        refusal,
        about=["all topics"] if topics is None else (each.topic for each in topics),
    )
    return None
