"""Brokers that were fenced recently, which Metadata responses still list.

A broker that dies is fenced within a fraction of a second here, and its partitions get new leaders at once. Clients
learn both from one Metadata response, and librdkafka (2.10 and later) does not handle that well: it removes the dead
broker while it moves the broker's partitions to their new leaders, loses the new leaders, and asks again a second
later. Kafka lists a dead broker for the rest of its session. So does Penstock: for the length of a session, the broker
is listed but leads nothing.

A broker that shuts down also lists itself until it closes its connections. Without that, librdkafka would remove the
connection that it used for the request. If that was its last connection, it would lose everything it knows about the
cluster, and calls that wait for a group coordinator (`send_offsets_to_transaction`) would wait forever.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage


class DepartedBrokers:
    def __init__(self, now: Callable[[], float], listed_s: float) -> None:
        self._now = now
        self._listed_s = listed_s
        self._until: dict[int, float] = {}

    def committed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Record the brokers that were unfenced before this change and are fenced after it."""
        for broker_id in delta.changed_brokers:
            before, after = delta.image.brokers.get(broker_id), image.brokers.get(broker_id)
            if after is None or not after.fenced:
                self._until.pop(broker_id, None)
            elif before is not None and not before.fenced:
                self._until[broker_id] = self._now() + self._listed_s

    def lately(self, broker_id: int) -> bool:
        until = self._until.get(broker_id)
        return until is not None and self._now() < until
