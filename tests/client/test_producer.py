"""`Producer`: where records go, what their results say, and that none is lost without an error."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from client_world import NewTopic
from penstock import Bytes, Consumer, Json, Producer, Record, Sent, String
from penstock.client.errors import (
    BadSetting,
    ClientError,
    Closed,
    Fenced,
    NotDelivered,
    QueueFull,
    RecordTooLarge,
    TimedOut,
    UnknownTopic,
    Unreachable,
    Unserializable,
)
from penstock.client.librdkafka.partitioners import partition_of
from penstock.serializers import Context
from penstock.testing.nodes import start_node

NOWHERE = "127.0.0.1:1"


def read_all(bootstrap: str, topic: str, count: int) -> list[Record[bytes | None, bytes | None]]:
    records: list[Record[bytes | None, bytes | None]] = []
    nullable: Consumer[bytes | None, bytes | None] = Consumer(bootstrap, topic)
    with nullable as consumer:
        while len(records) < count:
            batch = consumer.batch(500, 30)
            assert batch, f"{len(records)} of {count}"
            records.extend(batch)
    return records


def test_a_delivery_tells_where_the_record_is(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, datetime.UTC)
    with Producer(bootstrap, key=String(), value=Json()) as producer:
        first = producer.send(topic, {"n": 1}, key="k", headers={"a": b"1", "b": "text", "c": None}, timestamp=at)
        second = producer.send(topic, None, key="k", headers=[("a", b"1"), ("a", b"2")], timestamp=5)
        place = partition_of(b"k", 3)
        assert first.result(60) == Sent(topic, place, 0, 1767323045678)
        assert second.result(60) == Sent(topic, place, 1, 5)
        assert first.done()
        assert first.exception() is None
    one, two = read_all(bootstrap, topic, 2)
    assert (one.key, one.value, one.timestamp, one.time) == (b"k", b'{"n":1}', 1767323045678, at)
    assert one.headers == [("a", b"1"), ("b", b"text"), ("c", None)]
    assert (two.value, two.headers, two.header("a"), two.header("z")) == (None, [("a", b"1"), ("a", b"2")], b"2", None)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_compression_and_acknowledgement(
    acks: str, compression: str, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with Producer(bootstrap, acks=acks, compression=compression) as producer:  # type: ignore[arg-type]
        deliveries = [producer.send(topic, b"v%d" % number) for number in range(20)]
    offsets = [delivery.result(0).offset for delivery in deliveries]
    assert offsets == ([None] * 20 if acks == "0" else list(range(20)))
    assert [record.value for record in read_all(bootstrap, topic, 20)] == [b"v%d" % number for number in range(20)]


def test_records_without_a_key_take_turns(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    with Producer(bootstrap) as producer:
        sent = [producer.send(topic, b"") for _ in range(99)]
        assert [each.result().partition for each in sent] == [0, 1, 2] * 33
        assert producer.send(topic, b"", partition=2).result().partition == 2
        with pytest.raises(UnknownTopic):
            producer.send(topic, b"", partition=9).result()


def test_sticky_records_stay_together(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=16)
    with Producer(bootstrap, partitioner="sticky", settings={"sticky.partitioning.linger.ms": 60_000}) as producer:
        producer.send(topic, b"").result()
        sent = [producer.send(topic, b"") for _ in range(100)]
        places = Counter(each.result().partition for each in sent)
    assert max(places.values()) >= 50


def test_a_partitioner_of_ones_own(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=4)

    def by_length(name: str, key: bytes | None, value: bytes | None, partitions: int) -> int | None:
        assert (name, partitions) == (topic, 4)
        return None if key is None else len(key) % partitions

    with Producer(bootstrap, key=String(), partitioner=by_length) as producer:
        keys = ["", "a", "bb", "ccc", "dddd"]
        assert [producer.send(topic, b"", key=key).result().partition for key in keys] == [0, 1, 2, 3, 0]
        assert producer.send(topic, b"").result().partition in range(4)


class InContext:
    """What a schema registry's serializer would do: an id for the topic, kept in a header."""

    def serialize(self, value: str, context: Context) -> bytes:
        context.headers.append(("schema", f"{context.topic}:{context.is_key}".encode()))
        return value.upper().encode()


def test_a_serializer_learns_where_its_bytes_go(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap, key=InContext(), value=InContext()) as producer:
        producer.send(topic, "v", key="k", headers={"own": b"1"})
    (record,) = read_all(bootstrap, topic, 1)
    assert (record.key, record.value) == (b"K", b"V")
    assert record.headers == [
        ("own", b"1"),
        ("schema", f"{topic}:True".encode()),
        ("schema", f"{topic}:False".encode()),
    ]


def test_what_cannot_be_serialized_names_the_record(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap, key=String(), value=Json()) as producer:
        with pytest.raises(Unserializable, match=rf"{topic}: value <object .* is not for Json\(\)"):
            producer.send(topic, object())
        with pytest.raises(Unserializable, match=rf"{topic}: key 7 is not for String\(\)"):
            producer.send(topic, {}, key=7)  # type: ignore[arg-type]
    with Producer(bootstrap, value=Bytes()) as plain, pytest.raises(Unserializable, match="7"):
        plain.send(topic, 7)  # type: ignore[arg-type]


def test_unknown_topics_are_an_error_at_once(bootstrap: str) -> None:
    with Producer(bootstrap, max_block=2) as producer, pytest.raises(UnknownTopic, match=r"'no-such-topic'.*create"):
        producer.send("no-such-topic", b"")


def test_nobody_there_is_an_error_that_says_so() -> None:
    producer = Producer(NOWHERE, max_block=2)
    with pytest.raises(Unreachable, match=rf"no broker of {NOWHERE}.*refused"):
        producer.send("t", b"")
    producer.close()


def test_a_record_too_large(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes="1000")
    with Producer(bootstrap) as producer:
        with pytest.raises(RecordTooLarge, match=r"key b'k'.*message.max.bytes"):
            producer.send(topic, bytes(2_000_000), key=b"k")
        with pytest.raises(RecordTooLarge, match=rf"{topic}-0, record with key b'k'"):
            producer.send(topic, os.urandom(5000), key=b"k").result()


def test_a_failure_nobody_looked_at_is_raised_in_the_end(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes="1000")
    with Producer(bootstrap) as producer:
        for _ in range(3):
            producer.send(topic, os.urandom(5000))
        with pytest.raises(NotDelivered, match="3 records were not delivered") as caught:
            producer.flush()
        assert [type(failure) for failure in caught.value.failures] == [RecordTooLarge] * 3
        producer.flush()
    with pytest.raises(NotDelivered, match="1 record was"), Producer(bootstrap) as producer:
        producer.send(topic, os.urandom(5000))
    with pytest.raises(ZeroDivisionError) as interrupted, Producer(bootstrap) as producer:
        producer.send(topic, os.urandom(5000))
        raise ZeroDivisionError
    assert "1 record was not delivered" in interrupted.value.__notes__[0]


def test_a_full_queue_waits_then_says_so(bootstrap: str, new_topic: NewTopic, broker: object) -> None:
    topic = new_topic()
    settings = {"queue.buffering.max.messages": 100}
    with Producer(bootstrap, settings=settings) as producer:
        for number in range(1000):
            producer.send(topic, b"%d" % number)
    assert len(read_all(bootstrap, topic, 1000)) == 1000

    stuck = Producer(bootstrap, max_block=2, linger_ms=60_000, delivery_timeout=300, settings=settings)
    deliveries = []
    with pytest.raises(QueueFull, match="100 records wait"):
        for _ in range(101):
            deliveries.append(stuck.send(topic, b"late"))  # noqa: PERF401
    with pytest.raises(TimedOut):
        deliveries[0].result(0.01)
    stuck.close()
    assert [delivery.result().offset for delivery in deliveries] == list(range(1000, 1100))


def test_closing_in_time_gives_up_the_rest_aloud(tmp_path: Path) -> None:
    with start_node(tmp_path / "node") as node:
        producer = Producer(node.bootstrap)
        producer.send("t", b"heard").result()
        node.pause()
        lost = producer.send("t", b"not heard")
        with pytest.raises(NotDelivered, match="1 record was not delivered; the first: t-0"):
            producer.close(timeout=0.2)
        assert lost.done()
        node.resume()


def test_a_closed_producer_says_so(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer = Producer(bootstrap)
    producer.send(topic, b"")
    producer.close()
    producer.close()
    for use in (lambda: producer.send(topic, b""), producer.flush, producer.poll, producer.transaction):
        with pytest.raises(Closed, match="make a new one"):
            use()


def test_a_program_that_does_not_close_its_producer(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    program = f"from penstock import Producer; Producer({bootstrap!r}, linger_ms=60_000).send({topic!r}, b'last words')"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "a producer was not closed; of its last records 0 are not acknowledged" in ended.stderr
    assert [record.value for record in read_all(bootstrap, topic, 1)] == [b"last words"]


def test_in_a_forked_process_it_is_of_no_use(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap) as producer:
        producer.send(topic, b"").result()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                producer.send(topic, b"")
            except Closed as error:
                os.write(writer, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writer)
        assert b"fork" in os.read(reader, 1000)
        os.close(reader)
        producer.send(topic, b"").result()


def test_threads_share_a_producer(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    with Producer(bootstrap) as producer:
        offsets: list[tuple[int, int | None]] = []

        def work() -> None:
            for _ in range(50):
                sent = producer.send(topic, b"").result(60)
                offsets.append((sent.partition, sent.offset))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(offsets) == [(partition, offset) for partition in (0, 1) for offset in range(100)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"compresion.type": "lz4"}, "no setting 'compresion.type'; did you mean compression.type"),
        ({"linger_ms": 5}, "no setting 'linger_ms'; did you mean linger.ms"),
        ({"group.id": "g"}, "group.id is a setting of a consumer"),
        ({"acks": "7000"}, "acks"),
        ({"on_delivery": print}, "on_delivery"),
    ],
)
def test_settings_that_do_not_exist_or_fit(settings: dict[str, object], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        Producer(NOWHERE, settings=settings)


def test_settings_reach_librdkafka(bootstrap: str) -> None:
    with pytest.raises(BadSetting, match=r"acks.*must be set to.*all"):
        Producer(bootstrap, acks="1", idempotence=True)
    with pytest.raises(BadSetting, match="round_robin"):
        Producer(bootstrap, partitioner="random")  # type: ignore[arg-type]
    with pytest.raises(ClientError, match="HOST:PORT"):
        Producer("nowhere:port")


def test_transactions_count_together_or_not_at_all(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap, value=String(), transactional_id=f"{topic}-writer") as producer:
        with pytest.raises(ClientError, match="transaction"):
            producer.send(topic, "outside")
        with producer.transaction():
            producer.send(topic, "a")
            producer.send(topic, "b")
        with pytest.raises(ZeroDivisionError), producer.transaction():
            aborted = producer.send(topic, "c")
            raise ZeroDivisionError
        assert aborted.done()
        with producer.transaction() as transaction:
            producer.send(topic, "d")
            with pytest.raises(ClientError, match="nest"):
                transaction.__enter__()
    assert [record.value for record in read_all(bootstrap, topic, 3)] == [b"a", b"b", b"d"]


def test_a_newer_producer_fences_the_older(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    older = Producer(bootstrap, transactional_id=f"{topic}-writer")
    with older.transaction():
        older.send(topic, b"old")
    with Producer(bootstrap, transactional_id=f"{topic}-writer") as newer:
        with newer.transaction():
            newer.send(topic, b"new")
        with pytest.raises(Fenced), older.transaction():
            older.send(topic, b"too late")
        with pytest.raises(ClientError):
            older.send(topic, b"never")
    with pytest.raises(NotDelivered, match="1 record"):
        older.close()
    assert [record.value for record in read_all(bootstrap, topic, 2)] == [b"old", b"new"]
