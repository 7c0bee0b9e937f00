"""Two-phase commit (KIP-939) on real brokers: a prepared transaction outlives its producer and its coordinator, and
any client that knows its id can end it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from clients.librdkafka import close
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.testing.clusters import RunningCluster, start_cluster
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until
from wire import Closed, Wire, batch, create_topic, only_partition, produce_request

PATIENCE_S = 60
TRANSACTIONS = 1
ENABLED = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "transaction.state.log.num.partitions": "3",
}
# What goes away by itself: another broker is to be asked, or the last ending is still being written.
PASSING = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}

Pair = tuple[int, int]


class Process:
    """A client that remembers nothing: every request is a connection of its own, and finds its broker anew."""

    def __init__(self, *brokers: RunningNode) -> None:
        self._brokers = brokers

    def _ask_any(self, ask: Callable[[Wire], Any]) -> Any:
        """Of the brokers that run the one that can answer, once there is one."""
        deadline = time.monotonic() + PATIENCE_S
        answer: Any = "no broker runs"
        while True:
            for broker in self._brokers:
                try:
                    if broker.running:
                        with Wire(broker) as wire:
                            answer = ask(wire)
                        if ErrorCode(answer.error_code) not in PASSING:
                            return answer
                except (OSError, Closed) as lost:
                    answer = lost
            assert time.monotonic() < deadline, answer
            time.sleep(0.02)

    def coordinator(self, transactional_id: str) -> Any:
        def ask(wire: Wire) -> Any:
            request = FindCoordinatorRequest(key_type=TRANSACTIONS, coordinator_keys=[transactional_id])
            (found,) = wire.ask(request).coordinators
            return found

        return self._ask_any(ask)

    def init(self, transactional_id: str, *, keep: bool = False, two_phase: bool = True) -> Any:
        self.coordinator(transactional_id)
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=1,
            enable2_pc=two_phase,
            keep_prepared_txn=keep,
        )
        answer = self._ask_any(lambda wire: wire.ask(request, 6))
        assert answer.error_code == ErrorCode.NONE, answer
        return answer

    def begin(self, transactional_id: str, **options: bool) -> Pair:
        answer = self.init(transactional_id, **options)
        return answer.producer_id, answer.producer_epoch

    def write(self, transactional_id: str, pair: Pair, topic: str, *values: str, partition: int = 0) -> ErrorCode:
        """It is on all replicas on return."""
        data = batch(*values, producer_id=pair[0], producer_epoch=pair[1], base_sequence=0, transactional=True)
        request = produce_request(topic, data, partition=partition)
        request.transactional_id = transactional_id
        return ErrorCode(self._ask_any(lambda wire: only_partition(wire.ask(request, 12))).error_code)

    def end(self, transactional_id: str, pair: Pair, *, commit: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=pair[0], producer_epoch=pair[1], committed=commit
        )
        return ErrorCode(self._ask_any(lambda wire: wire.ask(request)).error_code)

    def describe(self, transactional_id: str) -> Any:
        def ask(wire: Wire) -> Any:
            (state,) = wire.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id])).transaction_states
            return state

        return self._ask_any(ask)

    def wait_for(self, transactional_id: str, state: str) -> None:
        def found() -> str:
            return str(self.describe(transactional_id).transaction_state)

        wait_until(lambda: found() == state, lambda: f"{state}, not {found()}", PATIENCE_S)

    def committed(self, topic: str, partition: int = 0) -> list[str]:
        """What a reader of committed records sees now."""
        consumer = Consumer(
            {
                "bootstrap.servers": ",".join(broker.bootstrap for broker in self._brokers if broker.running),
                "group.id": "unused",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
            }
        )
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        found: list[str] = []
        deadline = time.monotonic() + PATIENCE_S
        try:
            while True:
                message = consumer.poll(0.1)
                error = None if message is None else message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return found
                if message is not None and error is None:
                    found.append((message.value() or b"").decode())
                assert time.monotonic() < deadline, error
        finally:
            close(consumer)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with start_node(tmp_path_factory.mktemp("two-phase") / "node", properties=ENABLED) as running:
        yield running


@pytest.fixture
def topic(node: RunningNode, unique_topic: Callable[[str], str]) -> str:
    name = unique_topic("prepared")
    with Wire(node) as wire:
        create_topic(wire, name, partitions=3)
    return name


def served(node: RunningNode) -> int:
    with Wire(node) as wire:
        request = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
        versions: list[ApiVersion] = wire.ask(request).api_keys
    return next(each.max_version for each in versions if each.api_key == ApiKey.INIT_PRODUCER_ID)


def test_served_only_where_it_is_allowed(broker: RunningNode, node: RunningNode) -> None:
    assert (served(broker), served(node)) == (5, 6)
    with Wire(broker) as wire:
        wire.send(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000), 6)
        assert wire.is_closed()


@pytest.mark.parametrize("commit", [True, False])
def test_whoever_comes_back_ends_what_was_prepared(node: RunningNode, topic: str, commit: bool) -> None:
    writer, successor = Process(node), Process(node)
    pair = writer.begin(topic)
    assert writer.write(topic, pair, topic, "a", "b") is ErrorCode.NONE
    assert writer.write(topic, pair, topic, "c", partition=1) is ErrorCode.NONE
    assert successor.committed(topic) == []

    answer = successor.init(topic, keep=True)
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == pair
    # The writer was not dead after all: it can neither go elsewhere nor end it.
    assert writer.write(topic, pair, topic, "late", partition=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert writer.end(topic, pair, commit=not commit) is ErrorCode.PRODUCER_FENCED
    successors = (answer.producer_id, answer.producer_epoch)
    assert successor.end(topic, successors, commit=commit) is ErrorCode.NONE
    successor.wait_for(topic, "CompleteCommit" if commit else "CompleteAbort")
    assert successor.committed(topic) == (["a", "b"] if commit else [])
    assert successor.committed(topic, 1) == (["c"] if commit else [])
    # There is nothing left to keep, and the next transaction is one of its own.
    answer = successor.init(topic, keep=True)
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (-1, -1)


def test_another_process_commits_what_it_was_told_of(node: RunningNode, topic: str) -> None:
    """As a driver does with what its tasks have written: several transactions, some of them of losers."""
    tasks = {f"{topic}.task.{number}": Process(node) for number in range(4)}
    told: dict[str, Pair] = {}
    for number, (transactional_id, task) in enumerate(tasks.items()):
        pair = told[transactional_id] = task.begin(transactional_id)
        assert task.write(transactional_id, pair, topic, f"{number}", partition=number % 2) is ErrorCode.NONE
    driver = Process(node)
    winners = list(told)[:2]
    for transactional_id in winners:
        state = driver.describe(transactional_id)
        assert (state.transaction_state, (state.producer_id, state.producer_epoch)) == (
            "Ongoing",
            told[transactional_id],
        )
    for transactional_id in winners:
        assert driver.end(transactional_id, told[transactional_id], commit=True) is ErrorCode.NONE
    # It crashes, and does all of it again.
    for transactional_id in winners:
        assert driver.end(transactional_id, told[transactional_id], commit=True) is ErrorCode.NONE
    # Who is not among the decided is found by its name.
    pattern = rf"\Q{topic}.task.\E\d+"
    with Wire(node) as wire:
        request = ListTransactionsRequest(state_filters=["Ongoing"], transactional_id_pattern=pattern)
        open_ids = {each.transactional_id for each in wire.ask(request).transaction_states}
        assert open_ids == set(told) - set(winners)
        request = ListTransactionsRequest(transactional_id_pattern="(")
        assert wire.ask(request).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    for transactional_id in open_ids:
        driver.init(transactional_id)
    for transactional_id in winners:
        driver.wait_for(transactional_id, "CompleteCommit")
    assert driver.committed(topic) == ["0"]
    assert driver.committed(topic, 1) == ["1"]
    # A worker goes on under its name with the next batch.
    worker, name = tasks[winners[0]], winners[0]
    assert worker.write(name, told[name], topic, "zombie") is ErrorCode.INVALID_PRODUCER_EPOCH
    pair = worker.begin(name)
    assert worker.write(name, pair, topic, "next") is ErrorCode.NONE
    assert driver.end(name, pair, commit=True) is ErrorCode.NONE
    driver.wait_for(name, "CompleteCommit")
    assert driver.committed(topic) == ["0", "next"]


def test_no_time_out_and_no_restart_ends_it(tmp_path: Path) -> None:
    with start_node(tmp_path / "node", properties=ENABLED) as node:
        process = Process(node)
        with Wire(node) as wire:
            create_topic(wire, "t")
        pair = process.begin("two-phase")
        assert process.write("two-phase", pair, "t", "prepared") is ErrorCode.NONE
        # Both have asked for a millisecond; only one of them is held to it.
        assert process.write("plain", process.begin("plain", two_phase=False), "t", "slow") is ErrorCode.NONE
        process.wait_for("plain", "CompleteAbort")
        assert process.describe("two-phase").transaction_state == "Ongoing"
        node.kill()
        node.start()
        assert process.write("other", process.begin("other", two_phase=False), "t", "slow") is ErrorCode.NONE
        process.wait_for("other", "CompleteAbort")
        assert process.committed("t") == []
        answer = process.init("two-phase", keep=True)
        assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == pair
        node.restart()
        successors = (answer.producer_id, answer.producer_epoch)
        assert process.end("two-phase", successors, commit=True) is ErrorCode.NONE
        process.wait_for("two-phase", "CompleteCommit")
        assert process.committed("t") == ["prepared"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    directory = tmp_path_factory.mktemp("two-phase") / "cluster"
    with start_cluster(directory, brokers=3, controllers=1, properties=ENABLED) as running:
        running.create_topic("t", partitions=3, replicas=3, configs={"min.insync.replicas": "2"})
        yield running


def test_it_outlives_its_coordinator(cluster: RunningCluster) -> None:
    writer = Process(*cluster.brokers)
    pairs = {}
    for name in ("kept", "told", "aborted"):
        pairs[name] = writer.begin(name)
        for partition in range(3):
            assert writer.write(name, pairs[name], "t", name, partition=partition) is ErrorCode.NONE
    cluster.wait_for_isr("__transaction_state")
    # Each of their coordinators dies once, and comes back before the next one does.
    for name in pairs:
        lost = cluster.broker(writer.coordinator(name).node_id)
        lost.kill()
        driver = Process(*cluster.brokers)
        assert driver.describe(name).transaction_state == "Ongoing"
        if name == "told":
            assert driver.end(name, pairs[name], commit=True) is ErrorCode.NONE
        else:
            answer = driver.init(name, keep=True)
            assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == pairs[name]
            successors = (answer.producer_id, answer.producer_epoch)
            assert driver.end(name, successors, commit=name == "kept") is ErrorCode.NONE
        lost.start()
        cluster.wait_for_isr("__transaction_state")
        cluster.wait_for_isr("t")
    for name in pairs:
        writer.wait_for(name, "CompleteAbort" if name == "aborted" else "CompleteCommit")
    for partition in range(3):
        assert sorted(writer.committed("t", partition)) == ["kept", "told"]
