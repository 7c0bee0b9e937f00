"""A move on a cluster in memory: what it notes, what it leaves alone, and what makes it look again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from migration_fakes import NEW, OLD, FakeCluster, Replica, log_of, plain
from penstock.migrate import moving
from penstock.migrate.markers import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS, Notes, notes_from
from penstock.migrate.moving import undo
from penstock.migrate.observe import observe
from penstock.migrate.plan import CannotMove, Phase, plan
from penstock.migrate.verify import ReplicasDiffer
from penstock.model.ids import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add("a", {OLD: Replica(log_of(5))})
    cluster.add("b", {OLD: Replica(log_of(5))})
    return cluster


def where(cluster: FakeCluster) -> list[tuple[int, ...]]:
    return [held.replicas for held in cluster.partitions.values()]


class Killed(BaseException):
    """The command, not the cluster."""


def killed_when(cluster: FakeCluster, replicas: int) -> None:
    """The command is killed when it tells the cluster to give a partition so many replicas."""

    def kill(targets: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        if any(target is not None and len(target) == replicas for target in targets.values()):
            raise Killed

    cluster.on_begin = kill
    with pytest.raises(Killed):
        cluster.run()
    cluster.on_begin = lambda targets: None


def test_a_move_leaves_nothing_behind(cluster: FakeCluster) -> None:
    cluster.run(bytes_per_second=10_000_000)
    assert where(cluster) == [(NEW,), (NEW,)]
    assert not any(LEADER_REPLICAS in found or FOLLOWER_REPLICAS in found for found in cluster.topic_settings.values())
    assert not any(cluster.broker_settings.values())


@pytest.mark.parametrize("at", [1, 2], ids=["before the release", "before the copy"])
def test_a_killed_move_is_continued(cluster: FakeCluster, at: int) -> None:
    killed_when(cluster, at)
    cluster.run()
    assert where(cluster) == [(NEW,), (NEW,)]


@pytest.mark.parametrize("at", [1, 2], ids=["before the release", "before the copy"])
def test_a_killed_move_is_undone(cluster: FakeCluster, at: int) -> None:
    killed_when(cluster, at)
    undo(cluster.admin, pause=lambda seconds: None)
    assert where(cluster) == [(OLD,), (OLD,)]
    assert not any(LEADER_REPLICAS in found for found in cluster.topic_settings.values())


def test_a_copy_that_differs_is_not_released(cluster: FakeCluster) -> None:
    killed_when(cluster, 1)
    copy = cluster.partitions[B].logs[NEW]
    copy.log[2] = plain(2, ("k2", "damaged"))
    with pytest.raises(ReplicasDiffer, match="b-0 on brokers 1 and 11 differ at offset 2"):
        cluster.run()
    assert cluster.partitions[B].replicas == (OLD, NEW)


def test_a_copy_that_leads_is_compared_all_the_same(cluster: FakeCluster) -> None:
    killed_when(cluster, 1)
    held = cluster.partitions[A]
    held.leader = NEW
    held.logs[NEW].log[2] = plain(2, ("k2", "damaged"))
    with pytest.raises(ReplicasDiffer, match="a-0 on brokers 1 and 11 differ at offset 2"):
        cluster.run()
    assert held.replicas == (OLD, NEW)


def test_a_partition_whose_sources_are_all_behind_waits_for_one(cluster: FakeCluster) -> None:
    killed_when(cluster, 1)
    held = cluster.partitions[A]
    held.leader, held.isr = NEW, (NEW,)
    steps = plan(observe(cluster.admin), [OLD], [NEW])
    assert [step.phase for step in steps] == [Phase.WAIT, Phase.RELEASE]
    move = cluster.move().run(pause=lambda seconds: None)
    assert [len(next(move).verified), held.replicas, where(cluster)[1]] == [1, (OLD, NEW), (NEW,)]
    held.isr = (OLD, NEW)
    assert [report.done for report in move] == [False, True]


@pytest.mark.parametrize("change", ["isr", "replicas", "deleted"])
def test_a_partition_that_changes_while_it_is_compared_is_looked_at_again(cluster: FakeCluster, change: str) -> None:
    """The copy restarts and is behind; another command has released it; someone deletes the topic."""
    killed_when(cluster, 1)
    held = cluster.partitions[A]
    told: list[Mapping[TopicPartition, Sequence[int] | None]] = []
    cluster.on_begin = told.append

    def fetched(broker_id: int, position: int) -> None:
        cluster.on_fetch = lambda broker_id, position: None
        if change == "isr":
            held.isr = (OLD,)
        elif change == "replicas":
            held.replicas = held.isr = (NEW,)
        else:
            del cluster.partitions[A]

    cluster.on_fetch = fetched
    move = cluster.move().run(pause=lambda seconds: None)
    next(move)
    assert told == [{B: (NEW,)}]
    held.isr = held.replicas
    for _ in move:
        pass
    assert told[1:] == ([{A: (NEW,)}] if change == "isr" else [])


def test_a_topic_that_is_deleted_does_not_end_the_move(cluster: FakeCluster) -> None:
    def delete(targets: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        cluster.partitions.pop(A, None)

    cluster.on_begin = delete
    cluster.run()
    assert where(cluster) == [(NEW,)]


def test_partitions_are_reported_while_others_are_still_compared(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "ROUND_S", 0.0)
    read: list[int] = []
    reports = [
        ([str(step.phase) for step in report.steps], len(report.verified), len(read))
        for report in cluster.move(read=read.append).run(pause=lambda seconds: None)
    ]
    assert reports == [
        (["copy", "copy"], 0, 0),
        (["release", "release"], 1, 10),
        (["done", "release"], 1, 20),
        (["done", "done"], 0, 20),
    ]


# -- notes and throttles of others -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaders", "followers"),
    [("0:1,0:2", ""), ("0:1,0:2", "0:3"), ("*", "*"), ("*", ""), ("", "0:11"), ("0:9,0:8", "0:8")],
    ids=["leftover", "leftover of a larger factor", "all", "all leaders", "copies only", "of an old move"],
)
def test_throttled_replicas_of_others_are_left_alone(leaders: str, followers: str) -> None:
    cluster = FakeCluster((1, 2, 3, 11, 12, 13))
    cluster.add("a", {each: Replica(log_of(5)) for each in (1, 2, 3)})
    given = {name: text for name, text in ((LEADER_REPLICAS, leaders), (FOLLOWER_REPLICAS, followers)) if text}
    cluster.topic_settings["a"].update(given)
    state = observe(cluster.admin)
    assert (state.partitions[A].originals, state.partitions[A].factor) == (None, 3)
    assert state.throttled_by_others == ["a"]
    with pytest.raises(CannotMove, match="topic a has throttled replicas that are not of this move"):
        cluster.run()
    assert undo(cluster.admin) == {}
    assert given.items() <= cluster.topic_settings["a"].items() and where(cluster) == [(1, 2, 3)]


def test_notes_are_read_as_they_were_written() -> None:
    notes = Notes({0: (1, 2), 7: (3,)}, {0: (11, 12), 7: (11,)})
    assert notes_from(notes.settings()) == notes
    assert notes_from({}) == Notes()


@pytest.mark.parametrize(
    ("replicas", "is_believed"),
    [
        ((1, 2), True),  # noted, and not begun
        ((1, 2, 11), True),
        ((1, 2, 11, 12), True),
        ((11, 12), True),  # released
        ((1, 2, 3), False),
        ((11, 12, 1), False),
        ((11,), False),
    ],
)
def test_a_note_is_believed_where_a_move_can_have_come(replicas: tuple[int, ...], is_believed: bool) -> None:
    assert Notes({0: (1, 2)}, {0: (11, 12)}).believed(0, replicas) == is_believed


def test_throttles_of_others_are_left_alone(cluster: FakeCluster) -> None:
    own = {LEADER_RATE: "5", FOLLOWER_RATE: "5"}
    cluster.broker_settings[OLD] = dict(own)
    with pytest.raises(CannotMove, match="broker 1 has a throttle that is not of this move"):
        cluster.run(bytes_per_second=10_000)
    assert where(cluster) == [(OLD,), (OLD,)]
    cluster.run()
    assert cluster.broker_settings[OLD] == own and where(cluster) == [(NEW,), (NEW,)]


@pytest.mark.parametrize("how", ["continued without", "undone"])
def test_the_throttle_of_a_killed_command_is_removed(cluster: FakeCluster, how: str) -> None:
    move = cluster.move(bytes_per_second=10_000).run(pause=lambda seconds: None)
    next(move)  # and no further
    assert cluster.broker_settings == {each: {LEADER_RATE: "10000", FOLLOWER_RATE: "9999"} for each in (OLD, NEW)}
    if how == "undone":
        undo(cluster.admin, pause=lambda seconds: None)
    else:
        next(cluster.move().run(pause=lambda seconds: None))
    assert not any(cluster.broker_settings.values())
