"""A partition that is read and written without Arrow, against a real broker."""

from __future__ import annotations

import random
import subprocess
import sys
import time

import pytest

from client_world import NewTopic
from penstock import Admin, Producer
from penstock.client.errors import UnknownTopic
from penstock.client.wire.partition_log import PartitionLog
from penstock.model.ids import TopicPartition
from penstock.pipelines.operate.reports import PipelineReport
from penstock.spark.progress.topic import PipelinesTopic
from penstock.testing.nodes import RunningNode, start_node

HEAVY = {"numba", "numpy", "pyarrow", "pandas", "pyspark", "rich"}


def test_what_was_appended_is_read_from_any_offset(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with PartitionLog(bootstrap, TopicPartition(topic, 0)) as log:
        assert list(log.read()) == []
        for number in range(3):
            log.append(b"k%d" % number, b"v%d" % number)
        records = list(log.read())
        assert [(each.offset, each.key, each.value) for each in records] == [
            (number, b"k%d" % number, b"v%d" % number) for number in range(3)
        ]
        assert [each.offset for each in log.read(2)] == [2]
        with Admin(bootstrap) as admin:
            admin.topics.delete_records({TopicPartition(topic, 0): 1})
        assert [each.offset for each in log.read()] == [1, 2]


def test_batches_of_a_producer_are_read_whatever_they_look_like(bootstrap: str, new_topic: NewTopic) -> None:
    """Many answers, compressed batches, the markers of transactions."""
    topic = new_topic()
    value = random.Random(1).randbytes(900_000)
    with Producer(bootstrap, compression="zstd") as producer:
        for number in range(6):
            producer.send(topic, value, key=b"%d" % number)
    with Producer(bootstrap, transactional_id=f"of {topic}") as producer, producer.transaction():
        producer.send(topic, b"last", key=b"6")

    with PartitionLog(bootstrap, TopicPartition(topic, 0)) as log:
        records = list(log.read())

    assert [each.key for each in records] == [b"%d" % number for number in range(7)]
    assert [each.value for each in records] == [value] * 6 + [b"last"]


def test_a_missing_topic_is_unknown(bootstrap: str) -> None:
    with PartitionLog(bootstrap, TopicPartition("no-such-topic", 0)) as log, pytest.raises(UnknownTopic):
        next(log.read())


def test_a_broker_that_was_away_is_asked_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    with start_node(tmp_path_factory.mktemp("log") / "node") as node:
        with Admin(node.bootstrap) as admin:
            admin.topics.create("notes", partitions=1)
        with PartitionLog(node.bootstrap, TopicPartition("notes", 0)) as log:
            log.append(b"a", b"1")
            node.kill()
            node.start()
            log.append(b"b", b"2")
            assert [each.key for each in log.read()] == [b"a", b"b"]


@pytest.mark.parametrize("command", [["pipeline", "list"], ["pipeline", "status", "orders"], ["spark", "status"]])
def test_commands_that_only_look_are_not_kept_waiting_by_imports(broker: RunningNode, command: list[str]) -> None:
    now_ms = time.time_ns() // 1_000_000
    report = PipelineReport(name="orders", run_id="1", state="running", started_ms=now_ms, heartbeat_ms=now_ms)
    topic = PipelinesTopic(broker.bootstrap, timeout=10.0)
    topic.put("pipeline/orders", report.to_json())
    topic.close()
    program = (
        "import sys; from penstock.cli.main import run; status = run(sys.argv[1:]); "
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr); sys.exit(status)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, *command, "-b", broker.bootstrap], capture_output=True, text=True, check=True
    )

    assert command == ["spark", "status"] or "orders" in done.stdout
    assert not HEAVY & set(done.stderr.splitlines()[-1].split())
