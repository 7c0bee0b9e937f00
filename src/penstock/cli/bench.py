"""`penstock bench`: measures any Kafka-compatible cluster, through librdkafka.

The measurement includes this Python client; the broker may be faster. For the project's own figures see the
documentation of `make bench`.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from penstock.cli.arguments import connect
from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, Json, command_group, fail, print_json
from penstock.cli.records import LibrdkafkaPairs, librdkafka_settings

app = command_group("Measure the performance of any Kafka-compatible cluster.")

Topic = Annotated[
    str | None,
    typer.Option(
        metavar="TOPIC", help="Use this topic and keep it; default: create one and delete it.", show_default=False
    ),
]
Records = Annotated[int, typer.Option("--records", "-n", min=1, help="Number of records.")]
Size = Annotated[int, typer.Option("--size", "-s", min=8, help="Size of a record's value, in bytes.")]
Partitions = Annotated[
    int, typer.Option("--partitions", "-p", min=1, help="Number of partitions of the created topic.")
]
Acks = Annotated[str, typer.Option(metavar="0|1|all", help="Replicas that must acknowledge a record.")]
Compression = Annotated[str, typer.Option(metavar="CODEC", help="Codec: none, gzip, snappy, lz4 or zstd.")]


@app.command()
def produce(
    records: Records = 500_000,
    size: Size = 100,
    partitions: Partitions = 1,
    acks: Acks = "1",
    compression: Compression = "none",
    topic: Topic = None,
    properties: LibrdkafkaPairs = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Write records as fast as the client can.

    Example:

        penstock bench produce -n 1000000 -s 1024 --acks all
    """
    with _topic(bootstrap_server, topic, partitions) as name:
        seconds = _produce(bootstrap_server, name, records, size, acks, compression, properties)
    _report("produce", records, size, seconds, json)


@app.command()
def consume(
    records: Records = 500_000,
    size: Size = 100,
    partitions: Partitions = 1,
    compression: Compression = "none",
    topic: Topic = None,
    properties: LibrdkafkaPairs = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Read records as fast as the client can. Writes them first, unless you give --topic.

    Example:

        penstock bench consume -n 1000000
    """
    with _topic(bootstrap_server, topic, partitions) as name:
        if topic is None:
            _produce(bootstrap_server, name, records, size, "1", compression, None)
        read, volume, seconds = _consume(bootstrap_server, name, records, properties)
    _report("consume", read, volume / max(read, 1), seconds, json)


@app.command()
def latency(
    rate: Annotated[int, typer.Option(min=1, help="Records per second.")] = 1000,
    duration: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Duration of the measurement.")] = 5.0,
    size: Size = 100,
    acks: Acks = "1",
    topic: Topic = None,
    properties: LibrdkafkaPairs = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Measure the time from writing a record to reading it, at a steady rate.

    Example:

        penstock bench latency --rate 1000 --duration 10
    """
    with _topic(bootstrap_server, topic, 1) as name:
        delays = sorted(_latencies(bootstrap_server, name, rate, duration, size, acks, properties))
    if not delays:
        fail("no record came back")
    row: dict[str, Any] = {"load": "latency", "records": len(delays), "rate": rate}
    for label, share in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99), ("p99_9_ms", 0.999), ("max_ms", 1.0)):
        row[label] = round(delays[min(len(delays) - 1, int(len(delays) * share))] * 1000, 3)
    _show(row, json)


@contextlib.contextmanager
def _topic(bootstrap_server: str, topic: str | None, partitions: int) -> Iterator[str]:
    """The user's topic, or a temporary topic that is deleted afterwards."""
    from penstock.client.wire.admin.topics import LATEST
    from penstock.model.ids import TopicPartition

    with connect(bootstrap_server) as admin:
        if topic is not None:
            admin.topics.describe([topic])
            yield topic
            return
        name = f"penstock-bench-{os.urandom(4).hex()}"
        admin.topics.create(name, partitions=partitions)
        admin.topics.offsets([TopicPartition(name, index) for index in range(partitions)], LATEST)  # leaders exist
        try:
            yield name
        finally:
            admin.topics.delete(name)


def _produce(
    bootstrap_server: str, topic: str, records: int, size: int, acks: str, compression: str, pairs: list[str] | None
) -> float:
    from confluent_kafka import KafkaException, Producer

    failures: list[str] = []
    settings = librdkafka_settings(
        bootstrap_server,
        pairs,
        acks=acks,
        compression_type=compression,
        linger_ms=5,
        batch_size=1_000_000,
        queue_buffering_max_messages=200_000,
        delivery_report_only_error=True,
    )
    settings["on_delivery"] = lambda error, message: failures.append(error.str()) if error is not None else None
    try:
        producer = Producer(settings)
    except KafkaException as error:
        fail(error.args[0].str())
    # Random bytes, which are hard to compress.
    values = [os.urandom(size) for _ in range(64)]
    started = time.perf_counter()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, values[number & 63])
                break
            except BufferError:
                producer.poll(0.01)
        if not number % 1000:
            producer.poll(0)
            if failures:
                break
    producer.flush()
    seconds = time.perf_counter() - started
    if failures:
        fail(f"{topic}: {failures[0]}")
    return seconds


def _consume(bootstrap_server: str, topic: str, records: int, pairs: list[str] | None) -> tuple[int, int, float]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(_consumer_settings(bootstrap_server, pairs))
    partitions = len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
    read = volume = ended = 0
    started = time.perf_counter()
    finished = started
    while read < records and ended < partitions:
        for message in consumer.consume(10_000, 0.5):
            error = message.error()
            if error is None:
                read += 1
                volume += len(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                ended += 1
            else:
                fail(f"{topic}: {error.str()}")
        finished = time.perf_counter()
    consumer.close()
    return read, volume, finished - started


def _latencies(
    bootstrap_server: str, topic: str, rate: int, duration: float, size: int, acks: str, pairs: list[str] | None
) -> list[float]:
    from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

    producer = Producer(librdkafka_settings(bootstrap_server, pairs, acks=acks, linger_ms=0))
    consumer = Consumer(_consumer_settings(bootstrap_server, pairs) | {"fetch.wait.max.ms": 500, "fetch.min.bytes": 1})
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    clock = struct.Struct(">d")
    padding = os.urandom(size - clock.size)
    delays: list[float] = []

    def collect(seconds: float) -> None:
        for message in consumer.consume(1000, seconds):
            value = message.value()
            if message.error() is None and value is not None and len(value) == size:
                delays.append(time.perf_counter() - clock.unpack_from(value)[0])

    # The assignment takes effect with the first answer; records before it would be missed, so continue until there is
    # one.
    give_up = time.perf_counter() + 10
    while not delays and time.perf_counter() < give_up:
        producer.produce(topic, clock.pack(time.perf_counter()) + padding, partition=0)
        producer.flush()
        collect(0.1)
    delays.clear()
    count = max(1, int(rate * duration))
    started = time.perf_counter()
    for number in range(count):
        due = started + number / rate
        while (wait := due - time.perf_counter()) > 0:
            collect(min(wait, 0.001))
        producer.produce(topic, clock.pack(time.perf_counter()) + padding, partition=0)
        producer.poll(0)
        collect(0)
    producer.flush()
    give_up = time.perf_counter() + 5
    while len(delays) < count and time.perf_counter() < give_up:
        collect(0.05)
    consumer.close()
    return delays


def _consumer_settings(bootstrap_server: str, pairs: list[str] | None) -> dict[str, Any]:
    return librdkafka_settings(
        bootstrap_server,
        pairs,
        group_id="penstock-bench",
        enable_auto_commit=False,
        enable_partition_eof=True,
        fetch_queue_backoff_ms=0,
        fetch_message_max_bytes=4_000_000,
    )


def _report(load: str, records: int, size: float, seconds: float, json: bool) -> None:
    row = {
        "load": load,
        "records": records,
        "value_bytes": round(size),
        "seconds": round(seconds, 3),
        "records_per_second": round(records / seconds),
        "megabytes_per_second": round(records * size / seconds / 1e6, 1),
    }
    _show(row, json)


def _show(row: dict[str, Any], json: bool) -> None:
    if json:
        print_json(row)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*(name.replace("_", " ") for name in row))
    table.add_row(*(f"{value:,}" if isinstance(value, int | float) else str(value) for value in row.values()))
    Console().print(table)
