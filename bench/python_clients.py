"""`penstock.Producer` and `Consumer` against bare confluent-kafka, which they stand on: one broker, taking turns.

    python -m bench.python_clients [--rounds 7] [--records 300000]

Bare is what confluent-kafka's documentation shows: a delivery callback that looks at the error, a poll with every
record, a wait when the queue is full; and beside it the same with a poll for every 32 records, as our producer does.
For reading, `consume(n)`, a look at each message's error, and its value, with the one setting that our consumer has
another default for (`fetch.queue.backoff.ms`); beside it with librdkafka's default, with which reading stalls whenever
its queue is full. Ours is `send` and `batch`. Each turn is timed until the last acknowledgement, or the last value, was
seen. What counts is the ratio of the medians; the range is that of single rounds. Beside them is the CPU of the calling
thread: on a busy machine it says more than the clock.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

import confluent_kafka
from confluent_kafka import KafkaError, Message, TopicPartition

from penstock.client.librdkafka.consumer import Consumer
from penstock.client.librdkafka.producer import Producer
from penstock.client.wire.admin import Admin
from penstock.serializers import String
from penstock.testing.nodes import start_node

TOPIC = "python-clients"
PARTITIONS = 4
VALUE = b"x" * 100
TEXT = "x" * 100
BATCH = 1000
RARELY = 32
OUR_BACKOFF_MS = 10
SETTINGS = {"linger.ms": 5, "enable.idempotence": True, "acks": "all"}


class Timing(NamedTuple):
    rate: float
    """Records a second."""
    cpu_us: float
    """Of the calling thread, a record."""


Turn = Callable[[], Timing]


class Stopwatch:
    def __init__(self) -> None:
        self._started = time.perf_counter(), time.thread_time()

    def timing(self, records: int) -> Timing:
        seconds, cpu = time.perf_counter() - self._started[0], time.thread_time() - self._started[1]
        return Timing(records / seconds, cpu / records * 1e6)


def bare_produce(bootstrap: str, records: int, *, poll_every: int) -> Timing:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **SETTINGS})
    producer.produce(TOPIC, VALUE)
    producer.flush()
    delivered = 0
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        nonlocal delivered
        if error is not None:
            failed.append(error)
        delivered += 1

    watch = Stopwatch()
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, VALUE, None, number % PARTITIONS, on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
        if number % poll_every == 0:
            producer.poll(0)
    producer.flush()
    timing = watch.timing(records)
    assert delivered == records
    assert not failed
    return timing


def our_produce(bootstrap: str, records: int, *, text: bool) -> Timing:
    if text:
        with Producer(bootstrap, key=String(), value=String()) as strings:
            strings.send(TOPIC, TEXT).result()
            watch = Stopwatch()
            for _ in range(records):
                strings.send(TOPIC, TEXT)
            strings.flush()
            return watch.timing(records)
    with Producer(bootstrap) as producer:
        producer.send(TOPIC, VALUE).result()
        watch = Stopwatch()
        for _ in range(records):
            producer.send(TOPIC, VALUE)
        producer.flush()
        return watch.timing(records)


def bare_consume(bootstrap: str, records: int, *, backoff_ms: int) -> Timing:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bare",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": backoff_ms,
        }
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    consumer.consume(1, 30.0)
    watch = Stopwatch()
    count = size = 0
    while count < records:
        for message in consumer.consume(BATCH, 1.0):
            if message.error() is None:
                size += len(message.value() or b"")
                count += 1
    timing = watch.timing(count)
    consumer.close()
    assert size == count * len(VALUE)
    return timing


def our_consume(bootstrap: str, records: int, *, text: bool, values_only: bool = False) -> Timing:
    value = String() if text else None
    with Consumer[bytes, bytes](bootstrap, TOPIC, value=value) as consumer:  # type: ignore[arg-type]
        consumer.batch(1, 30.0)
        watch = Stopwatch()
        count = size = 0
        while count < records:
            batch = consumer.batch(BATCH, 1.0)
            count += len(batch)
            if values_only:
                size += sum(map(len, batch.values()))
            else:
                for record in batch:
                    size += len(record.value)
        timing = watch.timing(count)
    assert size == count * len(VALUE)
    return timing


def compare(title: str, subjects: dict[str, tuple[Turn, float | None]], rounds: int) -> None:
    """The first subject is what the others are compared with."""
    samples: dict[str, list[Timing]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, (turn, _) in subjects.items():
            samples[name].append(turn())
    theirs = next(iter(samples.values()))
    base = _median(theirs)
    print(title)
    for name, (_, target) in subjects.items():
        median = _median(samples[name])
        ratio = median.rate / base.rate
        ratios = [mine.rate / their.rate for mine, their in zip(samples[name], theirs, strict=True)]
        verdict = "" if target is None else f"  target {target}: {'yes' if ratio >= target else 'no'}"
        print(
            f"  {name:<22} {median.rate / 1000:6.0f}k/s {median.cpu_us:6.2f} us"
            f"  ratio {ratio:.2f} ({min(ratios):.2f}-{max(ratios):.2f}), CPU {base.cpu_us / median.cpu_us:.2f}{verdict}"
        )


def _median(timings: list[Timing]) -> Timing:
    return Timing(*map(statistics.median, zip(*timings, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--records", type=int, default=300_000)
    arguments = parser.parse_args()
    records = arguments.records
    with tempfile.TemporaryDirectory() as directory, start_node(directory) as node:
        bootstrap = node.bootstrap
        with Admin(bootstrap) as admin:
            admin.topics.create(TOPIC, partitions=PARTITIONS)
        compare(
            "produce 100 B",
            {
                "bare": (lambda: bare_produce(bootstrap, records, poll_every=1), None),
                "bare, polling rarely": (lambda: bare_produce(bootstrap, records, poll_every=RARELY), None),
                "bytes": (lambda: our_produce(bootstrap, records, text=False), 0.9),
                "strings": (lambda: our_produce(bootstrap, records, text=True), 0.7),
            },
            arguments.rounds,
        )
        compare(
            f"consume 100 B, {BATCH} at once",
            {
                "bare": (lambda: bare_consume(bootstrap, 2 * records, backoff_ms=OUR_BACKOFF_MS), None),
                "bare, default backoff": (lambda: bare_consume(bootstrap, 2 * records, backoff_ms=1000), None),
                "bytes": (lambda: our_consume(bootstrap, 2 * records, text=False), 0.9),
                "bytes, values()": (lambda: our_consume(bootstrap, 2 * records, text=False, values_only=True), None),
                "strings": (lambda: our_consume(bootstrap, 2 * records, text=True), None),
            },
            arguments.rounds,
        )


if __name__ == "__main__":
    main()
