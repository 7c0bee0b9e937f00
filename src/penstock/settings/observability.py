"""Observability settings of a node: its metrics endpoint and its log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from penstock.settings.definition import Type, Value, at_least, integer, one_of, setting, string
from penstock.settings.listeners import refusal

METRICS_LISTENER_NAME: Final = "METRICS"
"""For the prefix of TLS settings."""
_ADDRESS: Final = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([^:\[\]@/]*)):([0-9]{1,5})")


def parse_metrics_listener(text: str) -> tuple[str, int] | None:
    """Return host and port; an empty host means all addresses. None for an empty text: no endpoint."""
    if not text:
        return None
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[3]) > 65535:
        raise refusal(f"penstock.metrics.listener: {text!r} is not HOST:PORT")
    return match[1] or match[2], int(match[3])


def _check_listener(name: str, text: Value) -> None:
    parse_metrics_listener(text)


@dataclass(frozen=True, kw_only=True)
class ObservabilitySettings:
    penstock_metrics_listener: str = string(
        "",
        "The address that serves Prometheus metrics, as HOST:PORT (an empty host is all addresses, port 0 any free "
        "port): http://HOST:PORT/metrics. Without it, there is no endpoint. `penstock up` sets it. An addition to "
        "Kafka's settings.",
        _check_listener,
    )
    penstock_metrics_protocol: str = string(
        "http",
        "https encrypts the metrics endpoint with the key store of ssl.keystore.*, or of "
        "listener.name.metrics.ssl.keystore.*. An addition to Kafka's settings.",
        one_of("http", "https"),
    )
    penstock_metrics_user: str = string(
        "",
        "The user that may read metrics, with penstock.metrics.password, by basic authentication. Without it and "
        "without a token, everybody who reaches the endpoint may. An addition to Kafka's settings.",
    )
    penstock_metrics_password: str | None = setting(
        Type.PASSWORD, None, "The password of penstock.metrics.user. An addition to Kafka's settings."
    )
    penstock_metrics_bearer_token: str | None = setting(
        Type.PASSWORD,
        None,
        "The token with which metrics may be read, by bearer authentication. An addition to Kafka's settings.",
    )
    penstock_metrics_max_series: int = integer(
        20_000,
        "The maximum number of partitions of logs, and of groups, with metrics of their own. Metrics of further "
        "partitions are left out, and penstock_metrics_series_left_out counts them. An addition to Kafka's settings.",
        at_least(0),
    )
    telemetry_max_bytes: int = integer(
        1_048_576,
        "The maximum size of the metrics that a client pushes at once, compressed and uncompressed.",
        at_least(1),
    )
    penstock_telemetry_max_series: int = integer(
        10_000,
        "How many numbers that clients pushed a broker keeps and shows among its metrics. Further ones are left out, "
        "and penstock_client_metrics_series_left_out_total counts them. An addition to Kafka's settings.",
        at_least(0),
    )
    penstock_log_format: str = string(
        "text",
        "The format of the node's own log: plain text, or one JSON object per line. An addition to Kafka's settings.",
        one_of("text", "json"),
    )
    penstock_audit_topic: str = string(
        "",
        "The topic to which refusals and administrative changes are written as records, in addition to the lines of "
        "the logger penstock.audit. It is not created automatically. Empty: none. An addition to Kafka's settings.",
    )
    penstock_audit_max_queued_events: int = integer(
        10_000,
        "How many events may wait to be written to the audit topic. Further ones are dropped, and counted by "
        "penstock_audit_events_dropped_total. An addition to Kafka's settings.",
        at_least(1),
    )

    def check_metrics(self) -> tuple[str, ...]:
        """Returns warnings; KafkaError(INVALID_CONFIG) for a user without a password, or the reverse."""
        if bool(self.penstock_metrics_user) != bool(self.penstock_metrics_password):
            raise refusal("penstock.metrics.user and penstock.metrics.password belong together: set both")
        is_secret = self.penstock_metrics_user or self.penstock_metrics_bearer_token is not None
        if is_secret and self.metrics_endpoint is not None and self.penstock_metrics_protocol == "http":
            return ("the metrics endpoint asks for a secret without encryption: set penstock.metrics.protocol=https",)
        return ()

    @cached_property
    def metrics_endpoint(self) -> tuple[str, int] | None:
        return parse_metrics_listener(self.penstock_metrics_listener)
