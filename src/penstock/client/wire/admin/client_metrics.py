"""Subscriptions to the metrics of clients (KIP-714): which clients send which metrics to the brokers, and how often."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.client.errors import raise_for
from penstock.client.wire.admin.configs import Configs, ResourceType
from penstock.client.wire.cluster import Cluster
from penstock.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_SETTINGS = ("interval.ms", "match", "metrics")


@dataclass(frozen=True, slots=True)
class ClientMetricsSubscription:
    name: str
    metrics: tuple[str, ...]  # prefixes of names; "*" for all
    interval_ms: int
    match: Mapping[str, str]  # regular expressions by selector; without any, every client


class ClientMetrics:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._configs = Configs(cluster)

    def list(self) -> list[ClientMetricsSubscription]:
        # Version 1 names the types; version 0 knows only this one.
        request = ListConfigResourcesRequest(resource_types=[ResourceType.CLIENT_METRICS])
        response = self._cluster.request(request, ListConfigResourcesResponse)
        raise_for(response.error_code, None, "cannot list the subscriptions")
        return [self._describe(name) for name in sorted(each.resource_name for each in response.config_resources)]

    def set(
        self,
        name: str,
        metrics: Iterable[str] = (),
        *,
        interval_ms: int | None = None,
        match: Mapping[str, str] | None = None,
    ) -> None:
        """Create or change a subscription. What is not given stays as it is, or is Kafka's default."""
        values = {
            "metrics": ",".join(metrics),
            "interval.ms": "" if interval_ms is None else str(interval_ms),
            "match": ",".join(f"{selector}={expression}" for selector, expression in (match or {}).items()),
        }
        self._configs.alter(ResourceType.CLIENT_METRICS, name, {key: text for key, text in values.items() if text})

    def remove(self, name: str) -> None:
        self._configs.alter(ResourceType.CLIENT_METRICS, name, delete=_SETTINGS)

    def _describe(self, name: str) -> ClientMetricsSubscription:
        values = {each.name: each.value or "" for each in self._configs.describe(ResourceType.CLIENT_METRICS, name)}
        pairs = (each.partition("=") for each in _items(values.get("match", "")))
        return ClientMetricsSubscription(
            name,
            tuple(_items(values.get("metrics", ""))),
            int(values.get("interval.ms") or 0),
            {selector.strip(): expression.strip() for selector, _, expression in pairs},
        )


def _items(text: str) -> Iterable[str]:
    return (item.strip() for item in text.split(",") if item.strip())
