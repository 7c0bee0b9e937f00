"""The data of `penstock top`: looks at a cluster, and the difference between two looks.

A `Look` is what was read at one moment, over the wire and, where brokers have them, from their metrics. `compare` is
pure: it takes two looks and returns a `View` with rates. Without metrics, only rates computed from offsets are known;
the others are None.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.wire.admin import Admin
    from penstock.doctor.metrics_pages import Page

GROUPS_MAX = 100
SHARE = "share"
BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
REQUESTS = "kafka_network_requestmetrics_totaltime_seconds_count"


@dataclass(frozen=True, slots=True)
class BrokerLook:
    broker_id: int
    address: str
    fenced: bool
    leads: int
    in_sync: int
    replicas: int
    bytes_in: float | None = None
    bytes_out: float | None = None
    requests: float | None = None
    connections: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TopicLook:
    partitions: int
    replicas: int
    under_replicated: int
    messages: int  # the sum of its end offsets
    bytes_in: float | None = None
    bytes_out: float | None = None
    size: float | None = None


@dataclass(frozen=True, slots=True)
class GroupLook:
    state: str
    members: int
    lag: int
    committed: int  # the sum over its partitions
    type: str = ""  # classic, consumer, streams, share


@dataclass(frozen=True, slots=True)
class Look:
    at: float
    cluster_id: str | None = None
    controller: str = ""
    brokers: Mapping[int, BrokerLook] = field(default_factory=dict)
    topics: Mapping[str, TopicLook] = field(default_factory=dict)
    groups: Mapping[str, GroupLook] = field(default_factory=dict)
    under_replicated: int = 0  # partitions, those of internal topics too
    offline: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerRow:
    look: BrokerLook
    bytes_in: float | None
    bytes_out: float | None
    requests: float | None

    @property
    def lacks(self) -> int:
        """Replicas of this broker that are not in sync."""
        return self.look.replicas - self.look.in_sync


@dataclass(frozen=True, slots=True)
class TopicRow:
    name: str
    look: TopicLook
    messages: float | None
    bytes_in: float | None
    bytes_out: float | None


@dataclass(frozen=True, slots=True)
class GroupRow:
    name: str
    look: GroupLook
    read: float | None
    """Records per second, computed from commits."""


@dataclass(frozen=True, slots=True)
class View:
    look: Look
    brokers: tuple[BrokerRow, ...]
    topics: tuple[TopicRow, ...]  # the busiest first
    groups: tuple[GroupRow, ...]  # the furthest behind first


def compare(before: Look | None, now: Look) -> View:
    """Rates are None in the first look, and for items that are new or whose counters were reset."""
    seconds = 0.0 if before is None else now.at - before.at

    def rate(earlier: float | None, later: float | None) -> float | None:
        if earlier is None or later is None or seconds <= 0 or later < earlier:
            return None
        return (later - earlier) / seconds

    brokers = []
    for broker_id, broker in sorted(now.brokers.items()):
        first = None if before is None else before.brokers.get(broker_id)
        brokers.append(
            BrokerRow(
                broker,
                rate(first.bytes_in if first else None, broker.bytes_in),
                rate(first.bytes_out if first else None, broker.bytes_out),
                rate(first.requests if first else None, broker.requests),
            )
        )
    topics = []
    for name, topic in now.topics.items():
        known = None if before is None else before.topics.get(name)
        topics.append(
            TopicRow(
                name,
                topic,
                rate(known.messages if known else None, topic.messages),
                rate(known.bytes_in if known else None, topic.bytes_in),
                rate(known.bytes_out if known else None, topic.bytes_out),
            )
        )
    groups = []
    for name, group in now.groups.items():
        former = None if before is None else before.groups.get(name)
        groups.append(GroupRow(name, group, rate(former.committed if former else None, group.committed)))
    topics.sort(key=lambda row: (-(row.bytes_in or 0), -(row.messages or 0), row.name))
    groups.sort(key=lambda row: (-row.look.lag, row.name))
    return View(now, tuple(brokers), tuple(topics), tuple(groups))


class Looker:
    """Reads a cluster repeatedly. It looks up the metrics addresses once, and again when brokers appear."""

    def __init__(self, admin: Admin, *, internal: bool, properties: Mapping[str, str] | None = None) -> None:
        """`properties`: the client's, for metrics endpoints that ask for a password."""
        self._admin = admin
        self._properties = properties
        self._internal = internal
        self._urls: dict[int, str] = {}
        self._known: frozenset[int] = frozenset()

    def look(self) -> Look:
        from penstock.client.errors import ClientError
        from penstock.doctor.metrics_pages import find_pages, read_pages
        from penstock.model.errors import KafkaError

        cluster = self._admin.cluster.describe()
        hosts = {broker.broker_id: broker.host for broker in cluster.brokers if not broker.fenced}
        if frozenset(hosts) != self._known:
            self._known = frozenset(hosts)
            self._urls = find_pages(self._admin, hosts)
        pages = read_pages(self._urls, 2.0, self._properties)
        partitions = [each for topic in self._admin.topics.list(internal=True) for each in topic.partitions]
        notes = []
        without = sorted(set(hosts) - set(pages))
        if without:
            notes.append(f"no metrics from broker {', '.join(map(str, without))}")
        brokers = {}
        for broker in cluster.brokers:
            page = pages.get(broker.broker_id)
            address = f"[{broker.host}]:{broker.port}" if ":" in broker.host else f"{broker.host}:{broker.port}"
            brokers[broker.broker_id] = BrokerLook(
                broker.broker_id,
                address if broker.port > 0 else "-",
                broker.fenced,
                sum(each.leader == broker.broker_id for each in partitions),
                sum(broker.broker_id in each.isr for each in partitions),
                sum(broker.broker_id in each.replicas for each in partitions),
                *_numbers(page),
            )
        groups: dict[str, GroupLook] = {}
        topics: dict[str, TopicLook] = {}
        try:
            topics = self._topics(pages if not without else {})
            groups = self._groups()
        except (ClientError, KafkaError) as error:  # something is moving; the next look may succeed
            notes.append(" ".join(str(error).split()))
        quorum = cluster.quorum
        controller = "" if quorum is None else f"controller {quorum.leader_id}, epoch {quorum.leader_epoch}"
        return Look(
            time.monotonic(),
            cluster.cluster_id,
            controller,
            brokers,
            topics,
            groups,
            len(cluster.under_replicated),
            len(cluster.offline),
            tuple(notes),
        )

    def _topics(self, pages: Mapping[int, Page]) -> dict[str, TopicLook]:
        from penstock.model.ids import TopicPartition

        listed = self._admin.topics.list(internal=self._internal)
        led = [
            TopicPartition(topic.name, each.partition)
            for topic in listed
            for each in topic.partitions
            if each.leader is not None
        ]
        ends: dict[str, int] = {}
        for partition, end in (self._admin.topics.offsets(led) if led else {}).items():
            ends[partition.topic] = ends.get(partition.topic, 0) + end
        found = {}
        for topic in listed:
            numbers: list[float | None] = [None, None, None]
            if pages:
                names = (BYTES_IN, BYTES_OUT, "kafka_log_log_size")
                numbers = [sum(page.total(name, topic=topic.name) for page in pages.values()) for name in names]
            found[topic.name] = TopicLook(
                len(topic.partitions),
                max((len(each.replicas) for each in topic.partitions), default=0),
                sum(each.under_replicated for each in topic.partitions),
                ends.get(topic.name, 0),
                *numbers,
            )
        return found

    def _groups(self) -> dict[str, GroupLook]:
        listed = self._admin.groups.list()[:GROUPS_MAX]
        names = [group.group_id for group in listed if group.type != SHARE]
        found = {}
        for group in self._admin.groups.describe(names) if names else ():
            lags = self._admin.groups.lag(group.group_id)
            found[group.group_id] = GroupLook(
                group.state,
                len(group.members),
                sum(each.lag or 0 for each in lags),
                sum(each.committed or 0 for each in lags),
                group.type,
            )
        shared = [group.group_id for group in listed if group.type == SHARE]
        for share in self._admin.share_groups.describe(shared) if shared else ():
            offsets = self._admin.share_groups.offsets(share.group_id)
            found[share.group_id] = GroupLook(
                share.state,
                len(share.members),
                sum(each.lag or 0 for each in offsets),
                sum(each.start or 0 for each in offsets),
                SHARE,
            )
        return found


def _numbers(page: Page | None) -> tuple[float | None, float | None, float | None, int | None, int | None]:
    if page is None:
        return None, None, None, None, None
    return (
        page.total(BYTES_IN),
        page.total(BYTES_OUT),
        page.total(REQUESTS),
        int(page.total("kafka_server_socketservermetrics_connection_count")),
        int(page.total("process_resident_memory_bytes")),
    )
