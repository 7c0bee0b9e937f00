"""`Consumer`: what is read, what is committed, and by whom after whom."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from client_world import NewTopic
from narrowing import present
from penstock import Consumer, Json, Producer, Record, String, TopicPartition
from penstock.client.errors import (
    BadSetting,
    ClientError,
    Closed,
    OffsetOutOfRange,
    Undeserializable,
    UnknownTopic,
    Unreachable,
    WrongThread,
)
from penstock.serializers import Context
from waiting import wait_until

# A seek waits for the fetch that is under way, a rebalance for the next heartbeat.
PROMPT = {"fetch.wait.max.ms": 20, "heartbeat.interval.ms": 50}


@pytest.fixture
def group(unique_topic: Callable[[str], str]) -> str:
    return unique_topic("group")


def fill(bootstrap: str, topic: str, count: int, partition: int = 0, start: int = 0) -> None:
    with Producer(bootstrap, value=String()) as producer:
        for number in range(start, start + count):
            producer.send(topic, str(number), partition=partition, timestamp=1000 * (number + 1))


def read(consumer: Consumer[bytes, bytes], count: int) -> list[int]:
    values: list[int] = []
    while len(values) < count:
        record = consumer.poll(60)
        assert record is not None, values
        values.append(int(record.value))
    return values


def committed(bootstrap: str, topic: str, group: str) -> int | None:
    with Consumer(bootstrap, group=group, auto_commit=False) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return consumer.committed()[TopicPartition(topic, 0)]


def test_records_as_they_were_sent(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap, key=String(), value=Json()) as producer:
        producer.send(topic, {"n": 1}, key="k", timestamp=7, headers={"a": b"1"})
        producer.send(topic, None)
    nullable: Consumer[str | None, Any] = Consumer(bootstrap, topic, key=String(), value=Json())
    with nullable as consumer:
        one, two = itertools.islice(consumer, 2)
        assert list(consumer.records(idle=0.1)) == []
    assert (one.topic, one.partition, one.offset, one.timestamp) == (topic, 0, 0, 7)
    assert (one.key, one.value, one.headers) == ("k", {"n": 1}, [("a", b"1")])
    assert (two.key, two.value, two.headers) == (None, None, [])
    assert repr(one) == f"Record({topic}-0@0, key='k', value={{'n': 1}})"


def test_a_batch_is_a_sequence_of_records(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 10)
    with Consumer(bootstrap, topic, value=String()) as consumer:
        records: list[Record[bytes, str]] = []
        while len(records) < 10:
            batch = consumer.batch(4, 60)
            assert 1 <= len(batch) <= 4
            assert [record.value for record in batch] == batch.values()
            assert batch.keys() == [None] * len(batch)
            assert batch[0].offset == batch[-len(batch)].offset == batch[:1][0].offset
            assert batch[-1] == list(batch)[-1]
            with pytest.raises(IndexError):
                batch[len(batch)]
            records += batch
        assert not consumer.batch(4, 0)
    assert [(record.offset, record.value) for record in records] == [(number, str(number)) for number in range(10)]


def test_a_record_for_tests_of_ones_own() -> None:
    record = Record.of("t", "v", key="k", partition=2, offset=3, timestamp=4, headers=[("h", b"1")])
    assert (record.topic, record.partition, record.offset, record.timestamp) == ("t", 2, 3, 4)
    assert (record.key, record.value, record.header("h")) == ("k", "v", b"1")


def test_what_was_read_is_committed_in_the_end(bootstrap: str, new_topic: NewTopic, group: str) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 10)
    with Consumer(bootstrap, topic, group=group) as consumer:
        assert read(consumer, 3) == [0, 1, 2]
    assert committed(bootstrap, topic, group) == 3
    with Consumer(bootstrap, topic, group=group) as consumer:
        assert [int(record.value) for record in consumer.batch(4, 60)] == [3, 4, 5, 6]
    with Consumer(bootstrap, topic, group=group) as consumer:
        assert read(consumer, 3) == [7, 8, 9]
        assert consumer.lag() == {TopicPartition(topic, 0): 0}


def test_what_an_exception_interrupted_is_read_again(bootstrap: str, new_topic: NewTopic, group: str) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 10)
    with pytest.raises(ZeroDivisionError), Consumer(bootstrap, topic, group=group) as consumer:
        for record in consumer:
            1 // (4 - int(record.value))
    with pytest.raises(ZeroDivisionError), Consumer(bootstrap, topic, group=group) as consumer:
        assert consumer.batch(2, 60).values() == [b"4", b"5"]
        assert consumer.batch(2, 60).values() == [b"6", b"7"]
        raise ZeroDivisionError
    with Consumer(bootstrap, topic, group=group) as consumer:
        assert read(consumer, 1) == [6]


def test_commits_by_hand(bootstrap: str, new_topic: NewTopic, group: str) -> None:
    topic = new_topic()
    place = TopicPartition(topic, 0)
    fill(bootstrap, topic, 10)
    with Consumer(bootstrap, topic, group=group, auto_commit=False) as consumer:
        records = [consumer.poll(60) for _ in range(5)]
        assert consumer.committed() == {place: None}
        consumer.commit(records[1])
        assert consumer.committed() == {place: 2}
        consumer.commit()
        assert consumer.committed() == {place: 5}
        assert consumer.positions() == {place: 5}
        assert read(consumer, 1) == [5]
        consumer.rewind()
        assert read(consumer, 2) == [5, 6]
    assert committed(bootstrap, topic, group) == 5
    with Consumer(bootstrap, topic) as alone, pytest.raises(ClientError, match="group"):
        alone.commit()


def test_seeking(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    place = TopicPartition(topic, 0)
    fill(bootstrap, topic, 10)
    with Consumer(bootstrap, topic, settings=PROMPT) as consumer:
        assert consumer.lag() == {place: 10}
        assert read(consumer, 3) == [0, 1, 2]
        consumer.seek(topic, 0, 7)
        assert (consumer.positions(), consumer.lag()) == ({place: 7}, {place: 3})
        assert read(consumer, 2) == [7, 8]
        consumer.seek(topic, 0, "earliest")
        assert read(consumer, 2) == [0, 1]
        consumer.seek(topic, 0, "latest")
        assert consumer.positions() == {place: 10}
        fill(bootstrap, topic, 1, start=10)
        assert read(consumer, 1) == [10]
        consumer.seek_to_time(4500)
        assert read(consumer, 2) == [4, 5]
        consumer.seek_to_time(10**9)
        assert consumer.positions() == {place: 11}
        with pytest.raises(ClientError, match="not assigned"):
            consumer.seek(topic, 5, 0)


def test_assigned_by_hand(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    for partition in range(3):
        fill(bootstrap, topic, 5, partition, start=100 * partition)
    with Consumer(bootstrap, topic, start="latest") as consumer:
        fill(bootstrap, topic, 1, 2, start=300)
        assert read(consumer, 1) == [300]
    with Consumer(bootstrap) as consumer:
        consumer.assign({TopicPartition(topic, 1): 3, TopicPartition(topic, 2): "latest"})
        assert read(consumer, 2) == [103, 104]
        assert consumer.assignment() == [TopicPartition(topic, 1), TopicPartition(topic, 2)]
        consumer.assign([TopicPartition(topic, 0)])
        assert read(consumer, 5) == [0, 1, 2, 3, 4]


def test_where_a_new_group_starts(bootstrap: str, new_topic: NewTopic, group: str) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 3)
    with Consumer(bootstrap, topic, group=f"{group}-latest", start="latest") as consumer:
        wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "let in")
        wait_until(lambda: consumer.poll(0.1) is None and consumer.lag() == {TopicPartition(topic, 0): 0}, "at the end")
    strict = Consumer(bootstrap, topic, group=f"{group}-error", start="error")
    with strict, pytest.raises(OffsetOutOfRange, match="earliest"):
        read(strict, 1)
    with Consumer(bootstrap, topic, group=group) as consumer:
        assert read(consumer, 1) == [0]


def test_pause_and_resume(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    fill(bootstrap, topic, 5, 0)
    fill(bootstrap, topic, 5, 1, start=100)
    with Consumer(bootstrap, topic) as consumer:
        first = read(consumer, 1)[0]
        paused = TopicPartition(topic, first // 100)
        consumer.pause(paused)
        others = read(consumer, 5)
        assert others == [100 - 100 * paused.partition + number for number in range(5)]
        assert consumer.poll(0.2) is None
        consumer.resume(paused)
        assert read(consumer, 4) == [first + number for number in range(1, 5)]


def test_members_share_partitions_and_hooks_are_told(bootstrap: str, new_topic: NewTopic, group: str) -> None:
    topic = new_topic(partitions=2)
    for partition in range(2):
        fill(bootstrap, topic, 3, partition)
    told: list[tuple[str, int]] = []

    def note(what: str) -> Callable[[list[TopicPartition]], None]:
        return lambda partitions: told.append((what, len(partitions)))

    one = Consumer(
        bootstrap, topic, group=group, on_assigned=note("assigned"), on_revoked=note("revoked"), settings=PROMPT
    )
    read(one, 6)
    assert told == [("assigned", 2)]
    two = Consumer(bootstrap, topic, group=group, settings=PROMPT)

    def shared() -> bool:
        # Nothing is read twice: what the first had read was committed when its partitions were taken away.
        assert one.poll(0.05) is None
        assert two.poll(0.05) is None
        return len(one.assignment()) == len(two.assignment()) == 1

    wait_until(shared, "a partition each")
    assert told == [("assigned", 2), ("revoked", 2), ("assigned", 1)]
    one.close()
    assert told[-1] == ("revoked", 1)
    wait_until(lambda: two.poll(0.05) is None and len(two.assignment()) == 2, "the rest")
    two.close()


@pytest.mark.parametrize(
    "settings", [{}, {"partition.assignment.strategy": "cooperative-sticky"}, {"group.protocol": "consumer"}]
)
def test_seeking_where_partitions_are_assigned(
    settings: dict[str, str], bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 10)

    def begin_late(partitions: list[TopicPartition]) -> None:
        for place in partitions:
            consumer.seek(*place, 8)

    with Consumer(bootstrap, topic, group=group, on_assigned=begin_late, settings=settings) as consumer:
        assert read(consumer, 2) == [8, 9]


def test_an_error_in_a_hook_is_raised(bootstrap: str, new_topic: NewTopic, group: str) -> None:
    topic = new_topic()

    def broken(partitions: list[TopicPartition]) -> None:
        raise ZeroDivisionError

    with Consumer(bootstrap, topic, group=group, on_assigned=broken) as consumer, pytest.raises(ZeroDivisionError):
        consumer.poll(60)


def test_by_pattern(bootstrap: str, new_topic: NewTopic, group: str) -> None:
    topic = new_topic()
    other = new_topic()
    fill(bootstrap, topic, 3)
    fill(bootstrap, other, 3)
    with Consumer(bootstrap, pattern=f"{topic[:-1]}[{topic[-1]}]", group=group) as consumer:
        assert [present(consumer.poll(60)).topic for _ in range(3)] == [topic] * 3
        assert consumer.assignment() == [TopicPartition(topic, 0)]
    with pytest.raises(ClientError, match="needs a group"):
        Consumer(bootstrap, pattern="orders-.*")


def test_what_cannot_be_read_is_raised_where_it_stands(bootstrap: str, new_topic: NewTopic, group: str) -> None:
    topic = new_topic()
    with Producer(bootstrap) as producer:
        for value in (b"1", b"2", b"\xff", b"4"):
            producer.send(topic, value)
    with Consumer(bootstrap, topic, group=group, value=Json()) as consumer:
        assert consumer.batch(4, 60).values() == [1, 2]
        for _ in range(2):
            with pytest.raises(Undeserializable, match=f"{topic}-0, offset 2: value b'.xff' is not for J") as caught:
                consumer.batch(4, 60)
        error = caught.value
        assert (error.topic, error.partition, error.offset, error.is_key) == (topic, 0, 2, False)
        assert consumer.positions() == {TopicPartition(topic, 0): 2}
        with pytest.raises(Undeserializable):
            consumer.poll(60)
        consumer.seek(error.topic, error.partition, error.offset + 1)
        record = consumer.poll(60)
        assert record is not None
        assert record.value == 4


def test_skipped_and_counted(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap) as producer:
        for number in range(100):
            producer.send(
                topic, b"\xff" if number % 10 == 3 else b"%d" % number, key=b"\xff" if number % 10 == 4 else None
            )
    with Consumer(bootstrap, topic, key=String(), value=Json(), on_error="skip") as consumer:
        read_one_by_one = [record.value for record in itertools.islice(consumer, 80)]
        assert read_one_by_one == [n for n in range(100) if n % 10 not in (3, 4)]
        assert consumer.skipped == 20
    with Consumer(bootstrap, topic, key=String(), value=Json(), on_error="skip") as consumer:
        values: list[int] = []
        while len(values) < 80:
            values += consumer.batch(30, 60).values()
        assert values == [n for n in range(100) if n % 10 not in (3, 4)]


class InContext:
    def deserialize(self, data: bytes | None, context: Context) -> str:
        assert data is not None
        return f"{context.topic} {context.is_key} {dict(context.headers)['schema']!r} {data!r}"


def test_a_deserializer_learns_where_its_bytes_are_from(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap) as producer:
        producer.send(topic, b"v", key=b"k", headers={"schema": b"7"})
    with Consumer(bootstrap, topic, key=InContext(), value=InContext()) as consumer:
        record = consumer.poll(60)
        assert record is not None
        assert (record.key, record.value) == (f"{topic} True b'7' b'k'", f"{topic} False b'7' b'v'")
        consumer.seek(topic, 0, 0)
        assert consumer.batch(1, 60).values() == [f"{topic} False b'7' b'v'"]


def test_topics_and_clusters_that_are_not_there(bootstrap: str) -> None:
    with pytest.raises(UnknownTopic, match="no topic 'no-such-topic'"):
        Consumer(bootstrap, "no-such-topic", timeout=2)
    with pytest.raises(Unreachable, match=r"no broker of 127.0.0.1:1 .*refused"):
        Consumer("127.0.0.1:1", "t", timeout=2)


def test_a_closed_consumer_says_so(bootstrap: str, new_topic: NewTopic) -> None:
    consumer = Consumer(bootstrap, new_topic())
    consumer.close()
    consumer.close()
    for use in (consumer.poll, consumer.batch, consumer.commit, consumer.positions, consumer.lag, consumer.pause):
        with pytest.raises(Closed, match="make a new one"):
            use()


def test_one_thread_at_a_time(bootstrap: str, new_topic: NewTopic) -> None:
    with Consumer(bootstrap, new_topic()) as consumer:
        reading = threading.Thread(target=lambda: consumer.poll(1.0))
        reading.start()
        with pytest.raises(WrongThread, match="give each thread its own"):
            while reading.is_alive():
                consumer.positions()
        reading.join()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settings": {"fetch.min.byte": 1}}, "did you mean fetch.min.bytes"),
        ({"settings": {"acks": "all"}}, "acks is a setting of a producer"),
        ({"settings": {"group.id": "g"}}, "argument of its own"),
        ({"start": "beginning"}, "earliest"),
        ({"on_error": "ignore"}, "DeadLetter"),
    ],
)
def test_settings_that_do_not_exist_or_fit(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        Consumer("127.0.0.1:1", **options)  # type: ignore[arg-type]


def test_read_process_write(bootstrap: str, new_topic: NewTopic, group: str) -> None:
    source, target = new_topic(), new_topic()
    fill(bootstrap, source, 20)
    with (
        Consumer(bootstrap, source, group=group, auto_commit=False) as consumer,
        Producer(bootstrap, transactional_id=group) as producer,
    ):
        done = failures = 0
        while done < 20:
            try:
                with producer.transaction() as transaction:
                    batch = consumer.batch(5, 60)
                    for record in batch:
                        producer.send(target, record.value)
                    if done == 10 and not failures:
                        raise ZeroDivisionError
                    transaction.send_offsets(consumer)
                    done += len(batch)
            except ZeroDivisionError:
                failures += 1
                consumer.rewind()
        assert failures == 1
    with Consumer(bootstrap, target) as consumer:
        assert read(consumer, 20) == list(range(20))
    assert committed(bootstrap, source, group) == 20
    with Consumer(bootstrap, source, group=group) as automatic, pytest.raises(ClientError, match="auto_commit=False"):
        automatic.offsets_for_transaction()
