"""A cluster as the planners see it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.model.ids import TopicPartition


class Kind(StrEnum):
    PENSTOCK = "penstock"
    KAFKA = "kafka"
    UNKNOWN = "unknown"  # it does not answer


@dataclass(frozen=True, slots=True)
class Broker:
    broker_id: int
    host: str
    port: int
    kind: Kind
    rack: str | None = None
    fenced: bool = False
    # How fast replicas may be copied, if that is limited: the settings of the broker.
    throttle: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of one partition."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int | None
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    # The replicas before the move: noted in the topic's settings while the partition is copied. None if it is not.
    originals: tuple[int, ...] | None = None

    @property
    def factor(self) -> int:
        """The number of replicas that the partition has when it is not being moved."""
        return len(self.before)

    @property
    def before(self) -> tuple[int, ...]:
        """The replicas that the partition has without our move."""
        if self.originals is not None:
            return self.originals
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class Voter:
    node_id: int
    directory_id: bytes
    # By listener; empty for an observer, whose address the quorum does not list.
    endpoints: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    log_end_offset: int = -1


@dataclass(frozen=True, slots=True)
class Quorum:
    leader_id: int
    high_watermark: int
    voters: tuple[Voter, ...]
    observers: tuple[Voter, ...]


@dataclass(frozen=True, slots=True)
class ClusterState:
    cluster_id: str
    brokers: Mapping[int, Broker]
    partitions: Mapping[TopicPartition, Replicas]
    # Topics whose settings name throttled replicas that are not those of a move of ours.
    throttled_by_others: Collection[str] = ()

    def ids(self, kind: Kind) -> list[int]:
        return sorted(broker.broker_id for broker in self.brokers.values() if broker.kind is kind)
