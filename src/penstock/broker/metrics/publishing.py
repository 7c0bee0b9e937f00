"""The metrics of a node: what it counts, and the endpoint that publishes them.

The endpoint opens before a broker serves clients; until then it has the metrics that every node has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.broker.authentication.gate import AuthenticationCounts
from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.broker.metrics.broker_metrics import BrokerSources
from penstock.broker.metrics.collecting import collect
from penstock.broker.metrics.coordinator_metrics import CoordinatorSources
from penstock.broker.metrics.counters import Counters
from penstock.broker.metrics.endpoint import MetricsEndpoint
from penstock.broker.metrics.node_metrics import NodeSources
from penstock.broker.metrics.protection import Protection
from penstock.broker.metrics.share_metrics import ShareSources
from penstock.broker.net.listeners import Listeners
from penstock.broker.partitions.audit_topic import AuditTopic
from penstock.io.environment import Environment
from penstock.settings.live import LiveSettings

SourcesOfBroker = tuple[BrokerSources, CoordinatorSources, ShareSources]


class NodeMetrics:
    def __init__(
        self,
        settings: LiveSettings,
        environment: Environment,
        counters: Counters,
        listeners: Listeners,
        authentications: Mapping[str, AuthenticationCounts],
        *,
        quorum: Callable[[], MetadataQuorum],
        audit_topic: Callable[[], AuditTopic | None],
        broker: Callable[[], SourcesOfBroker | None],
    ) -> None:
        """`broker`: returns None while the node does not serve clients."""
        static = settings.static
        self.counters = counters
        self.protection = Protection(static, static.properties)
        self._settings = settings
        self._clock = environment.clock
        self._listeners = listeners
        self.authentications = authentications
        self._quorum = quorum
        self._audit_topic = audit_topic
        self._broker = broker
        self._endpoint = MetricsEndpoint(
            static.metrics_endpoint, environment.loop, counters.loop_lag, self._collect, self.protection
        )

    async def open(self) -> None:
        await self._endpoint.open()

    async def close(self) -> None:
        await self._endpoint.close()

    async def _collect(self) -> bytes:
        node = NodeSources(
            clock=self._clock,
            settings=self._settings,
            counters=self.counters,
            listeners=self._listeners,
            authentications=self.authentications,
            quorum=self._quorum(),
            throttling=self._listeners.throttling,
            audit_topic=self._audit_topic(),
        )
        return await collect(node, *(self._broker() or ()))
