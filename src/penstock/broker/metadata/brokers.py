"""The brokers of the cluster, from the committed metadata: their registration epochs and how to connect to them."""

from __future__ import annotations

from penstock.broker.net.peers import Peer, Peers
from penstock.metadata.image import Metadata


class Brokers:
    def __init__(self, metadata: Metadata, peers: Peers, listener: str) -> None:
        """`listener`: the listener that nodes use among themselves."""
        self._metadata = metadata
        self._peers = peers
        self._listener = listener

    def registration_epoch(self, broker_id: int) -> int | None:
        broker = self._metadata.image.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def active_epoch(self, broker_id: int) -> int | None:
        """Like `registration_epoch`, for a broker that is not fenced."""
        broker = self._metadata.image.brokers.get(broker_id)
        return broker.epoch if broker is not None and broker.active else None

    def peer(self, broker_id: int, channel: str) -> Peer | None:
        """None if the broker's address is unknown. Callers with the same channel share a connection."""
        broker = self._metadata.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoints.get(self._listener)
        return None if endpoint is None else self._peers.at(endpoint.host, endpoint.port, channel)
