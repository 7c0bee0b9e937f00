"""The cluster as it tells of itself: who leads, who is in sync, how far behind groups are."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin
from penstock.demo.streams import GROUPS
from penstock.model.errors import KafkaError

_EVERY_SECONDS = 0.5
_REQUEST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class BrokerView:
    leads: int
    in_sync: int
    replicas: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    brokers: dict[int, BrokerView] = field(default_factory=dict)
    partitions: int = 0
    without_leader: int = 0
    under_replicated: int = 0
    groups: dict[str, int] = field(default_factory=dict)
    """Their lag."""
    controller: int | None = None

    @property
    def is_whole(self) -> bool:
        return bool(self.partitions) and not self.without_leader and not self.under_replicated


class Observer:
    def __init__(self, bootstrap: str, broker_ids: list[int]) -> None:
        self._bootstrap = bootstrap
        self._broker_ids = broker_ids
        self.view = ClusterView()
        self.trouble = ""
        """Why the view is old, if it is."""
        self.stopping = threading.Event()

    def run(self) -> None:
        with Admin(self._bootstrap, timeout=_REQUEST_SECONDS) as admin:
            while not self.stopping.wait(_EVERY_SECONDS):
                try:
                    self.view = self._look(admin)
                    self.trouble = ""
                except (ClientError, KafkaError) as error:  # something is moving; the next look may find it
                    self.trouble = " ".join(str(error).split())

    def _look(self, admin: Admin) -> ClusterView:
        partitions = [each for topic in admin.topics.list(internal=True) for each in topic.partitions]
        known = {group.group_id for group in admin.groups.list()}
        quorum = admin.cluster.quorum()
        return ClusterView(
            {
                broker_id: BrokerView(
                    sum(each.leader == broker_id for each in partitions),
                    sum(broker_id in each.isr for each in partitions),
                    sum(broker_id in each.replicas for each in partitions),
                )
                for broker_id in self._broker_ids
            },
            len(partitions),
            sum(each.leader is None for each in partitions),
            sum(each.under_replicated for each in partitions),
            {group: sum(each.lag or 0 for each in admin.groups.lag(group)) for group in GROUPS if group in known},
            None if quorum is None else quorum.leader_id,
        )
