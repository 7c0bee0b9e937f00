"""Observability settings of a node: its metrics endpoint and its log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from penstock.settings.definition import Value, at_least, integer, one_of, string
from penstock.settings.listeners import refusal

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
    penstock_metrics_max_series: int = integer(
        20_000,
        "The maximum number of partitions of logs, and of groups, with metrics of their own. Metrics of further "
        "partitions are left out, and penstock_metrics_series_left_out counts them. An addition to Kafka's settings.",
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

    @cached_property
    def metrics_endpoint(self) -> tuple[str, int] | None:
        return parse_metrics_listener(self.penstock_metrics_listener)
