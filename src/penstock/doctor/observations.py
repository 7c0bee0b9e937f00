"""Observations of a cluster from one place, without judgement.

Times are milliseconds. A value that could not be observed is None, or missing, and named in `unobserved`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.pipelines.operate.reports import PipelineReport
    from penstock.spark.progress.query_progress import QueryProgress

Failure = Literal["name", "refused", "silent", "not-kafka", "controller", "tls", "login"]

# States of groups, for both protocols.
REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


@dataclass(frozen=True, slots=True)
class Reached:
    """An attempt to contact a broker at an address."""

    address: str
    host: str
    failure: Failure | None = None  # None: a broker answered
    error: str = ""
    cluster_id: str | None = None
    is_loopback: bool = False  # the address is this machine's

    @property
    def ok(self) -> bool:
        return self.failure is None


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    broker_id: int
    reached: Reached | None  # at the address that clients get; None for a fenced broker, which clients do not get
    fenced: bool = False
    is_somebody_else: bool = False  # another broker of the same cluster answers there


@dataclass(frozen=True, slots=True)
class ClockSeen:
    node_id: int
    is_controller: bool
    offset_ms: float  # how far its clock is ahead of ours
    uncertainty_ms: float


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    where: TopicPartition
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int | None = None


@dataclass(frozen=True, slots=True)
class QuorumSeen:
    leader_id: int
    lags: tuple[tuple[int, int], ...]  # of the voters: the number of metadata records that they lack


@dataclass(frozen=True, slots=True)
class DirectorySeen:
    broker_id: int
    path: str
    total_bytes: int | None
    usable_bytes: int | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSample:
    state: str
    generation: int | None  # or epoch; None if it is not reported
    members: frozenset[str]


@dataclass(frozen=True, slots=True)
class ProgressSeen:
    """A group's progress in one partition, at the beginning and at the end of the observation."""

    where: TopicPartition
    committed: int
    committed_before: int
    end: int
    has_member: bool

    @property
    def lag(self) -> int:
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class GroupSeen:
    group_id: str
    samples: tuple[GroupSample, ...]
    clients: str = ""  # a description of its members
    progress: tuple[ProgressSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareProgressSeen:
    """A share group's progress in one partition, at the beginning and at the end of the observation."""

    where: TopicPartition
    start: int
    start_before: int
    lag: int
    lag_before: int
    has_member: bool


@dataclass(frozen=True, slots=True)
class ShareGroupSeen:
    """Only metrics tell the numbers of records; they are None without."""

    group_id: str
    members: int
    clients: str = ""  # a description of its members
    progress: tuple[ShareProgressSeen, ...] = ()
    accepted: int | None = None  # during the observation
    acquired: int | None = None
    last_attempts: int | None = None
    discarded: int | None = None  # at the delivery limit, since the brokers started


@dataclass(frozen=True, slots=True)
class TransactionSeen:
    transactional_id: str | None
    producer_id: int
    age_ms: int
    where: TopicPartition | None = None  # of a hanging transaction
    start_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Observations:
    bootstrap: tuple[Reached, ...]
    cluster_id: str | None = None
    brokers: tuple[BrokerSeen, ...] = ()
    clocks: tuple[ClockSeen, ...] = ()
    partitions: tuple[PartitionSeen, ...] = ()
    quorum: QuorumSeen | None = None
    directories: tuple[DirectorySeen, ...] = ()
    groups: tuple[GroupSeen, ...] = ()
    share_groups: tuple[ShareGroupSeen, ...] = ()
    watched_ms: int = 0
    hanging: tuple[TransactionSeen, ...] = ()
    open_long: tuple[TransactionSeen, ...] = ()
    pipelines: tuple[PipelineReport, ...] = ()
    spark_queries: tuple[QueryProgress, ...] = ()  # of pipelines, and of other programs
    now_ms: int = 0  # when pipelines were asked for
    unobserved: tuple[str, ...] = ()
