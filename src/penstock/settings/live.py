"""The settings of a node as they are now: those it was started with, and over them what the cluster has set."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.settings.explain import BrokerLayers
from penstock.settings.node import NodeSettings


class LiveSettings:
    """Whoever needs a setting that may change asks for it in `now`, each time."""

    __slots__ = ("layers", "now", "static")

    def __init__(self, static: NodeSettings) -> None:
        self.static = static
        self.now = static
        self.layers = BrokerLayers(static.properties, {}, {})

    def set_dynamic(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """`cluster`: for all brokers; `broker`: for this one."""
        self.layers = BrokerLayers(self.static.properties, cluster, broker)
        self.now = self.static.with_dynamic(cluster, broker)
