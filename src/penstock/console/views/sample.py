"""One look at a cluster, and what follows from two of them: rates. The sampler makes samples; every page reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.client.wire.admin.cluster import ClusterDescription
from penstock.client.wire.admin.group_lag import PartitionLag
from penstock.client.wire.admin.group_members import GroupDescription
from penstock.client.wire.admin.share_groups import SHARE
from penstock.client.wire.admin.topics import TopicDescription
from penstock.model.ids import TopicPartition
from penstock.pipelines.operate.reports import PipelineReport
from penstock.spark.progress.query_progress import QueryProgress


@dataclass(frozen=True, slots=True)
class Traffic:
    """Counters of a broker, since it started."""

    bytes_in: float
    bytes_out: float
    requests: float
    connections: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Directory:
    broker_id: int
    path: str
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None


@dataclass(frozen=True, slots=True)
class GroupSeen:
    description: GroupDescription
    lags: tuple[PartitionLag, ...]
    seconds: Mapping[TopicPartition, float] = field(default_factory=dict)
    """How long ago the next record to read was written, where it is known."""

    @property
    def lag(self) -> int:
        return sum(each.lag or 0 for each in self.lags)

    @property
    def seconds_behind(self) -> float | None:
        """Of the partition that is furthest behind; None if that of any partition is not known."""
        if any(each.lag and TopicPartition(each.topic, each.partition) not in self.seconds for each in self.lags):
            return None
        return max(self.seconds.values(), default=None)

    @property
    def is_share(self) -> bool:
        return self.description.type == SHARE

    @property
    def read(self) -> int:
        """How many records it has passed; members of a share group also finish records after its start offset."""
        if self.is_share:
            return sum(each.end - each.lag for each in self.lags if each.end is not None and each.lag is not None)
        return sum(each.committed or 0 for each in self.lags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    number: int
    at_ms: int
    cluster: ClusterDescription
    topics: Mapping[str, TopicDescription]
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    sizes: Mapping[TopicPartition, Mapping[int, int]] = field(default_factory=dict)
    """Bytes by broker."""
    directories: tuple[Directory, ...] = ()
    groups: Mapping[str, GroupSeen] = field(default_factory=dict)
    traffic: Mapping[int, Traffic] = field(default_factory=dict)
    pipelines: Mapping[str, PipelineReport] = field(default_factory=dict)
    earlier_pipelines: Mapping[str, PipelineReport] = field(default_factory=dict)
    """Their reports of some seconds ago."""
    queries: tuple[QueryProgress, ...] = ()
    """Spark queries that are not those of a pipeline."""
    notes: tuple[str, ...] = ()
    """What could not be observed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The last samples, and why there is no newer one."""

    now: Sample | None = None
    before: Sample | None = None
    problem: str | None = None
    """Why the cluster could not be observed just now; the samples are those from before."""

    @property
    def seconds(self) -> float:
        if self.now is None or self.before is None:
            return 0.0
        return (self.now.at_ms - self.before.at_ms) / 1000

    def rate(self, earlier: float | None, later: float | None) -> float | None:
        """Per second; None in the first sample, and for counters that began anew."""
        if earlier is None or later is None or self.seconds <= 0 or later < earlier:
            return None
        return (later - earlier) / self.seconds


@dataclass(frozen=True, slots=True)
class TopicTotals:
    records: int | None
    size: int | None
    end: int


def end_totals(sample: Sample) -> dict[str, int]:
    totals: dict[str, int] = {}
    for partition, end in sample.ends.items():
        totals[partition.topic] = totals.get(partition.topic, 0) + end
    return totals


def size_totals(sample: Sample) -> dict[str, int]:
    totals: dict[str, int] = {}
    for partition, by_broker in sample.sizes.items():
        totals[partition.topic] = totals.get(partition.topic, 0) + sum(by_broker.values())
    return totals


def record_totals(sample: Sample) -> dict[str, int]:
    """Offsets between start and end: of a compacted topic, more than there are records."""
    totals: dict[str, int] = {}
    for partition, end in sample.ends.items():
        start = sample.starts.get(partition)
        if start is not None:
            totals[partition.topic] = totals.get(partition.topic, 0) + max(0, end - start)
    return totals
