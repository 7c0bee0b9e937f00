"""UpdateFeatures: finalize the levels of features. Versions 0-2: 1 adds kinds of downgrade and a dry run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.forwarding import forward
from penstock.broker.request import Request
from penstock.controller.features import refused
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from penstock.security.authorizer import CLUSTER, Operation

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.UPDATE_FEATURES
VERSIONS = (0, 2)


def handle(node: Node, request: Request, message: UpdateFeaturesRequest) -> UpdateFeaturesResponse | None:
    if not request.may(Operation.ALTER, CLUSTER):
        return refused(message, KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    forward(
        node,
        request,
        lambda controller: controller.update_features(message),
        lambda error: refused(message, error),
    )
    return None
