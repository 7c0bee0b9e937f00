"""The settings of a topic that note a move: which replicas a partition is copied from, and which it is copied to.

They are those of Kafka's own tool, so that its brokers and ours throttle exactly these replicas, and any tool shows
them. `leader...` has the replicas before the move, `follower...` the new ones, each as `PARTITION:BROKER,...`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"

Marks = dict[int, tuple[int, ...]]


def parse(text: str | None) -> Marks:
    """By partition; what is not PARTITION:BROKER (such as `*`) is not a note of ours."""
    marks: Marks = {}
    for entry in (text or "").split(","):
        partition, _, broker = entry.strip().partition(":")
        if partition.isdecimal() and broker.isdecimal():
            marks[int(partition)] = (*marks.get(int(partition), ()), int(broker))
    return marks


def text_of(marks: Mapping[int, Iterable[int]]) -> str:
    return ",".join(f"{partition}:{broker}" for partition in sorted(marks) for broker in marks[partition])
