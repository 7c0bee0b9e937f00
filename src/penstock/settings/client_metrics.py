"""Subscriptions to the metrics of clients (KIP-714): which metrics, how often, of which clients.

`penstock.telemetry` does what they ask for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final

from penstock.model.errors import ErrorCode, KafkaError
from penstock.regex import InvalidRegex, Regex
from penstock.settings.definition import Scope, Setting, Type

INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000

# The properties by which clients can be selected.
_SELECTORS: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)

CLIENT_METRICS_SETTINGS: Final = {
    definition.name: definition
    for definition in (
        Setting("interval.ms", Type.INT, 300_000, "How often clients send metrics.", scope=Scope.CLUSTER_WIDE),
        Setting(
            "match",
            Type.LIST,
            (),
            "The clients, as selector=pattern; a client must match all of them.",
            scope=Scope.CLUSTER_WIDE,
        ),
        Setting("metrics", Type.LIST, (), "The metrics, by prefixes of their names.", scope=Scope.CLUSTER_WIDE),
    )
}


def check_client_metrics(configs: Mapping[str, str]) -> None:
    """KafkaError, with Kafka's messages, for an invalid subscription."""
    for name, text in configs.items():
        if name not in CLIENT_METRICS_SETTINGS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        value = CLIENT_METRICS_SETTINGS[name].parse(text)
        if isinstance(value, int) and not INTERVAL_MS_MIN <= value <= INTERVAL_MS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid value {value} for interval.ms, interval must be between {INTERVAL_MS_MIN} and "
                f"{INTERVAL_MS_MAX} (1 hour)",
            )
        if name == "match" and isinstance(value, tuple):
            for pattern in value:
                parse_selector(pattern)


def parse_selector(pattern: str) -> tuple[str, Regex]:
    """`client_id=expression`; the expression is one of RE2, which takes linear time."""
    selector, _, text = pattern.partition("=")
    selector, text = selector.strip(), text.strip()
    if selector in _SELECTORS and text and "=" not in text:
        with contextlib.suppress(InvalidRegex):
            return selector, Regex(text)
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
