"""What can be seen of a cluster from one place. Nothing in it is judged yet.

Times are milliseconds. What could not be asked is None, or missing, and named in `unobserved`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.model.ids import TopicPartition

Failure = Literal["name", "refused", "silent", "not-kafka", "controller"]

# States of groups, of both protocols.
REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


@dataclass(frozen=True, slots=True)
class Reached:
    """An attempt to talk to whoever is at an address."""

    address: str
    host: str
    failure: Failure | None = None  # None: a broker answered
    error: str = ""
    cluster_id: str | None = None
    is_loopback: bool = False  # the address leads to the machine we are on

    @property
    def ok(self) -> bool:
        return self.failure is None


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    broker_id: int
    reached: Reached | None  # at the address that clients are told; None for a fenced one, which they are not told of
    fenced: bool = False
    is_somebody_else: bool = False  # a broker of the same cluster answers there, but another one


@dataclass(frozen=True, slots=True)
class ClockSeen:
    node_id: int
    is_controller: bool
    offset_ms: float  # of its clock before ours
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
    lags: tuple[tuple[int, int], ...]  # of the voters: records of metadata that they lack


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
    generation: int | None  # or epoch; None where nobody tells
    members: frozenset[str]


@dataclass(frozen=True, slots=True)
class ProgressSeen:
    """A group in one partition, at the beginning and at the end of the time we watched."""

    where: TopicPartition
    committed: int
    committed_before: int
    end: int
    end_before: int
    has_member: bool

    @property
    def lag(self) -> int:
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class GroupSeen:
    group_id: str
    samples: tuple[GroupSample, ...]
    clients: str = ""  # who its members are, in words
    progress: tuple[ProgressSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class TransactionSeen:
    transactional_id: str | None
    producer_id: int
    age_ms: int
    where: TopicPartition | None = None  # of one that nobody will end
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
    watched_ms: int = 0
    hanging: tuple[TransactionSeen, ...] = ()
    open_long: tuple[TransactionSeen, ...] = ()
    unobserved: tuple[str, ...] = ()
