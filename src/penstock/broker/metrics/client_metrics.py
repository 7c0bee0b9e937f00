"""Metrics that clients pushed (KIP-714), and how the broker gets along with them."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.broker.metrics import families as f
from penstock.broker.metrics.exposition import Collected, labels_text
from penstock.broker.metrics.families import Family
from penstock.broker.telemetry import ClientTelemetry


def clients(telemetry: ClientTelemetry) -> Iterator[Collected]:
    instances, samples = telemetry.instances, telemetry.samples
    samples.expire(telemetry.now_ms())
    yield f.CLIENT_INSTANCES, [((), len(instances))]
    yield f.CLIENT_PUSHES, [((), telemetry.pushes)]
    yield f.CLIENT_PUSHES_INVALID, [((), telemetry.invalid_pushes)]
    yield f.CLIENT_REQUESTS_THROTTLED, [((), instances.throttled)]
    yield f.CLIENT_SUBSCRIPTIONS_UNKNOWN, [((), instances.unknown_subscriptions)]
    yield f.CLIENT_SERIES_LEFT_OUT, [((), samples.left_out)]
    for name, is_counter, values in samples.by_name():
        # Clients name these metrics and their labels, so they are not declared with the others.
        family = Family(name, "counter" if is_counter else "gauge", "", (), "Sent by clients.")
        yield family, ((labels_text(*zip(*labels, strict=True)), value) for labels, value in values)
