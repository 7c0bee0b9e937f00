"""Selects the replica that a consumer should read from: one in its own rack, if there is one (KIP-392)."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.metadata.cluster import BrokerRegistration
from penstock.replication.partition import LeaderState


def closest_replica(
    leader: LeaderState, offset: int, rack: str, brokers: Mapping[int, BrokerRegistration]
) -> int | None:
    """The in-sync follower in the rack that has the offset and is furthest ahead.

    None if the consumer should stay with the leader: the leader is in the rack, or no such follower exists. A follower
    that is not in sync may lag forever, and so would the consumers that read from it.
    """
    here = brokers.get(leader.broker_id)
    if here is not None and here.rack == rack:
        return None
    candidates = [
        (follower.log_end, -broker_id)
        for broker_id, follower in leader.followers.items()
        if broker_id in leader.isr
        and follower.log_start <= offset <= follower.log_end
        and (broker := brokers.get(broker_id)) is not None
        and broker.rack == rack
        and not broker.fenced
    ]
    return -max(candidates)[1] if candidates else None
