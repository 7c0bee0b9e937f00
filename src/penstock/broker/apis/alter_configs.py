"""AlterConfigs, the older way: what a request does not name goes back to its default. Versions 0-2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.forwarding import forward
from penstock.broker.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from penstock.security.authorizer import CLUSTER, Operation

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.ALTER_CONFIGS
VERSIONS = (0, 2)


def handle(node: Node, request: Request, message: AlterConfigsRequest) -> AlterConfigsResponse | None:
    def refusal(error: KafkaError) -> AlterConfigsResponse:
        return AlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=error.code,
                    error_message=error.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource in message.resources
            ]
        )

    if not request.may(Operation.ALTER_CONFIGS, CLUSTER):
        return refusal(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    forward(node, request, lambda controller: controller.alter_configs(message), refusal)
    return None
