"""Reading and writing go on when leaders die: nothing is missing, nothing comes twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypedDict

import pyarrow as pa
import pytest

from penstock.arrow import Transaction, Writer, read_table, scan
from penstock.testing.clusters import RunningCluster, start_cluster


class Patience(TypedDict):
    request_timeout: float
    timeout: float


PARTITIONS = 3
PATIENCE: Patience = {"request_timeout": 5.0, "timeout": 60.0}
PROPERTIES = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with start_cluster(tmp_path_factory.mktemp("cluster"), brokers=3, properties=PROPERTIES) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: RunningCluster, unique_topic: Callable[[str], str]) -> str:
    name = unique_topic("moving")
    cluster.create_topic(name, PARTITIONS)
    return name


class Background:
    """A function in a thread, whose failure is the test's."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function,))
        self._thread.start()

    def _run(self, function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as failure:  # noqa: BLE001
            self._failure = failure

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join()
        if self._failure is not None:
            raise self._failure


def numbered(first: int, count: int) -> Any:
    return pa.table({"value": range(first, first + count)})


def values(table: Any) -> list[int]:
    found: list[int] = table["value"].to_pylist()
    return found


@pytest.mark.parametrize("transactional", [False, True], ids=["idempotent", "transaction"])
def test_writing_past_a_killed_leader(
    cluster: RunningCluster, topic: str, unique_topic: Callable[[str], str], transactional: bool
) -> None:
    """Small batches, so that some are under way at any time; each table is confirmed before the next."""
    stop, progress, written = threading.Event(), threading.Condition(), [0]

    def write() -> None:
        transaction = Transaction(cluster.bootstrap, unique_topic("tx")) if transactional else None
        with Writer(cluster.bootstrap, batch_bytes=500, **PATIENCE, transaction=transaction) as writer:
            while not stop.is_set():
                writer.write(topic, numbered(written[0], 200))
                if transaction is not None:
                    transaction.commit()
                with progress:
                    written[0] += 200
                    progress.notify_all()
        if transaction is not None:
            transaction.close()

    writing = Background(write)

    def wait_for_more() -> None:
        target = written[0] + 1000
        with progress:
            assert progress.wait_for(lambda: written[0] >= target or not writing.is_alive, timeout=60)

    try:
        wait_for_more()
        leader = cluster.leader_of(topic, 0)
        leader.kill()
        wait_for_more()
        leader.start()
        wait_for_more()
    finally:
        stop.set()
        writing.join()
    assert sorted(values(read_table(cluster.bootstrap, topic, value="int64"))) == list(range(written[0]))


def test_scanning_past_a_killed_leader(cluster: RunningCluster, topic: str) -> None:
    with Writer(cluster.bootstrap, batch_bytes=500) as writer:
        writer.write(topic, numbered(0, 3000))
    bounded = scan(cluster.bootstrap, topic, value="int64", batch_bytes=2000, **PATIENCE)
    following = scan(cluster.bootstrap, topic, value="int64", follow=True, batch_bytes=2000, **PATIENCE)
    with bounded, following:
        first, second = values(next(bounded)), values(next(following))
        leader = cluster.leader_of(topic, 1)
        leader.kill()
        for batch in bounded:
            first += values(batch)
        assert sorted(first) == list(range(3000))

        def write() -> None:
            with Writer(cluster.bootstrap, batch_bytes=500, **PATIENCE) as writer:
                writer.write(topic, numbered(3000, 500))

        writing = Background(write)
        while len(second) < 3500:
            second += values(next(following))
        assert sorted(second) == list(range(3500))
        writing.join()
        leader.start()
    cluster.wait_for_isr(topic)
    assert sorted(values(read_table(cluster.bootstrap, topic, value="int64"))) == list(range(3500))


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_many_killed_stopped_and_paused_leaders(
    cluster: RunningCluster, topic: str, unique_topic: Callable[[str], str]
) -> None:
    """One writes, one writes in transactions and aborts every other one, one follows; brokers come and go."""
    stop, complete = threading.Event(), threading.Event()
    follower: list[int] = []
    counts = {"plain": 0, "committed": 0}

    def write() -> None:
        with Writer(cluster.bootstrap, batch_bytes=500, **PATIENCE) as writer:
            while not stop.is_set():
                writer.write(topic, numbered(counts["plain"], 200))
                counts["plain"] += 200

    def transact() -> None:
        with (
            Transaction(cluster.bootstrap, unique_topic("tx"), request_timeout=5.0) as transaction,
            Writer(cluster.bootstrap, batch_bytes=500, **PATIENCE, transaction=transaction) as writer,
        ):
            while not stop.is_set():
                writer.write(topic, numbered(10**9 + counts["committed"], 100))
                transaction.commit()
                counts["committed"] += 100
                writer.write(topic, numbered(2 * 10**9, 100))
                transaction.abort()

    def follow() -> None:
        with scan(cluster.bootstrap, topic, value="int64", follow=True, batch_bytes=5000, **PATIENCE) as scanned:
            for batch in scanned:
                follower.extend(values(batch))
                if complete.is_set() and len(follower) >= sum(counts.values()):
                    return

    working = [Background(write), Background(transact)]
    following = Background(follow)
    try:
        for number in range(12):
            seen = len(follower)
            leader = cluster.leader_of(topic, number % PARTITIONS)
            harm = ("kill", "stop", "pause")[number % 3]
            getattr(leader, harm)()
            cluster.wait_until(lambda: len(follower) > seen + 2000, "progress", 120.0)  # noqa: B023
            leader.resume() if harm == "pause" else leader.start()
            cluster.wait_for_isr(topic)
    finally:
        stop.set()
        for each in working:
            each.join()
    counts["plain"] += 1
    complete.set()
    with Writer(cluster.bootstrap) as writer:  # the last record, which the follower waits for
        writer.write(topic, numbered(counts["plain"] - 1, 1))
    following.join()
    expected = [*range(counts["plain"]), *range(10**9, 10**9 + counts["committed"])]
    assert sorted(follower) == expected
    assert sorted(values(read_table(cluster.bootstrap, topic, value="int64"))) == expected
