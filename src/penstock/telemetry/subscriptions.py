"""Which metrics are wanted of a client, and how often: all subscriptions that select it, together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.model.errors import KafkaError
from penstock.regex import InvalidRegex, Regex
from penstock.settings.client_metrics import CLIENT_METRICS_SETTINGS, parse_selector

ALL_METRICS: Final = "*"
INTERVAL_MS_DEFAULT: Final = 300_000


class Client(NamedTuple):
    """What clients are selected by, and how their metrics are labelled."""

    client_instance_id: str
    client_id: str | None
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str

    def selected_by(self, selectors: Mapping[str, Regex]) -> bool:
        """Whether all expressions match. One that takes too much work matches no client."""
        try:
            return all(
                bool(value := getattr(self, name)) and expression.matches(value)
                for name, expression in selectors.items()
            )
        except InvalidRegex:
            return False


class Subscription(NamedTuple):
    metrics: frozenset[str]
    interval_ms: int
    selectors: Mapping[str, Regex]

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> Subscription | None:
        """None if an expression cannot be used; one that was stored by other software may be of another syntax."""
        values = {
            name: definition.parse(configs[name]) if name in configs else definition.default
            for name, definition in CLIENT_METRICS_SETTINGS.items()
        }
        try:
            selectors = dict(parse_selector(each) for each in values["match"])
        except KafkaError:
            return None
        return cls(frozenset(values["metrics"]), values["interval.ms"], selectors)


class Wanted(NamedTuple):
    """What one client is asked for: prefixes of names, `*` for all metrics, nothing for none."""

    metrics: tuple[str, ...]
    interval_ms: int

    @classmethod
    def of(cls, client: Client, subscriptions: Iterable[Subscription]) -> Wanted:
        metrics: set[str] = set()
        interval_ms = INTERVAL_MS_DEFAULT
        for subscription in subscriptions:
            if client.selected_by(subscription.selectors):
                metrics |= subscription.metrics
                interval_ms = min(interval_ms, subscription.interval_ms)
        return cls((ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)), interval_ms)
