"""The leader's state: high watermark, in-sync replicas, proposals, those who wait."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.model.errors import ErrorCode, KafkaError
from penstock.replication.partition import LeaderState, Proposal

LAG_MAX_MS = 1000


class Cluster:
    """Brokers and the epochs of their registrations; those without may not be in sync."""

    def __init__(self, *brokers: int) -> None:
        self.epochs: dict[int, int] = {broker: 100 + broker for broker in brokers}

    def leader(self, **different: Any) -> LeaderState:
        fields: dict[str, Any] = {
            "broker_id": 1,
            "leader_epoch": 5,
            "partition_epoch": 7,
            "replicas": (1, 2, 3),
            "isr": (1, 2, 3),
            "log_end": 10,
            "flushed": 10,
            "counts_flushed": False,
            "high_watermark": 8,
            "min_insync_replicas": 1,
            "lag_max_ms": LAG_MAX_MS,
            "registered": self.epochs.get,
            "now_ms": 0,
        }
        return LeaderState(**{**fields, **different})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(1, 2, 3)


def fetch(leader: LeaderState, broker: int, offset: int, now_ms: int = 0, epoch: int | None = None) -> bool:
    return leader.fetched(broker, offset, 0, 100 + broker if epoch is None else epoch, now_ms)


def accept(leader: LeaderState, proposal: Proposal, now_ms: int = 0) -> bool:
    isr = [broker for broker, _ in proposal.isr]
    return leader.accepted(proposal, isr, proposal.partition_epoch + 1, now_ms)


def test_a_leader_alone_commits_at_once(cluster: Cluster) -> None:
    leader = cluster.leader(replicas=(1,), isr=(1,))
    assert leader.commits_at_once
    assert leader.high_watermark == 10
    assert leader.appended(12, 0)
    assert leader.high_watermark == 12


def test_a_leader_alone_that_flushes_commits_what_is_flushed(cluster: Cluster) -> None:
    leader = cluster.leader(replicas=(1,), isr=(1,), counts_flushed=True, high_watermark=0)
    assert not leader.commits_at_once
    assert not leader.appended(15, 0)
    assert leader.flushed_to(13, 0)
    assert leader.high_watermark == 13
    assert leader.count_flushed(False, 0)
    assert leader.high_watermark == 15


def test_the_high_watermark_is_what_all_in_sync_replicas_have(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader.high_watermark == 8
    assert not leader.is_settled
    assert not fetch(leader, 2, 10)
    assert fetch(leader, 3, 9)
    assert leader.high_watermark == 9
    assert fetch(leader, 3, 10)
    assert (leader.high_watermark, leader.is_settled) == (10, True)
    assert not leader.appended(11, 0)
    assert not fetch(leader, 2, 11)
    assert fetch(leader, 3, 11)


def test_a_new_leader_knows_nothing_of_its_followers(cluster: Cluster) -> None:
    leader = cluster.leader(high_watermark=10, log_end=10)
    assert not leader.appended(12, 0)
    assert not fetch(leader, 2, 12)
    assert leader.high_watermark == 10


def test_a_leader_that_flushes_counts_itself_by_that(cluster: Cluster) -> None:
    leader = cluster.leader(counts_flushed=True, flushed=9)
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    assert leader.high_watermark == 9
    assert leader.flushed_to(10, 0)


def test_a_follower_that_fetches_from_further_back_holds_the_high_watermark(cluster: Cluster) -> None:
    leader = cluster.leader(high_watermark=10)
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    leader.appended(20, 0)
    fetch(leader, 2, 20)
    assert not fetch(leader, 3, 4)  # it restarted and lost its tail
    assert leader.high_watermark == 10
    assert fetch(leader, 3, 15)
    assert leader.high_watermark == 15


def test_nothing_is_committed_with_too_few_in_sync(cluster: Cluster) -> None:
    leader = cluster.leader(isr=(1,), min_insync_replicas=2, high_watermark=8)
    assert not leader.has_enough_replicas
    assert not leader.appended(11, 0)
    assert leader.high_watermark == 8
    assert leader.set_min_insync_replicas(1, 0)
    assert leader.high_watermark == 11


def test_more_replicas_than_there_are_cannot_be_asked_for(cluster: Cluster) -> None:
    leader = cluster.leader(replicas=(1, 2), isr=(1, 2), min_insync_replicas=3)
    assert leader.min_isr == 2
    assert leader.has_enough_replicas


# -- joining ---------------------------------------------------------------------------------------------------------


def test_a_follower_joins_at_the_high_watermark_and_the_start_of_the_epoch(cluster: Cluster) -> None:
    leader = cluster.leader(isr=(1, 2), high_watermark=8, log_end=10)
    fetch(leader, 3, 9)
    assert leader.expand(3) is None  # beyond the high watermark, but not in this epoch yet
    fetch(leader, 3, 10)
    proposal = leader.expand(3)
    assert proposal is not None
    assert proposal.isr == ((1, 101), (2, -1), (3, 103))
    assert proposal.added == {3} and proposal.removed == frozenset()
    assert leader.maximal_isr == {1, 2, 3}
    assert leader.expand(3) is None  # one at a time


def test_who_is_about_to_join_is_waited_for(cluster: Cluster) -> None:
    leader = cluster.leader(isr=(1, 2), high_watermark=10)
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    proposal = leader.expand(3)
    assert proposal is not None
    leader.appended(12, 0)
    fetch(leader, 2, 12)
    assert leader.high_watermark == 10
    assert not accept(leader, proposal)
    assert fetch(leader, 3, 12)


def test_who_is_caught_up_and_may_join_is_waited_for(cluster: Cluster) -> None:
    """Otherwise a follower of a busy leader that is alone in sync would never reach the high watermark."""
    leader = cluster.leader(isr=(1,), high_watermark=10, log_end=10)
    fetch(leader, 3, 9, now_ms=1)
    leader.appended(11, 2)
    assert leader.high_watermark == 11  # not seen to be caught up yet
    fetch(leader, 3, 11, now_ms=3)
    leader.appended(12, 4)
    assert leader.high_watermark == 11
    assert not leader.tick(4 + LAG_MAX_MS)
    assert leader.tick(5 + LAG_MAX_MS)  # but not for ever


def test_who_may_not_join_is_not_waited_for(cluster: Cluster) -> None:
    leader = cluster.leader(isr=(1,), high_watermark=10)
    fetch(leader, 3, 10, now_ms=1)
    del cluster.epochs[3]  # fenced
    assert leader.expand(3) is None
    assert leader.appended(12, 2)


def test_a_broker_joins_under_the_registration_it_fetched_with(cluster: Cluster) -> None:
    leader = cluster.leader(isr=(1, 2))
    fetch(leader, 3, 10)
    cluster.epochs[3] = 500  # it has registered again, perhaps with an empty disk
    assert leader.expand(3) is None
    with pytest.raises(KafkaError) as late:
        fetch(leader, 3, 10)  # an old fetch that took long
    assert late.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    fetch(leader, 3, 10, epoch=500)
    proposal = leader.expand(3)
    assert proposal is not None
    assert (3, 500) in proposal.isr


def test_a_broker_that_does_not_tell_its_epoch_is_let_in(cluster: Cluster) -> None:
    leader = cluster.leader(isr=(1, 2))
    fetch(leader, 3, 10, epoch=-1)
    proposal = leader.expand(3)
    assert proposal is not None
    assert (3, -1) in proposal.isr


def test_who_is_no_replica_must_wait_for_the_metadata(cluster: Cluster) -> None:
    with pytest.raises(KafkaError) as unknown:
        fetch(cluster.leader(), 4, 10)
    assert unknown.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


# -- leaving ---------------------------------------------------------------------------------------------------------


def test_who_has_not_caught_up_for_long_is_out_of_sync(cluster: Cluster) -> None:
    leader = cluster.leader(high_watermark=10)
    fetch(leader, 2, 10, now_ms=10)
    fetch(leader, 3, 10, now_ms=10)
    leader.appended(20, 500)
    assert leader.shrink(500 + LAG_MAX_MS) is None  # it had everything until then
    fetch(leader, 2, 20, now_ms=600)
    proposal = leader.shrink(501 + LAG_MAX_MS)
    assert proposal is not None
    assert proposal.removed == {3}
    assert leader.high_watermark == 10  # it counts until the controller has said so
    assert leader.maximal_isr == {1, 2, 3}
    assert accept(leader, proposal, now_ms=501 + LAG_MAX_MS)
    assert leader.high_watermark == 20 and leader.isr == {1, 2}


def test_a_follower_that_is_always_a_little_behind_is_in_sync(cluster: Cluster) -> None:
    leader = cluster.leader(replicas=(1, 2), isr=(1, 2), high_watermark=10)
    fetch(leader, 2, 10, now_ms=0)
    for now_ms in range(100, 5000, 100):
        end = leader.log_end
        leader.appended(end + 1, now_ms)
        fetch(leader, 2, end, now_ms)
        assert leader.shrink(now_ms) is None


def test_an_idle_partition_stays_in_sync(cluster: Cluster) -> None:
    leader = cluster.leader(high_watermark=10)
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    assert leader.shrink(1_000_000) is None
    leader.appended(11, 1_000_000)
    assert leader.shrink(1_000_001) is None


def test_a_follower_that_never_came_is_out_of_sync(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader.shrink(LAG_MAX_MS) is None
    proposal = leader.shrink(LAG_MAX_MS + 1)
    assert proposal is not None
    assert proposal.removed == {2, 3}


# -- the controller's answers ----------------------------------------------------------------------------------------


def proposed(cluster: Cluster) -> tuple[LeaderState, Proposal]:
    leader = cluster.leader(isr=(1, 2), high_watermark=10)
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    proposal = leader.expand(3)
    assert proposal is not None
    return leader, proposal


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_proposal_that_was_not_applied_is_gone(cluster: Cluster, code: ErrorCode) -> None:
    leader, proposal = proposed(cluster)
    assert not leader.refused(proposal, code)
    assert leader.pending is None
    assert leader.maximal_isr == {1, 2}
    assert leader.expand(3) is not None


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_a_proposal_of_unknown_fate_waits_for_the_metadata(cluster: Cluster, code: ErrorCode) -> None:
    leader, proposal = proposed(cluster)
    assert not leader.refused(proposal, code)
    assert leader.maximal_isr == {1, 2, 3}
    leader.update(partition_epoch=8, replicas=(1, 2, 3), isr=(1, 2), now_ms=0)
    assert leader.pending is None and leader.maximal_isr == {1, 2}


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT]
)
def test_a_proposal_that_nobody_looked_at_is_repeated(cluster: Cluster, code: ErrorCode) -> None:
    leader, proposal = proposed(cluster)
    assert leader.refused(proposal, code)
    assert leader.pending is proposal


def test_an_answer_that_the_metadata_has_overtaken_says_nothing(cluster: Cluster) -> None:
    leader, proposal = proposed(cluster)
    leader.update(partition_epoch=9, replicas=(1, 2, 3), isr=(1,), now_ms=0)
    assert not accept(leader, proposal)
    assert not leader.refused(proposal, ErrorCode.INELIGIBLE_REPLICA)
    assert leader.isr == {1} and leader.partition_epoch == 9


def test_metadata_that_an_answer_has_overtaken_says_nothing(cluster: Cluster) -> None:
    leader, proposal = proposed(cluster)
    accept(leader, proposal)
    assert leader.partition_epoch == 8
    leader.update(partition_epoch=7, replicas=(1, 2, 3), isr=(1, 2), now_ms=0)
    assert leader.isr == {1, 2, 3}


def test_metadata_that_says_the_same_leaves_the_next_proposal_alone(cluster: Cluster) -> None:
    leader, proposal = proposed(cluster)
    accept(leader, proposal)
    leader.appended(20, 0)
    following = leader.shrink(LAG_MAX_MS + 1)
    assert following is not None
    leader.update(partition_epoch=8, replicas=(1, 2, 3), isr=(1, 2, 3), now_ms=0)
    assert leader.pending is following


def test_a_reassignment_brings_followers_and_takes_them(cluster: Cluster) -> None:
    leader = cluster.leader(high_watermark=10)
    fetch(leader, 2, 10)
    leader.update(partition_epoch=8, replicas=(1, 2, 4), isr=(1, 2), now_ms=0)
    assert set(leader.followers) == {2, 4}
    assert leader.followers[2].log_end == 10
    leader.appended(11, 0)
    assert fetch(leader, 2, 11)


# -- those who wait --------------------------------------------------------------------------------------------------


def test_those_who_wait_are_told_in_the_order_of_their_offsets(cluster: Cluster) -> None:
    leader = cluster.leader(high_watermark=10)
    told: list[tuple[str, ErrorCode]] = []
    leader.appended(20, 0)
    for name, offset in (("b", 15), ("c", 20), ("a", 12)):  # a: asked again
        leader.wait_for(offset, lambda code, name=name: told.append((name, code)))  # type: ignore[misc]
    fetch(leader, 2, 20)
    fetch(leader, 3, 16)
    for waiter in leader.take_satisfied():
        waiter(ErrorCode.NONE)
    assert told == [("a", ErrorCode.NONE), ("b", ErrorCode.NONE)]
    for waiter in leader.take_all():
        waiter(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert told[2:] == [("c", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_those_who_wait_for_a_commit_that_cannot_come_are_told(cluster: Cluster) -> None:
    leader = cluster.leader(min_insync_replicas=3, high_watermark=10)
    leader.wait_for(12, lambda code: None)
    assert leader.take_unsafe() == []
    leader.update(partition_epoch=8, replicas=(1, 2, 3), isr=(1, 2), now_ms=0)
    assert len(leader.take_unsafe()) == 1


def test_flushes_are_waited_for_on_their_own(cluster: Cluster) -> None:
    leader = cluster.leader(counts_flushed=True)
    leader.appended(12, 0)
    leader.wait_for_flush(12, lambda code: None)
    leader.flushed_to(11, 0)
    assert leader.take_flushed() == []
    leader.flushed_to(12, 0)
    assert len(leader.take_flushed()) == 1


def test_waiting_goes_on_in_the_next_epoch_of_the_same_leader(cluster: Cluster) -> None:
    former = cluster.leader(high_watermark=10)
    former.appended(12, 0)
    former.wait_for(12, lambda code: None)
    leader = cluster.leader(leader_epoch=6, log_end=12)
    leader.succeed(former)
    fetch(leader, 2, 12)
    fetch(leader, 3, 12)
    assert len(leader.take_satisfied()) == 1
    assert former.take_all() == []


def test_the_low_watermark_is_that_of_the_replicas_that_are_up(cluster: Cluster) -> None:
    leader = cluster.leader()
    assert leader.low_watermark(6) == -1
    leader.fetched(2, 10, 4, 102, 0)
    leader.fetched(3, 10, 7, 103, 0)
    assert leader.low_watermark(6) == 4
    del cluster.epochs[2]
    assert leader.low_watermark(6) == 6
