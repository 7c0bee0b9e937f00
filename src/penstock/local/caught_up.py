"""Whether a node has caught up with its cluster, so that the next one may be restarted.

A broker has when it is in the in-sync replicas of all partitions that it has a replica of, by its own metadata. A
controller has when its copy of the metadata log reaches the high watermark, as a broker hears from the quorum's leader.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin
from penstock.client.wire.connection import Connection
from penstock.client.wire.login import login_from, tls_from
from penstock.local.node import LocalNode
from penstock.model.errors import KafkaError
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse

ANSWER_S = 5.0


class CaughtUp:
    def __init__(self, nodes: Sequence[LocalNode]) -> None:
        self._brokers = [node for node in nodes if node.is_broker]

    def __call__(self, node: LocalNode) -> bool:
        try:
            return self._broker(node) if node.is_broker else self._controller(node)
        except (ClientError, KafkaError):
            return False

    def _broker(self, node: LocalNode) -> bool:
        login, tls = login_from(node.client_options), tls_from(node.client_options)
        with Connection(*node.checked_at, timeout=ANSWER_S, login=login, tls=tls) as connection:
            metadata = connection.request(MetadataRequest(topics=None), MetadataResponse)
        return node.node_id in {broker.node_id for broker in metadata.brokers} and all(
            node.node_id in partition.isr_nodes
            for topic in metadata.topics
            for partition in topic.partitions
            if node.node_id in partition.replica_nodes
        )

    def _controller(self, node: LocalNode) -> bool:
        running = next((broker for broker in self._brokers if broker.running), None)
        if running is None or not node.is_ready():
            return False
        host, port = running.checked_at
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        with Admin(address, timeout=ANSWER_S, options=running.client_options) as admin:
            quorum = admin.cluster.quorum()
        if quorum is None:
            return True  # the cluster does not report it
        reached = {voter.node_id: voter.log_end_offset for voter in (*quorum.voters, *quorum.observers)}
        return reached.get(node.node_id, -1) >= quorum.high_watermark
