"""The state of the overview: brokers, what is wrong, traffic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.console.views.sample import Sample, Seen, Traffic, end_totals
from penstock.model.ids import TopicPartition

NAMED_MAX = 20


@dataclass(frozen=True, slots=True)
class BrokerRow:
    broker_id: int
    address: str
    rack: str | None
    is_up: bool
    is_controller: bool
    leads: int
    in_sync: int
    replicas: int
    bytes_in: float | None
    bytes_out: float | None
    requests: float | None
    connections: int | None
    memory_bytes: int | None
    disk_used: int | None
    disk_total: int | None

    @property
    def lacks(self) -> int:
        return self.replicas - self.in_sync


@dataclass(frozen=True, slots=True)
class ControllerRow:
    node_id: int
    is_leader: bool
    lag: int


@dataclass(frozen=True, slots=True)
class Overview:
    cluster_id: str
    brokers: tuple[BrokerRow, ...]
    controllers: tuple[ControllerRow, ...]
    epoch: int | None
    topics: int
    internal_topics: int
    partitions: int
    groups: int
    largest_lag: int
    under_replicated: tuple[TopicPartition, ...]
    offline: tuple[TopicPartition, ...]
    records: float | None
    """Per second, written to all topics that are not internal."""
    bytes_in: float | None
    bytes_out: float | None
    size: int
    notes: tuple[str, ...]

    @property
    def up(self) -> int:
        return sum(broker.is_up for broker in self.brokers)

    @property
    def is_healthy(self) -> bool:
        return self.up == len(self.brokers) and not self.under_replicated and not self.offline


def overview(seen: Seen) -> Overview | None:
    """None until the cluster has been observed once."""
    now = seen.now
    if now is None:
        return None
    brokers = _brokers(seen, now)
    quorum = now.cluster.quorum
    controllers = (
        ()
        if quorum is None
        else tuple(
            ControllerRow(
                voter.node_id, voter.node_id == quorum.leader_id, max(0, quorum.high_watermark - voter.log_end_offset)
            )
            for voter in sorted(quorum.voters, key=lambda voter: voter.node_id)
        )
    )
    internal = sum(topic.internal for topic in now.topics.values())
    return Overview(
        cluster_id=now.cluster.cluster_id or "",
        brokers=brokers,
        controllers=controllers,
        epoch=None if quorum is None else quorum.leader_epoch,
        topics=len(now.topics) - internal,
        internal_topics=internal,
        partitions=sum(len(topic.partitions) for topic in now.topics.values()),
        groups=len(now.groups),
        largest_lag=max((group.lag for group in now.groups.values()), default=0),
        under_replicated=now.cluster.under_replicated,
        offline=now.cluster.offline,
        records=records_rate(seen),
        bytes_in=_total([broker.bytes_in for broker in brokers]),
        bytes_out=_total([broker.bytes_out for broker in brokers]),
        size=sum(sum(by_broker.values()) for by_broker in now.sizes.values()),
        notes=now.notes,
    )


def records_rate(seen: Seen) -> float | None:
    """Records a second, written to all topics that are not internal. Topics that are new or gone do not count."""
    if seen.now is None or seen.before is None:
        return None
    earlier, later = end_totals(seen.before), end_totals(seen.now)
    written = [
        max(0, later[name] - earlier[name])
        for name, topic in seen.now.topics.items()
        if not topic.internal and name in earlier and name in later
    ]
    return seen.rate(0, sum(written))


def _brokers(seen: Seen, now: Sample) -> tuple[BrokerRow, ...]:
    leads: dict[int, int] = {}
    in_sync: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for topic in now.topics.values():
        for partition in topic.partitions:
            if partition.leader is not None:
                leads[partition.leader] = leads.get(partition.leader, 0) + 1
            for broker_id in partition.isr:
                in_sync[broker_id] = in_sync.get(broker_id, 0) + 1
            for broker_id in partition.replicas:
                replicas[broker_id] = replicas.get(broker_id, 0) + 1
    controller = now.cluster.quorum.leader_id if now.cluster.quorum is not None else now.cluster.controller_id
    rows = []
    known = {broker.broker_id for broker in now.cluster.brokers}
    for broker in now.cluster.brokers:
        traffic = now.traffic.get(broker.broker_id)
        earlier = None if seen.before is None else seen.before.traffic.get(broker.broker_id)
        disks = [
            each for each in now.directories if each.broker_id == broker.broker_id and each.total_bytes is not None
        ]
        host = f"[{broker.host}]" if ":" in broker.host else broker.host
        rows.append(
            BrokerRow(
                broker_id=broker.broker_id,
                address=f"{host}:{broker.port}" if broker.port > 0 else "",
                rack=broker.rack,
                is_up=not broker.fenced,
                is_controller=broker.broker_id == controller,
                leads=leads.get(broker.broker_id, 0),
                in_sync=in_sync.get(broker.broker_id, 0),
                replicas=replicas.get(broker.broker_id, 0),
                bytes_in=_rate(seen, earlier, traffic, lambda each: each.bytes_in),
                bytes_out=_rate(seen, earlier, traffic, lambda each: each.bytes_out),
                requests=_rate(seen, earlier, traffic, lambda each: each.requests),
                connections=None if traffic is None else traffic.connections,
                memory_bytes=None if traffic is None else traffic.memory_bytes,
                disk_used=sum((each.total_bytes or 0) - (each.usable_bytes or 0) for each in disks) if disks else None,
                disk_total=sum(each.total_bytes or 0 for each in disks) if disks else None,
            )
        )
    # A broker that is gone is not described any more, but replicas still name it.
    rows += [_gone(broker_id, replicas[broker_id]) for broker_id in sorted(replicas.keys() - known)]
    return tuple(rows)


def _rate(
    seen: Seen, earlier: Traffic | None, later: Traffic | None, counter: Callable[[Traffic], float]
) -> float | None:
    return None if earlier is None or later is None else seen.rate(counter(earlier), counter(later))


def _gone(broker_id: int, replicas: int) -> BrokerRow:
    return BrokerRow(
        broker_id=broker_id,
        address="",
        rack=None,
        is_up=False,
        is_controller=False,
        leads=0,
        in_sync=0,
        replicas=replicas,
        bytes_in=None,
        bytes_out=None,
        requests=None,
        connections=None,
        memory_bytes=None,
        disk_used=None,
        disk_total=None,
    )


def _total(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
