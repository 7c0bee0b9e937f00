"""The sink's protocol on real brokers, without Spark: batches once, whoever stops where."""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from penstock.arrow import read_table
from penstock.spark.sink import two_phase
from penstock.spark.sink.brokers import SinkBrokers
from penstock.spark.sink.decisions import NAMELESS
from penstock.spark.sink.options import sink_options
from penstock.spark.sink.two_phase import (
    Abort,
    Commit,
    Decide,
    Fenced,
    Finish,
    ListOpen,
    NotCarriedOut,
    NotDecided,
    OlderCheckpoint,
    OtherQuery,
    Prepare,
    TaskTransaction,
)
from penstock.spark.sink.worker_connections import WorkerConnections
from penstock.spark.sink.writer import _task_transaction
from penstock.spark.source.errors import BadOption
from penstock.testing import Cluster

NewTopic = Callable[..., str]
QUERY = "query"


class Killed(BaseException):
    """What a process does not survive."""


class Process:
    """One that runs tasks, or commits, on a cluster; it may be killed before a step, or after it."""

    def __init__(self, cluster: Cluster, **options: str) -> None:
        given = {"kafka.bootstrap.servers": cluster.bootstrap} | options
        self.settings = sink_options(given, streaming=True).producer
        self.connections = WorkerConnections(self.settings)

    def write(self, sink: str, batch: int, topic: str, *values: str) -> TaskTransaction:
        transaction = self.connections.begin(sink, "run", batch)
        self.connections.write(topic, pa.table({"value": values}), transaction)
        return _task_transaction(transaction)

    def commit(
        self,
        sink: str,
        batch: int,
        told: list[TaskTransaction],
        *,
        query: str = QUERY,
        before: type | None = None,
        after: type | None = None,
    ) -> None:
        """`before` and `after`: the step not to survive."""
        brokers = self.connections.brokers

        def perform(sink: str, step: Any) -> Any:
            if before is not None and isinstance(step, before):
                raise Killed
            answer = type(brokers).perform(brokers, sink, step)
            if after is not None and isinstance(step, after):
                raise Killed
            return answer

        brokers.perform = perform  # type: ignore[method-assign]
        brokers.run(sink, two_phase.commit(sink, batch, query, told))

    def close(self) -> None:
        self.connections.close()


class Scene:
    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.sink = f"s-{uuid.uuid4().hex}"
        self.processes: list[Process] = []

    def process(self, **options: str) -> Process:
        self.processes.append(Process(self.cluster, **options))
        return self.processes[-1]

    def write(self, batch: int, *values: str) -> TaskTransaction:
        """A task in a process of its own, which is not heard of again."""
        return self.process().write(f"{self.sink}", batch, self.topic, *values)

    def committed(self) -> Counter[str]:
        table = read_table(self.cluster.bootstrap, self.topic, value="string", columns=["value"])
        return Counter(table["value"].to_pylist())

    def still_open(self) -> list[str]:
        with self.cluster.admin() as admin:
            return [
                each.transactional_id
                for each in admin.transactions.list(states=["Ongoing"])
                if each.transactional_id.startswith(f"penstock.{self.sink}.")
            ]


@pytest.fixture(params=["two-phase", "one-phase"])
def scene(request: pytest.FixtureRequest, new_topic: NewTopic) -> Any:
    cluster: Cluster = request.getfixturevalue("cluster" if request.param == "two-phase" else "one_phase_cluster")
    made = Scene(cluster, new_topic(partitions=2, on=cluster))
    yield made
    for process in made.processes:
        process.close()


@pytest.mark.parametrize(
    ("before", "after", "decided"),
    [
        (Prepare, None, False),
        (Decide, None, False),
        (None, Decide, True),
        (Finish, None, True),
        (ListOpen, None, True),
    ],
    ids=["unprepared", "undecided", "decided", "committed", "done"],
)
def test_a_driver_that_dies_is_taken_over(scene: Scene, before: type | None, after: type | None, decided: bool) -> None:
    driver, successor = scene.process(), scene.process()
    driver.commit(scene.sink, 0, [scene.write(0, "first")])
    told = [scene.write(1, "a", "b"), scene.write(1, "c")]
    scene.write(1, "c")  # by an attempt that lost
    with pytest.raises(Killed):
        driver.commit(scene.sink, 1, told, before=before, after=after)
    # The batch comes again, cut otherwise; whoever looks first finds that there is nothing to be written.
    known = successor.connections.brokers.decisions.known(scene.sink)
    assert (known.batch == 1) == decided
    successor.commit(scene.sink, 1, [] if decided else [scene.write(1, "a"), scene.write(1, "b", "c")])
    assert scene.committed() == Counter(["first", "a", "b", "c"])
    assert scene.still_open() == []
    successor.commit(scene.sink, 2, [scene.write(2, "next")])
    assert scene.committed() == Counter(["first", "a", "b", "c", "next"])
    # The one before was not dead after all.
    with pytest.raises(OlderCheckpoint, match="batch 1 comes after 2 was written"):
        driver.commit(scene.sink, 1, told)
    assert scene.committed() == Counter(["first", "a", "b", "c", "next"])


def test_between_two_commits_of_a_decision(scene: Scene) -> None:
    driver, successor = scene.process(), scene.process()
    told = [scene.write(0, "a"), scene.write(0, "b"), scene.write(0, "c")]
    commit, brokers = driver.connections.brokers.commit, driver.connections.brokers

    def first_only(sink: str, batch: int, transaction: TaskTransaction) -> None:
        commit(sink, batch, transaction)
        raise Killed

    brokers.commit = first_only  # type: ignore[method-assign]
    with pytest.raises(Killed):
        driver.commit(scene.sink, 0, told)
    assert sum(scene.committed().values()) <= 1
    successor.commit(scene.sink, 0, [])
    assert scene.committed() == Counter("abc")
    assert scene.still_open() == []


def test_a_paused_driver_is_fenced(scene: Scene) -> None:
    driver, successor = scene.process(), scene.process()
    told = [scene.write(0, "a")]
    again = [scene.write(0, "a")]
    brokers = driver.connections.brokers
    perform = brokers.perform

    def paused(sink: str, step: Any) -> Any:
        if isinstance(step, Decide):
            successor.commit(scene.sink, 0, again, before=Commit)  # pauses as well, at the worst moment
        return perform(sink, step)

    brokers.perform = paused  # type: ignore[method-assign]
    with pytest.raises(Killed):
        brokers.run(scene.sink, two_phase.commit(scene.sink, 0, QUERY, told))
    brokers.perform = perform  # type: ignore[method-assign]
    steps = two_phase.commit(scene.sink, 0, QUERY, told)
    brokers.run(scene.sink, steps)  # it was decided by the other: carried out, and what this one wrote is aborted
    assert scene.committed() == Counter("a")
    assert scene.still_open() == []


def test_a_lock_fences_the_one_before(scene: Scene) -> None:
    driver, successor = scene.process(), scene.process()
    told, again = [scene.write(0, "a")], [scene.write(0, "a")]
    brokers = driver.connections.brokers

    def paused(sink: str, step: Any) -> Any:
        if isinstance(step, Decide):
            successor.commit(scene.sink, 0, again)
        return type(brokers).perform(brokers, sink, step)

    brokers.perform = paused  # type: ignore[method-assign]
    with pytest.raises(Fenced, match="two queries must not share"):
        brokers.run(scene.sink, two_phase.commit(scene.sink, 0, QUERY, told))
    assert scene.committed() == Counter("a")
    assert scene.still_open() == []


def test_what_is_not_open_is_not_decided(scene: Scene) -> None:
    driver, lost = scene.process(), scene.write(0, "b")
    driver.connections.brokers.perform(scene.sink, Abort((lost,)))
    with pytest.raises(NotDecided, match=r"batch 0 .* is not open any more"):
        driver.commit(scene.sink, 0, [scene.write(0, "a"), lost])
    assert scene.committed() == Counter()
    assert scene.still_open() == []
    driver.commit(scene.sink, 0, [scene.write(0, "a", "b")])
    assert scene.committed() == Counter("ab")


def test_a_refusal_after_the_decision_names_what_is_lost(scene: Scene) -> None:
    driver, told = scene.process(), [scene.write(0, "a")]
    with pytest.raises(Killed):
        driver.commit(scene.sink, 0, told, before=Commit)
    # Somebody aborts it by hand.
    driver.connections.brokers.perform(scene.sink, Abort(tuple(told)))
    with pytest.raises(NotCarriedOut, match=rf"batch 0 .* is decided, and what it wrote to {scene.topic}-\d"):
        driver.commit(scene.sink, 0, [])


def test_a_sink_belongs_to_one_query(scene: Scene) -> None:
    driver = scene.process()
    driver.commit(scene.sink, 3, [scene.write(3, "a")])
    with pytest.raises(OtherQuery, match="belongs to query query, which wrote batch 3"):
        driver.commit(scene.sink, 4, [scene.write(4, "b")], query="another")
    assert scene.committed() == Counter("a")
    assert scene.still_open() == []


def test_a_write_without_a_name_is_finished_by_whoever_comes_next(scene: Scene) -> None:
    scene.sink = NAMELESS + uuid.uuid4().hex
    driver = scene.process()
    with pytest.raises(Killed):
        driver.commit(scene.sink, 0, [scene.write(0, "a"), scene.write(0, "b")], query="", before=Commit)
    assert scene.committed() == Counter()
    assert scene.process().connections.brokers.perform("another", two_phase.Look()).decision is None
    assert scene.committed() == Counter("ab")
    assert scene.process().connections.brokers.decisions.known(scene.sink).decision is None


def test_time_outs(cluster: Cluster, one_phase_cluster: Cluster, new_topic: NewTopic, caplog: Any) -> None:
    topic = new_topic(on=one_phase_cluster)
    scene = Scene(one_phase_cluster, topic)
    with pytest.raises(BadOption, match=r"transaction.timeout.ms=900001 is more than brokers allow \(900000\)"):
        scene.process(**{"kafka.transaction.timeout.ms": "900001"}).write(scene.sink, 0, topic, "a")
    told = scene.process(**{"kafka.transaction.timeout.ms": "600000"}).write(scene.sink, 0, topic, "a")
    driver = scene.process()
    driver.connections.brokers = SinkBrokers(driver.settings, now=lambda: time.time() + 590)
    with (
        caplog.at_level(logging.WARNING, "penstock.spark"),
        pytest.raises(NotDecided, match="it took too long for a transaction of 600000 ms"),
    ):
        driver.commit(scene.sink, 0, [told])
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        driver.commit(scene.sink, 0, [scene.write(0, "b")])
    assert len([each for each in caplog.records if "two-phase commit" in each.message]) == 1
    assert scene.committed() == Counter("b")
    for process in scene.processes:
        process.close()
