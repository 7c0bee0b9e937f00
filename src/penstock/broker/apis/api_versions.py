"""ApiVersions: the APIs that this listener serves, and the finalized features.

Versions 0-5: 3 adds features and the client's name, 4 features whose minimum version is 0, 5 the cluster and the node
that the client means to reach (KIP-1242). If an address belongs to another node since, that node tells the client to
bootstrap again. As in Kafka, only brokers check that, and not before authentication.

The APIs by which clients push metrics are listed while there is a subscription.
"""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.metadata.features import SUPPORTED_FEATURES
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from penstock.protocol.software import ADDRESSED_SINCE, is_well_formed

VERSIONS = (0, 5)
TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)


def handle(services: AdminServices, request: Request, message: ApiVersionsRequest) -> ApiVersionsResponse:
    if not is_well_formed(message, request.version):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if _is_misrouted(services, request, message):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    request.connection.client_software = f"{message.client_software_name} {message.client_software_version}"
    asks_for_metrics = services.telemetry is not None and services.telemetry.is_wanted
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(
                api_key=route.api_key,
                min_version=route.advertised_min,
                max_version=route.max_version,
            )
            for route in sorted(services.routes.values())
            if asks_for_metrics or route.api_key not in TELEMETRY
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
            if low > 0 or request.version >= 4
        ],
        finalized_features_epoch=max(0, services.quorum.image.offset),
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(services.quorum.features.items())
            if level > 0
        ],
    )


def _is_misrouted(services: AdminServices, request: Request, message: ApiVersionsRequest) -> bool:
    if request.version < ADDRESSED_SINCE or message.cluster_id is None or services.address is None:
        return False
    return services.address != (message.cluster_id, message.node_id) and not request.connection.is_guarded
