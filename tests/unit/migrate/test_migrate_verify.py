"""What stops a release: a copy that has not what a source has."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import pytest

from migration_fakes import NEW, OLD, FakeCluster, Replica, log_of, parsed, plain
from penstock.migrate import replica_reader, verify
from penstock.migrate.content import Batch, Content
from penstock.migrate.moving import verify_step
from penstock.migrate.plan import CannotMove, Phase, Step
from penstock.migrate.state import Replicas
from penstock.migrate.verify import ReplicasDiffer, Verified
from penstock.model.errors import KafkaError
from penstock.model.ids import TopicPartition
from penstock.records.builder import build_batch
from penstock.records.control import build_transaction_marker

PLACE = TopicPartition("t", 0)
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_SETTLE_S", -1.0)
    monkeypatch.setattr(verify, "_POLL_S", 0.0)
    monkeypatch.setattr(replica_reader, "_BEHIND_S", -1.0)
    monkeypatch.setattr(replica_reader, "_WAIT_MS", 0)


def verified(cluster: FakeCluster, targets: Sequence[int] = (NEW,)) -> list[Verified]:
    held = cluster.partitions[PLACE]
    step = Step(PLACE, Phase.RELEASE, tuple(targets), held.replicas)
    state = Replicas(held.replicas, held.isr, held.leader)
    return verify_step(cluster.admin, cluster, state, step, lambda size: None)  # type: ignore[arg-type]


def pair(source: Replica, copy: Replica, *, leader: int = OLD, **settings: str) -> FakeCluster:
    cluster = FakeCluster()
    cluster.add("t", {OLD: source, NEW: copy}, leader=leader, **settings)
    return cluster


def damaged(batch: Batch) -> Batch:
    header, data = batch
    return header, data[:-1] + bytes([data[-1] ^ 1])


def size(log: Sequence[Batch]) -> int:
    return sum(len(data) for _, data in log)


@pytest.mark.parametrize("leader", [OLD, NEW])
@pytest.mark.parametrize("start", [0, 7])
def test_equal_replicas_are_read_from_the_beginning_to_the_end(leader: int, start: int) -> None:
    """Also those whose beginning was removed, and also if the copy leads."""
    log = log_of(10)
    cluster = pair(Replica(log, start), Replica(log, start), leader=leader)
    (found,) = verified(cluster)
    assert (found.start_offset, found.end_offset) == (start, 10)
    assert found.compared_bytes == 2 * size(log[start:])
    assert {OLD, NEW} == set(cluster.fetched)


@pytest.mark.parametrize("leader", [OLD, NEW])
@pytest.mark.parametrize("start", [0, 7])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda log: [*log[:8], damaged(log[8]), log[9]], "damaged"),
        (lambda log: [*log[:8], plain(8, ("k8", "other")), log[9]], "differ at offset 8"),
        (lambda log: [*log[:8], log[9]], "differ at offset 8"),
        (lambda log: [], "only one has a batch"),
    ],
    ids=["a damaged byte", "another value", "a batch is missing", "nothing"],
)
def test_what_differs_is_found(
    leader: int, start: int, change: Callable[[list[Batch]], list[Batch]], words: str
) -> None:
    log = log_of(10)
    cluster = pair(Replica(log, start), Replica(change(log), start, high_watermark=10), leader=leader)
    with pytest.raises(ReplicasDiffer, match=words):
        verified(cluster)


@pytest.mark.parametrize("leader", [OLD, NEW])
def test_a_copy_without_the_tail_is_not_in_sync(leader: int) -> None:
    cluster = pair(Replica(log_of(10)), Replica(log_of(9)), leader=leader)
    with pytest.raises(KafkaError, match="it is not in sync"):
        verified(cluster)


def test_a_source_is_read_though_copies_lead() -> None:
    log = log_of(3)
    cluster = FakeCluster((1, 2, 11, 12))
    held = cluster.add("t", {1: Replica(log), 2: Replica(log), 11: Replica(log), 12: Replica(log)}, leader=11)
    held.isr = (2, 11, 12)  # the first source is behind
    assert [found.brokers for found in verified(cluster, (11, 12))] == [(2, 11), (2, 12)]
    held.isr = (11, 12)
    with pytest.raises(CannotMove, match="none of the replicas that shall leave is in sync"):
        verified(cluster, (11, 12))


def test_a_replica_that_does_not_say_where_it_begins_is_not_compared() -> None:
    cluster = pair(Replica(log_of(3)), Replica(log_of(3), start=-1))
    with pytest.raises(KafkaError, match="does not say where its log begins"):
        verified(cluster)


def test_a_beginning_that_is_removed_while_it_is_read_is_not_compared_and_the_rest_is() -> None:
    log = log_of(10)
    cluster = pair(Replica(log), Replica(log))
    removals = iter([(OLD, 5), (NEW, 5)])

    def remove(broker_id: int, position: int) -> None:
        if position == 3:
            for each, start in removals:
                cluster.partitions[PLACE].logs[each].start = start

    cluster.on_fetch = remove
    (found,) = verified(cluster)
    assert (found.start_offset, found.end_offset) == (5, 10)


@pytest.mark.parametrize("always", [True, False], ids=["for ever", "for a while"])
def test_a_beginning_is_not_waited_for_for_ever(always: bool) -> None:
    cluster = pair(Replica(log_of(100)), Replica(log_of(100)))

    def remove(broker_id: int, position: int) -> None:
        for replica in cluster.partitions[PLACE].logs.values():
            if always or replica.start < 10:
                replica.start += 1

    cluster.on_fetch = remove
    if always:
        with pytest.raises(KafkaError, match="faster than it can be read"):
            verified(cluster)
    else:
        assert verified(cluster)[0].start_offset == 10


# -- a copy that begins later ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "is_fine"),
    [
        ({"retention.ms": str(HOUR_MS)}, True),
        ({"retention.ms": str(3 * HOUR_MS)}, False),
        ({"retention.ms": "-1"}, False),
        ({"retention.bytes": "100"}, True),
        ({"retention.bytes": "100000"}, False),
        ({"retention.ms": str(HOUR_MS), "cleanup.policy": "compact"}, False),
        ({"retention.ms": str(HOUR_MS), "cleanup.policy": "compact,delete"}, True),
    ],
)
def test_a_copy_may_begin_later_if_retention_allows_it(settings: dict[str, str], is_fine: bool) -> None:
    log = log_of(10, timestamp=int(time.time() * 1000) - 2 * HOUR_MS)
    cluster = pair(Replica(log), Replica(log[4:], start=4))
    cluster.topic_settings["t"].update(settings)
    if is_fine:
        assert verified(cluster)[0].start_offset == 4
    else:
        with pytest.raises(ReplicasDiffer, match="begins at offset 0, and the other at 4"):
            verified(cluster)


def test_a_source_may_begin_later() -> None:
    cluster = pair(Replica(log_of(10)[4:], start=4), Replica(log_of(10)))
    assert verified(cluster)[0].start_offset == 4


def test_a_follower_that_has_not_removed_yet_what_its_leader_has_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = pair(Replica(log_of(10)), Replica(log_of(10)[4:], start=4), leader=NEW)
    monkeypatch.setattr(verify, "_SETTLE_S", 60.0)
    monkeypatch.setattr(time, "sleep", lambda seconds: setattr(cluster.partitions[PLACE].logs[OLD], "start", 4))
    assert verified(cluster)[0].start_offset == 4


# -- compacted topics --------------------------------------------------------------------------------------------------


def compacted(source: Replica, copy: Replica) -> FakeCluster:
    return pair(source, copy, cleanup_policy="compact")


LATEST = [plain(0, ("a", "1"), ("b", "1")), plain(2, ("a", "2")), plain(3, ("b", "2"))]


def test_replicas_that_were_cleaned_differently_are_equal() -> None:
    assert verified(compacted(Replica(LATEST), Replica(LATEST[1:], high_watermark=4)))[0].compared_bytes


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_key_is_found(lost: int) -> None:
    copy = Replica([*LATEST[1:lost], *LATEST[lost + 1 :]], high_watermark=4)
    with pytest.raises(ReplicasDiffer, match="last values of 1 keys"):
        verified(compacted(Replica(LATEST), copy))


@pytest.mark.parametrize("cleaned", [OLD, NEW])
@pytest.mark.parametrize("follows", [True, False], ids=["superseded", "lost"])
def test_a_value_that_a_later_one_beyond_the_end_has_replaced_is_not_missing(cleaned: int, follows: bool) -> None:
    """While the logs are read, `a` is written again, and one replica removes its value before."""
    cluster = compacted(Replica(LATEST), Replica(LATEST))
    seen: list[int] = []

    def write(broker_id: int, position: int) -> None:
        seen.append(broker_id)
        if seen.count(broker_id) == 2 and len(set(seen)) == 2:
            later = plain(4, ("a" if follows else "c", "3"))
            for each, replica in cluster.partitions[PLACE].logs.items():
                if replica.high_watermark == 4:
                    kept = [LATEST[0], LATEST[2]] if each == cleaned else LATEST
                    replica.log, replica.high_watermark = [*kept, later], 5

    # Both bounds are known when the cleaning begins.
    cluster.on_fetch = write
    if follows:
        assert verified(cluster)[0].end_offset == 5
    else:
        with pytest.raises(ReplicasDiffer):
            verified(cluster)


def last_values(batches: Sequence[Batch]) -> dict[bytes, bytes]:
    content = Content()
    content.read(batches)
    return content.values()


def test_the_last_value_of_each_key_counts_and_tombstones_are_none() -> None:
    log = [plain(0, ("a", "1"), ("b", "1")), plain(2, ("a", "2")), plain(3, ("b", None))]
    cleaned = [plain(2, ("a", "2"))]
    assert last_values(log) == last_values(cleaned) != {}
    assert last_values(log) != last_values([plain(2, ("a", "3"))])


def test_records_before_the_start_do_not_count() -> None:
    content = Content(1)
    content.read([plain(0, ("a", "1"), ("b", "1"))])
    assert content.values() == last_values([plain(1, ("b", "1"))])


def transactional(offset: int, producer_id: int, *records: tuple[str, str | None]) -> Batch:
    data = build_batch(
        [(0, key.encode(), None if value is None else value.encode(), ()) for key, value in records],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    return parsed(data)


def marker(offset: int, producer_id: int, committed: bool) -> Batch:
    return parsed(
        build_transaction_marker(
            committed=committed,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=0,
            base_offset=offset,
        )
    )


def test_aborted_records_do_not_count_and_open_ones_are_apart() -> None:
    base = [plain(0, ("a", "1"))]
    aborted = [*base, transactional(1, 7, ("a", "2")), marker(2, 7, committed=False)]
    committed = [*base, transactional(1, 7, ("a", "2")), marker(2, 7, committed=True)]
    still_open = [*base, transactional(1, 7, ("a", "2"))]
    assert last_values(aborted) == last_values(base)
    assert last_values(committed) == last_values([plain(0, ("a", "2"))])
    assert last_values(still_open) not in (last_values(base), last_values(committed))


def test_the_order_of_replicas_does_not_matter() -> None:
    keys = [f"k{number}" for number in range(50)]
    random.Random(1).shuffle(keys)
    log = [plain(number, (key, key)) for number, key in enumerate(keys)]
    assert last_values(log) == last_values([plain(0, *((key, key) for key in sorted(keys)))])
