"""KIP-392: which replica the leader sends a consumer to."""

from __future__ import annotations

from penstock.broker.partitions.replica_selector import closest_replica
from penstock.metadata.cluster import BrokerRegistration
from penstock.replication.partition import LeaderState

HERE, THERE = "here", "there"
BROKER_EPOCH = 7


def broker(broker_id: int, rack: str, *, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=broker_id,
        incarnation_id=bytes(16),
        epoch=BROKER_EPOCH,
        endpoints={},
        features={},
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=False,
        directories=(),
    )


BROKERS = {1: broker(1, THERE), 2: broker(2, HERE), 3: broker(3, HERE)}


def leader(isr: tuple[int, ...], ends: dict[int, int], starts: dict[int, int] | None = None) -> LeaderState:
    """Broker 1, whose log ends at 10, with followers that have fetched from `ends` on."""
    state = LeaderState(
        broker_id=1,
        leader_epoch=0,
        partition_epoch=0,
        replicas=(1, 2, 3),
        isr=isr,
        log_end=10,
        flushed=10,
        counts_flushed=False,
        high_watermark=0,
        min_insync_replicas=1,
        lag_max_ms=1000,
        registered=lambda broker_id: BROKER_EPOCH,
        now_ms=0,
    )
    for broker_id, end in ends.items():
        state.fetched(broker_id, end, (starts or {}).get(broker_id, 0), BROKER_EPOCH, 0)
    return state


def test_a_consumer_is_sent_to_the_replica_in_its_rack_that_is_furthest_ahead() -> None:
    assert closest_replica(leader((1, 2, 3), {2: 8, 3: 10}), 5, HERE, BROKERS) == 3
    assert closest_replica(leader((1, 2, 3), {2: 10, 3: 10}), 5, HERE, BROKERS) == 2


def test_it_stays_with_a_leader_in_its_rack_and_where_no_replica_has_its_rack() -> None:
    state = leader((1, 2, 3), {2: 10, 3: 10})
    assert closest_replica(state, 5, THERE, BROKERS) is None
    assert closest_replica(state, 5, "elsewhere", BROKERS) is None


def test_a_replica_that_is_not_in_sync_is_not_named_however_far_it_is() -> None:
    """It may fall behind for ever, and its readers with it: nothing waits for it."""
    assert closest_replica(leader((1, 2), {2: 6, 3: 10}), 5, HERE, BROKERS) == 2
    assert closest_replica(leader((1,), {2: 10, 3: 10}), 5, HERE, BROKERS) is None


def test_a_replica_without_the_offset_is_not_named() -> None:
    state = leader((1, 2, 3), {2: 6, 3: 10}, {3: 4})
    assert closest_replica(state, 7, HERE, BROKERS) == 3
    assert closest_replica(state, 3, HERE, BROKERS) == 2


def test_a_fenced_broker_is_not_named() -> None:
    state = leader((1, 2, 3), {2: 10, 3: 10})
    assert closest_replica(state, 5, HERE, {**BROKERS, 2: broker(2, HERE, fenced=True)}) == 3
