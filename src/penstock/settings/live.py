"""The current settings of a node: its static settings with the cluster's dynamic settings applied."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.settings.explain import BrokerLayers
from penstock.settings.node import NodeSettings


class LiveSettings:
    """The current settings. Components read a setting that may change from `now` each time they need it."""

    __slots__ = ("layers", "now", "static")

    def __init__(self, static: NodeSettings) -> None:
        self.static = static
        self.now = static
        self.layers = BrokerLayers(static.properties, {}, {})

    def set_dynamic(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Apply dynamic settings: `cluster` for all brokers, `broker` for this one."""
        self.layers = BrokerLayers(self.static.properties, cluster, broker)
        self.now = self.static.with_dynamic(cluster, broker)
