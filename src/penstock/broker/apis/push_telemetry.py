"""PushTelemetry: takes the metrics of a client (KIP-714). Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import TelemetryServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

VERSIONS = (0, 0)


def handle(
    services: TelemetryServices, request: Request, message: PushTelemetryRequest
) -> PushTelemetryResponse | None:
    return services.telemetry.push(request, message)
