"""Rebalances: partitions assigned to and revoked from a group member.

librdkafka reports them during reads and on close.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import TopicPartition as Place

from penstock.client.librdkafka.handed_out import Reading, from_places
from penstock.model.ids import TopicPartition

Hook = Callable[[list[TopicPartition]], None]


class Rebalances:
    def __init__(
        self,
        reading: Reading,
        hooks: tuple[Hook | None, Hook | None, Hook | None],
        before_revoked: Callable[[], None],
        *,
        incremental: bool,
    ) -> None:
        """`hooks` of the user: on_assigned, on_revoked, on_lost. `before_revoked` stores the processed positions."""
        self._reading = reading
        self._on_assigned, self._on_revoked, self._on_lost = hooks
        self._before_revoked = before_revoked
        self._incremental = incremental
        self.let_in = True
        """Whether the group has assigned partitions since the last subscription."""
        self.assigning: dict[TopicPartition, int] | None = None
        """While `on_assigned` runs: the offsets that it has sought."""

    def expected(self) -> dict[str, Callable[[Any, list[Place]], None]]:
        """Return the callbacks for librdkafka, for a new subscription."""
        self.let_in = False
        return {"on_assign": self._assign, "on_revoke": self._revoke, "on_lost": self._lose}

    def _assign(self, client: Any, places: list[Place]) -> None:
        self.let_in = True
        if self._on_assigned is None:
            return
        self.assigning = {}
        try:
            self._on_assigned(from_places(places))
        finally:
            sought, self.assigning = self.assigning, None
            for each in places:
                each.offset = sought.get(TopicPartition(each.topic, each.partition), each.offset)
            if sought:
                (client.incremental_assign if self._incremental else client.assign)(places)

    def _revoke(self, client: Any, places: list[Place]) -> None:
        self._before_revoked()
        if self._on_revoked is not None:
            self._on_revoked(from_places(places))
        self._reading.forget(set(from_places(places)))

    def _lose(self, client: Any, places: list[Place]) -> None:
        self._reading.forget(set(from_places(places)))
        if self._on_lost is not None:
            self._on_lost(from_places(places))
