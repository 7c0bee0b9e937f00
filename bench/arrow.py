"""`python -m bench.arrow`: records to columns and back, on one core and through a broker, beside confluent-kafka.

The first two lines are the kernels and what is around them alone: batches in memory to record batches with the columns
of Spark's Kafka source, CRCs checked, and a table to sealed batches; per second of CPU of the one thread that does it.
The others are what a user waits for: a topic into a pandas frame, and a frame into a topic, ours and the loop in turn.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from bench.subjects import keep_bytecode, penstock
from penstock.arrow import read_table, write_table
from penstock.arrow.batching import PartitionStream
from penstock.arrow.columns import Columns
from penstock.arrow.encoding import byte_column, no_headers
from penstock.arrow.rows import Rows
from penstock.model import ids
from penstock.records.batch import iterate_headers
from penstock.records.columnar import decode_batches

VALUE_BYTES = 100
PARTITIONS = 3
GROUP_BYTES = 16 * 1024 * 1024
BATCH_BYTES = 1_000_000
TABLE_WIDTH = 160
KERNEL_TARGET = 3_000_000
LOOP_TARGET = 5.0
_PARTITION = ids.TopicPartition("bench", 0)


@dataclass
class Line:
    title: str
    unit: str
    target: float | None
    ours: list[float] = field(default_factory=list)
    loop: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float | None:
        return median(self.ours) / median(self.loop) if self.loop else None

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "yes" if (self.ratio or median(self.ours)) >= self.target else "no"


def table_of(rows: int) -> Any:
    """Values that do not compress, and keys of eight bytes."""
    offsets = np.arange(rows + 1, dtype=np.int32) * VALUE_BYTES
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(os.urandom(rows * VALUE_BYTES))]
    numbers = np.arange(rows, dtype=np.int64)
    keys = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(numbers)])
    return pa.table({"key": keys, "value": pa.Array.from_buffers(pa.binary(), rows, buffers)})


def encoded(table: Any) -> list[memoryview | bytearray]:
    rows = len(table)
    batch = table.combine_chunks().to_batches()[0]
    columns = Rows(
        byte_column(batch.column("key"), "key"),
        byte_column(batch.column("value"), "value"),
        no_headers(rows),
        np.full(rows, time.time_ns() // 1_000_000, np.int64),
    )
    stream = PartitionStream(
        _PARTITION,
        columns,
        np.arange(rows, dtype=np.int64),
        batch_bytes=BATCH_BYTES,
        codec=0,
        level=None,
        identity=None,
        transactional=False,
    )
    made = []
    while stream.can_prepare:
        stream.prepare()
        stream.under_way, stream.prepared = stream.prepared, None
        made.append(stream.confirm().data)
    return made


def decoded(log: memoryview) -> int:
    columns = Columns(None, None, None)
    batches = decode_batches(log, iterate_headers(log), 0, 2**62, group_bytes=GROUP_BYTES)
    return sum(len(columns.record_batch(spans, _PARTITION)) for spans in batches)


def into_frame(bootstrap: str, topic: str, types_mapper: Any) -> Any:
    return read_table(bootstrap, topic).to_pandas(types_mapper=types_mapper)


def loop_into_frame(bootstrap: str, topic: str, rows: int) -> Any:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[tuple[Any, ...]] = []
    while len(found) < rows:
        found += [
            (
                message.key(),
                message.value(),
                message.topic(),
                message.partition(),
                message.offset(),
                message.timestamp(),
            )
            for message in consumer.consume(10_000, timeout=10)
        ]
    consumer.close()
    return pd.DataFrame(found, columns=["key", "value", "topic", "partition", "offset", "timestamp"])


def loop_into_topic(bootstrap: str, topic: str, frame: Any) -> int:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for key, value in zip(frame["key"].tolist(), frame["value"].tolist(), strict=True):
        packed = key.to_bytes(8, "big")
        while True:
            try:
                producer.produce(topic, value, packed)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return len(frame)


def seconds(clock: Callable[[], float], work: Callable[[], Any]) -> float:
    started = clock()
    work()
    return clock() - started


def measure(bootstrap: str, rows: int, rounds: int, new_topic: Callable[[], str]) -> list[Line]:
    decode = Line("batches to columns, one core", "records/CPU s", KERNEL_TARGET)
    encode = Line("columns to batches, one core", "records/CPU s", KERNEL_TARGET)
    read = Line("topic into a pandas frame, Arrow columns", "rows/s", LOOP_TARGET)
    objects = Line("topic into a pandas frame, Python objects", "rows/s", None)
    write = Line("pandas frame into a topic", "rows/s", None)
    table = table_of(rows)
    frame = table.to_pandas()
    log = _log(encoded(table))
    full = new_topic()
    write_table(bootstrap, full, table)
    for _ in range(rounds):
        decode.ours.append(rows / seconds(time.thread_time, lambda: decoded(log)))
        encode.ours.append(rows / seconds(time.thread_time, lambda: encoded(table)))
        read.ours.append(rows / seconds(time.perf_counter, lambda: into_frame(bootstrap, full, pd.ArrowDtype)))
        objects.ours.append(rows / seconds(time.perf_counter, lambda: into_frame(bootstrap, full, None)))
        read.loop.append(rows / seconds(time.perf_counter, lambda: loop_into_frame(bootstrap, full, rows)))
        ours, theirs = new_topic(), new_topic()
        write.ours.append(rows / seconds(time.perf_counter, lambda: write_table(bootstrap, ours, frame)))  # noqa: B023
        write.loop.append(rows / seconds(time.perf_counter, lambda: loop_into_topic(bootstrap, theirs, frame)))  # noqa: B023
    objects.loop = read.loop
    return [decode, encode, read, objects, write]


def _log(batches: list[memoryview | bytearray]) -> memoryview:
    """As a fetch brings them: on end, with offsets that go on."""
    data = bytearray().join(batches)
    offset = 0
    for position, header in iterate_headers(data):
        data[position : position + 8] = offset.to_bytes(8, "big")
        offset += header.count
    return memoryview(data)


def import_seconds(directory: str) -> tuple[float, float]:
    """Of `penstock.arrow` in a fresh process: with nothing compiled yet, and with all of it."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": os.path.join(directory, "numba")}
    command = [sys.executable, "-c", "import penstock.arrow"]
    cold, warm = (
        seconds(time.perf_counter, lambda: subprocess.run(command, check=True, env=environment)) for _ in range(2)
    )
    return cold, warm


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.arrow", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    numbers = iter(range(1, 10**6))
    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_WIDTH)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        cold, warm = import_seconds(directory)
        with penstock(os.path.join(directory, "node")) as kafka:
            from penstock.client.wire.admin import Admin

            def new_topic() -> str:
                name = f"bench-arrow-{next(numbers)}"
                with Admin(kafka.bootstrap) as admin:
                    admin.topics.create(name, partitions=PARTITIONS)
                return name

            lines = measure(kafka.bootstrap, arguments.rows, arguments.rounds, new_topic)
    shown = Table(title=f"{arguments.rows:,} records with values of {VALUE_BYTES} bytes, {arguments.rounds} rounds")
    for heading in ("", "unit", "penstock.arrow", "confluent-kafka loop", "ratio", "target", "met"):
        shown.add_column(heading)
    for line in lines:
        shown.add_row(
            line.title,
            line.unit,
            f"{median(line.ours):,.0f}",
            f"{median(line.loop):,.0f}" if line.loop else "",
            f"{line.ratio:.1f}" if line.ratio else "",
            "" if line.target is None else f"{line.target:g} x" if line.loop else f"{line.target:,}",
            line.verdict,
        )
    console.print(shown)
    console.print(
        f"import penstock.arrow: {cold:.1f} s the first time on a machine (numba compiles), {warm:.1f} s later"
    )


if __name__ == "__main__":
    main()
