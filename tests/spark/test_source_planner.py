"""The source without Spark, against real brokers: what is planned batch after batch, and what tasks then read."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.arrow import Transaction, write_table
from penstock.model.ids import TopicPartition
from penstock.spark.source.errors import BadOption, DataLost, ForeignCheckpoint, OutOfRange, SourceUnreachable
from penstock.spark.source.fetching import close_connections, record_batches
from penstock.spark.source.offsets import Offsets, SparkOffset
from penstock.spark.source.options import stream_options
from penstock.spark.source.partitions import PiecePartition
from penstock.spark.source.reader import StreamReader
from penstock.spark.source.stream_planner import StreamPlanner
from penstock.testing import Cluster

NewTopic = Callable[..., str]
COLUMNS = ["offset", "value"]


@pytest.fixture(autouse=True)
def _impatient_and_tidy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("penstock.spark.source.topic_logs.PROPAGATION_S", 0.2)
    monkeypatch.setattr("penstock.spark.source.stream_planner.CATCH_UP_S", 0.2)
    yield
    close_connections()


def write(bootstrap: str, topic: str, rows: int, partition: int = 0, **more: Any) -> None:
    values = [b"%d" % number for number in range(rows)]
    table = pa.table({"value": values, "partition": pa.array([partition] * rows, pa.int32())})
    write_table(bootstrap, topic, table, partition="partition", **more)


@contextmanager
def planner(bootstrap: str, topic: str, **options: str) -> Iterator[StreamPlanner]:
    given = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest", "subscribe": topic}
    planning = StreamPlanner(stream_options(given | {name.replace("_", "."): each for name, each in options.items()}))
    try:
        yield planning
    finally:
        planning.close()


def read(planning: StreamPlanner, tasks: Sequence[InputPartition]) -> list[int]:
    """Offsets that the tasks of a batch deliver."""
    found: list[int] = []
    for task in tasks:
        assert isinstance(task, PiecePartition)
        for batch in record_batches(planning.options, COLUMNS, task):
            found += batch.column("offset").to_pylist()
    return found


def at(topic: str, *offsets: int) -> Offsets:
    return {TopicPartition(topic, index): offset for index, offset in enumerate(offsets)}


def test_batches_follow_one_another_and_new_partitions_are_read_from_their_beginning(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    write(cluster.bootstrap, topic, 100)
    write(cluster.bootstrap, topic, 20, partition=1)
    with planner(cluster.bootstrap, topic, maxOffsetsPerTrigger="60", kafka_metadata_max_age_ms="1") as planning:
        start = planning.initial()
        assert start == at(topic, 0, 0)
        first = planning.latest(start, everything=False)
        assert first == at(topic, 50, 10)
        assert planning.latest(first, everything=True) == at(topic, 100, 20)
        second = planning.latest(first, everything=False)
        assert second == at(topic, 100, 20)
        assert read(planning, planning.pieces(first, second)) == [*range(50, 100), *range(10, 20)]
        assert planning.latest(second, everything=False) == second
        with cluster.admin() as admin:
            admin.topics.add_partitions(topic, 3)
        write(cluster.bootstrap, topic, 5, partition=2)
        third = second
        while third == second:
            third = planning.latest(second, everything=False)
        while third[TopicPartition(topic, 2)] < 5:
            third = planning.latest(second, everything=False)
        assert third == at(topic, 100, 20, 5)
        assert read(planning, planning.pieces(second, third)) == [0, 1, 2, 3, 4]


def test_what_there_is_may_end_before_the_end(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    write(cluster.bootstrap, topic, 100)
    until = json.dumps({topic: {"0": 70, "1": 5}})
    with planner(cluster.bootstrap, topic, maxOffsetsPerTrigger="60", untilOffsets=until) as planning:
        start = planning.initial()
        planning.stop_at_present()
        first = planning.latest(start, everything=False)
        assert first == at(topic, 60, 0)
        second = planning.latest(first, everything=False)
        assert second == planning.latest(second, everything=False) == at(topic, 70, 0)
    with planner(cluster.bootstrap, topic, untilOffsets=json.dumps({topic: {"0": 70}})) as planning:
        planning.initial()
        with pytest.raises(BadOption, match=f"untilOffsets says nothing of {topic}-1"):
            planning.stop_at_present()


def test_an_idle_query_waits_at_the_broker_and_hears_of_a_record_at_once(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    with planner(cluster.bootstrap, topic) as planning:
        end = planning.latest(start := planning.initial(), everything=True)
        assert end == start
        began = time.monotonic()
        for _ in range(10):
            assert planning.latest(start, everything=True) == start
        assert time.monotonic() - began > 0.8  # a tenth of a second each, and not one question after another
        writing = threading.Timer(0.05, write, (cluster.bootstrap, topic, 1, 1))
        writing.start()
        deadline = time.monotonic() + 60
        while end == start and time.monotonic() < deadline:
            end = planning.latest(start, everything=True)
        writing.join()
        assert end == at(topic, 0, 1)


def test_transactions_end_the_log_where_they_are_open(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    with (
        Transaction(cluster.bootstrap, topic) as transaction,
        planner(cluster.bootstrap, topic, kafka_isolation_level="read_committed") as planning,
        planner(cluster.bootstrap, topic) as hasty,
    ):
        start = planning.initial()
        write(cluster.bootstrap, topic, 3, transaction=transaction)
        assert planning.latest(start, everything=True) == start
        assert hasty.latest(start, everything=True) == at(topic, 3)
        # A query that did not heed transactions before has read more than it may now: nothing is lost, it waits.
        assert planning.latest(at(topic, 3), everything=True) == at(topic, 3)
        transaction.abort()
        write(cluster.bootstrap, topic, 2, transaction=transaction)
        transaction.commit()
        end = start
        while end != at(topic, 7):  # with two markers
            end = planning.latest(start, everything=True)
        assert read(planning, planning.pieces(start, end)) == [4, 5]
        assert read(planning, planning.pieces(at(topic, 6), end)) == []  # nothing but a marker


def test_lost_records_are_an_error_that_says_which_or_passed_over(
    cluster: Cluster, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    write(cluster.bootstrap, topic, 10)
    with cluster.admin() as admin:
        admin.topics.delete_records({TopicPartition(topic, 0): 6})
    with planner(cluster.bootstrap, topic) as planning:
        assert planning.initial() == at(topic, 6)
        tasks = planning.pieces(at(topic, 2), at(topic, 10))
        with pytest.raises(DataLost, match=rf"^{topic}-0: offsets 2 to 5 are lost: .*failOnDataLoss"):
            read(planning, tasks)
        with pytest.raises(DataLost, match=rf"^{topic}-0: offsets 10 to 19 are lost: the log ends at 10 now"):
            planning.pieces(at(topic, 20), planning.latest(at(topic, 20), everything=True))
        with pytest.raises(DataLost, match=rf"^{topic}-1: was read up to 5, and is gone"):
            planning.pieces(at(topic, 10, 5), planning.latest(at(topic, 10, 5), everything=True))
    with planner(cluster.bootstrap, topic, failOnDataLoss="false") as planning:
        assert read(planning, planning.pieces(at(topic, 2), at(topic, 10))) == [6, 7, 8, 9]
        assert planning.pieces(at(topic, 20), end := planning.latest(at(topic, 20), everything=True)) == []
        assert end == at(topic, 10)
        assert "offsets 10 to 19 are lost" in caplog.text
    for start, said in ((3, "has offsets 6 to 10, 3 is not"), (11, "11 is not")):
        with (
            planner(cluster.bootstrap, topic, startingOffsets=json.dumps({topic: {"0": start}})) as planning,
            pytest.raises(OutOfRange, match=said),
        ):
            planning.initial()


def test_the_beginning_of_a_stream_stays_where_it_was_said_to_be(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    with planner(cluster.bootstrap, topic, startingOffsets="latest") as planning:
        start = planning.initial()
        end = planning.latest(start, everything=True)
        write(cluster.bootstrap, topic, 3)
        assert planning.initial() == start  # Spark asks again when it plans the batch that ends at `end`
        assert planning.pieces(planning.initial(), end) == []
        later = planning.latest(end, everything=True)
        assert read(planning, planning.pieces(end, later)) == [0, 1, 2]
    with planner(cluster.bootstrap, topic, startingOffsets="latest") as again:
        # After a crash in the first batch Spark plans it once more, from what is the latest now to where it ended.
        assert again.pieces(again.initial(), end) == []
        assert again.latest(end, everything=True) == later


def test_a_topic_that_was_deleted_and_created_again_is_another(cluster: Cluster, new_topic: NewTopic) -> None:
    topic, other = new_topic(), new_topic()
    write(cluster.bootstrap, topic, 5)
    options = {"kafka_metadata_max_age_ms": "1", "kafka_default_api_timeout_ms": "5000"}
    with (
        planner(cluster.bootstrap, f"{topic},{other}", **options) as planning,
        planner(cluster.bootstrap, f"{topic},{other}", failOnDataLoss="false", **options) as lenient,
    ):
        start = planning.initial()
        end = planning.latest(start, everything=True)
        tasks = planning.pieces(start, end)
        assert lenient.latest(lenient.initial(), everything=True) == end
        with cluster.admin() as admin:
            admin.topics.delete(topic)
            with pytest.raises(DataLost, match=f"^{topic}-0: was read up to 5, and is gone"):
                gone = end
                while gone == end:
                    gone = planning.latest(end, everything=True)
                planning.pieces(end, gone)
            assert [each.topic for each in lenient.latest(end, everything=True)] == [other]
            cluster.create_topic(topic)
        write(cluster.bootstrap, topic, 8)
        with pytest.raises(DataLost, match=f"^{topic}-0: offsets 0 to 4 are lost: .*deleted and created again"):
            read(planning, tasks)
        assert read(lenient, tasks) == []
        with pytest.raises(DataLost, match=f"{topic}-0: .*deleted and created again"):
            planning.latest(end, everything=True)
        again = lenient.latest(end, everything=True)
        assert again[TopicPartition(topic, 0)] == 8
        assert read(lenient, lenient.pieces(end, again)) == [*range(8)]
        with cluster.admin() as admin:
            admin.topics.delete(topic)
            cluster.create_topic(topic)  # before anybody has seen that it was gone
        write(cluster.bootstrap, topic, 2)
        third = again
        while third == again:
            third = lenient.latest(again, everything=True)
        assert read(lenient, lenient.pieces(again, third)) == [0, 1]


def test_offsets_of_a_topic_that_was_replaced_while_the_query_was_stopped(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    """Its successor has more records than the query has read: only the ids in the checkpoint tell them apart."""
    topic, other = new_topic(), new_topic()
    write(cluster.bootstrap, topic, 5)
    write(cluster.bootstrap, other, 2)
    strict, lenient = {"subscribe": f"{topic},{other}"}, {"subscribe": f"{topic},{other}", "failOnDataLoss": "false"}
    with reader(cluster.bootstrap, strict) as first:
        start = first.initialOffset()
        end = first.latestOffset(start, ReadAllAvailable())
        assert first.latestOffset(end, ReadAllAvailable()) == end
        bare = {name: each for name, each in end.items() if name in (topic, other)}
        assert first.latestOffset(bare, ReadAllAvailable()) == bare  # by an earlier version, and nothing is new
        write(cluster.bootstrap, other, 1)
        later = first.latestOffset(bare, ReadAllAvailable())
        while later == bare:
            later = first.latestOffset(bare, ReadAllAvailable())
        assert set(later["topic ids"]) == {topic, other}
        assert offsets_of(first, bare, later) == {other: [2]}
    with cluster.admin() as admin:
        admin.topics.delete(topic)
        cluster.create_topic(topic)
    write(cluster.bootstrap, topic, 8)

    said = f"^{topic}-0: the checkpoint is at offset 5 of a topic that was deleted and created again; .*failOnDataLoss"
    with reader(cluster.bootstrap, strict) as again:
        with pytest.raises(DataLost, match=said):
            again.latestOffset(later, ReadAllAvailable())
        with pytest.raises(DataLost, match=said):
            again.partitions(end, later)  # a batch that was planned, and did not end
    with reader(cluster.bootstrap, lenient) as again:
        assert offsets_of(again, end, later) == {other: [2]}
        following = again.latestOffset(later, ReadAllAvailable())
        assert offsets_of(again, later, following) == {topic: [*range(8)]}
        assert again.latestOffset(following, ReadAllAvailable()) == following
    with reader(cluster.bootstrap, strict) as again:
        assert again.latestOffset(following, ReadAllAvailable()) == following


@contextmanager
def reader(bootstrap: str, options: dict[str, str]) -> Iterator[StreamReader]:
    given = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest", **options}
    reading = StreamReader(stream_options(given), COLUMNS)
    try:
        yield reading
    finally:
        reading.stop()


def offsets_of(reading: StreamReader, start: SparkOffset, end: SparkOffset) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for task in reading.partitions(start, end):
        assert isinstance(task, PiecePartition)
        for batch in reading.read(task):
            found.setdefault(task.topic, []).extend(batch.column("offset").to_pylist())
    return found


def test_a_checkpoint_of_another_query_is_told_apart(cluster: Cluster, new_topic: NewTopic) -> None:
    topic, other = new_topic(), new_topic()
    with (
        planner(cluster.bootstrap, topic) as planning,
        pytest.raises(
            ForeignCheckpoint, match=f"topic '{other}', which subscribe={topic} does not read.*checkpointLoc"
        ),
    ):
        planning.latest(at(other, 5), everything=True)
    with planner(cluster.bootstrap, topic, failOnDataLoss="false") as planning:
        assert planning.latest(at(other, 5), everything=True) == at(topic, 0)
    fewer = {"kafka.bootstrap.servers": cluster.bootstrap, "assign": json.dumps({topic: [0]})}
    with (
        closing(StreamPlanner(stream_options(fewer))) as planning,
        pytest.raises(ForeignCheckpoint, match=f"holds offsets of {topic}-1, which assign="),
    ):
        planning.latest(at(topic, 0, 5), everything=True)


def test_a_batch_that_has_lost_records_is_not_stored(cluster: Cluster, new_topic: NewTopic) -> None:
    """Spark stores the end of a batch before it asks what to read, and repeats the batch until it succeeds."""
    topic, other = new_topic(), new_topic()
    write(cluster.bootstrap, topic, 10)
    write(cluster.bootstrap, other, 10)
    with planner(cluster.bootstrap, f"{topic},{other}", kafka_metadata_max_age_ms="1") as planning:
        end = planning.latest(planning.initial(), everything=True)
        with pytest.raises(DataLost, match=f"^{topic}-0: offsets 10 to 19 are lost: the log ends at 10 now"):
            planning.latest({**end, **at(topic, 20)}, everything=True)
        with cluster.admin() as admin:
            admin.topics.delete(other)
        with pytest.raises(DataLost, match=f"^{other}-0: was read up to 10, and is gone"):
            while planning.latest(end, everything=True):
                pass


def test_what_cannot_be_found_is_said_at_once(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    with planner(cluster.bootstrap, topic + "s") as planning, pytest.raises(BadOption, match=f"Did you mean '{topic}'"):
        planning.initial()
    with (
        planner("127.0.0.1:1", topic) as planning,
        pytest.raises(SourceUnreachable, match=r"127\.0\.0\.1:1: Connection refused \(kafka\.bootstrap\.servers=127"),
    ):
        planning.initial()
    both = {"kafka.bootstrap.servers": cluster.bootstrap}
    for given, said in (
        ({"subscribePattern": "nothing-.*"}, "matches no topic"),
        ({"assign": json.dumps({topic: [0, 7]})}, f"assign names {topic}-7"),
    ):
        with pytest.raises(BadOption, match=said), closing(StreamPlanner(stream_options(both | given))) as planning:
            planning.initial()


def test_times_say_where_to_begin(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    times = pa.array([1000, 5000, 3000, 9000], pa.timestamp("ms", "UTC"))
    table = pa.table({"value": [b"v"] * 4, "time": times, "partition": pa.array([0] * 4, pa.int32())})
    write_table(cluster.bootstrap, topic, table, timestamp="time", partition="partition")
    with (
        planner(cluster.bootstrap, topic, startingTimestamp="2000") as planning,
        pytest.raises(OutOfRange, match=rf"{topic}-1 has no record at or after 2000; .*Strategy"),
    ):
        planning.initial()
    later = {"startingTimestamp": "2000", "startingOffsetsByTimestampStrategy": "latest"}
    with planner(cluster.bootstrap, topic, **later) as planning:
        assert planning.initial() == at(topic, 1, 0)
    later = {"startingOffsetsByTimestamp": json.dumps({topic: {"0": 6000, "1": 0}})} | later
    del later["startingTimestamp"]
    with planner(cluster.bootstrap, topic, **later) as planning:
        assert planning.initial() == at(topic, 3, 0)


def test_leaders_die_while_a_stream_is_planned_and_read(three_brokers: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    rows = 0
    with planner(three_brokers.bootstrap, topic, maxOffsetsPerTrigger="70") as planning:
        start = planning.initial()
        delivered: list[int] = []
        for round_of in range(2):
            for index in range(3):
                write(three_brokers.bootstrap, topic, 50, partition=index)
                rows += 50
            if round_of == 0:
                three_brokers.kill(three_brokers.leader_of(topic, 1))
            while (end := planning.latest(start, everything=False)) != start or len(delivered) < rows:
                delivered += read(planning, planning.pieces(start, end))
                start = end
        assert len(delivered) == rows
        assert sorted(delivered) == sorted([*range(100)] * 3)


def test_the_group_that_was_named_follows_the_query(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    write(cluster.bootstrap, topic, 10)
    with planner(cluster.bootstrap, topic, kafka_group_id=topic) as planning, cluster.admin() as admin:
        start = planning.initial()
        for offsets, behind in ((start, 10), (at(topic, 10), 0)):
            deadline = time.monotonic() + 60
            while admin.groups.offsets(topic).keys() != offsets.keys() and time.monotonic() < deadline:
                planning.latest(offsets, everything=True)  # again, if the coordinator was not ready yet
            while [each.lag for each in admin.groups.lag(topic)] != [behind] and time.monotonic() < deadline:
                planning.latest(offsets, everything=True)
            assert [each.lag for each in admin.groups.lag(topic)] == [behind]
