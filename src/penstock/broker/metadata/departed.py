"""Brokers that were fenced a moment ago, which Metadata still lists.

A broker that dies is fenced in a fraction of a second here, and its partitions have other leaders at once. Clients
learn of both in one Metadata response, and librdkafka (2.10 and later) then stumbles: it takes the broker that is gone
apart while it moves the broker's partitions to their new leaders, loses their new place, and asks again a second
later. In Kafka a dead broker stays listed for the whole of its session. So it does here: listed, leading nothing.

A broker that is about to leave lists itself as well, until it closes its connections. Were it to answer without
itself, librdkafka would take apart the connection it asked through, and with it, should it have no other, all it knows
of the cluster; what then waits for a group's coordinator (`send_offsets_to_transaction`) waits for ever.
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
        """Note who was unfenced before this change and is fenced after it."""
        for broker_id in delta.changed_brokers:
            before, after = delta.image.brokers.get(broker_id), image.brokers.get(broker_id)
            if after is None or not after.fenced:
                self._until.pop(broker_id, None)
            elif before is not None and not before.fenced:
                self._until[broker_id] = self._now() + self._listed_s

    def lately(self, broker_id: int) -> bool:
        until = self._until.get(broker_id)
        return until is not None and self._now() < until
