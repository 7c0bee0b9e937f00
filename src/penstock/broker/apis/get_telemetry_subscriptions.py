"""GetTelemetrySubscriptions: says which metrics the broker wants of a client, and how often (KIP-714). Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import TelemetryServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

VERSIONS = (0, 0)


def handle(
    services: TelemetryServices, request: Request, message: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    return services.telemetry.get(request, message)
