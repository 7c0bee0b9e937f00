"""The runs: subjects in turn, round after round, so that what disturbs the machine disturbs all of them.

A round of a request load is epoll floor, floor, broker, peer; each sample is a fresh load generator process and, where
something is written, a fresh topic. Only ratios of medians over the rounds are compared with targets.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from bench.blaster import BlastSettings
from bench.clients import ClientSettings, warmup_messages
from bench.fill import fill
from bench.frames import batch_of_size
from bench.latency import LatencySettings
from bench.loads import (
    CLIENT_CORES_TARGET,
    CLIENT_LOADS,
    CLIENT_PARTITIONS,
    FETCH_BATCH_SIZE,
    FETCH_SEGMENT_BYTES,
    GIB,
    LATENCY_RATE,
    LATENCY_TARGETS,
    MIB,
    READER_LOADS,
    REPLICATED_LOADS,
    REQUEST_LOADS,
    ClientLoad,
    RequestLoad,
)
from bench.processes import ServerProcess, run_job
from bench.progress import Steps
from bench.results import Row, Target
from bench.subjects import EPOLL_FLOOR, FLOOR, Kafka, floors
from penstock.records.batch import read_header

_REQUEST_NAMES = {load.name for load in REQUEST_LOADS}
_READER_NAMES = {load.name for load in READER_LOADS}
_REPLICATED_NAMES = {load.name for load in REPLICATED_LOADS}
REPLICATED_WAYS = 3  # without followers, and with them by acks=1 and acks=all
_CLIENT_NAMES = {load.name for load in CLIENT_LOADS}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How long and how much; `quick` is for a first look."""

    rounds: int
    seconds: float
    client_rounds: int
    client_seconds: float
    latency_rounds: int
    latency_seconds: float
    fetch_bytes: int
    restart_bytes: int
    idle_seconds: float
    memory_warmup_bytes: int


FULL = Scale(
    rounds=5,
    seconds=1.5,
    client_rounds=3,
    client_seconds=3.0,
    latency_rounds=3,
    latency_seconds=5.0,
    fetch_bytes=256 * MIB,
    restart_bytes=GIB,
    idle_seconds=5.0,
    memory_warmup_bytes=6 * GIB,
)
QUICK = Scale(
    rounds=3,
    seconds=0.4,
    client_rounds=1,
    client_seconds=1.5,
    latency_rounds=1,
    latency_seconds=2.0,
    fetch_bytes=128 * MIB,
    restart_bytes=64 * MIB,
    idle_seconds=1.0,
    memory_warmup_bytes=2 * GIB,
)


def warm_memory(directory: str, size: int) -> None:
    """Write a file and remove it.

    On a virtual machine memory that was never used is several times slower the first time, and whichever subject comes
    first would pay for it.
    """
    path = os.path.join(directory, "warmup")
    block = bytes(MIB)
    with open(path, "wb", buffering=0) as file:
        for _ in range(size // MIB):
            file.write(block)
    os.unlink(path)


class Runs:
    """Everything that is measured against running brokers."""

    def __init__(self, directory: str, scale: Scale, kafkas: list[Kafka], steps: Steps) -> None:
        self._directory = directory
        self._scale = scale
        self._kafkas = kafkas
        self._steps = steps
        self._topics = 0
        self.fetch_topic = self._topic_name()

    def _topic_name(self) -> str:
        """Of one length always, since sizes of frames and replies depend on it; and new to a peer used before."""
        self._topics += 1
        return f"bench-{os.getpid() & 0xFFFF:04x}-{self._topics:04d}"

    # -- request loads

    def produce(self, load: RequestLoad) -> Row:
        row = _request_row(load)
        with floors(self._directory, load.floor_settings(self.fetch_topic), (EPOLL_FLOOR, FLOOR)) as running:
            for _ in range(self._scale.rounds):
                for name, server in running.items():
                    self._sample(row, name, self._floor_blast(load, server, []))
                for kafka in self._kafkas:
                    with kafka.topic(self._topic_name(), load.connections) as topic:
                        self._sample(row, kafka.name, self._blast(load, kafka, topic, []))
        return row

    @contextlib.contextmanager
    def filled_topics(self) -> Iterator[tuple[int, int]]:
        """The topic to read on every broker, ready to be read; the number of batches and of records in each."""
        batch = batch_of_size(FETCH_BATCH_SIZE)
        count = self._scale.fetch_bytes // len(batch)
        with contextlib.ExitStack() as stack:
            for kafka in self._kafkas:
                stack.enter_context(kafka.topic(self.fetch_topic, 1, {"segment.bytes": str(FETCH_SEGMENT_BYTES)}))
                self._steps.doing(f"filling {self.fetch_topic} on {kafka.name}")
                fill(kafka, self.fetch_topic, batch, count)
            yield count, read_header(batch).count

    def fetch(self, load: RequestLoad, filled_batches: int, records_a_batch: int) -> Row:
        row = _request_row(load)
        offsets = load.offsets(filled_batches, records_a_batch)
        with floors(self._directory, load.floor_settings(self.fetch_topic), (EPOLL_FLOOR, FLOOR)) as running:
            for _ in range(self._scale.rounds):
                for name, server in running.items():
                    self._sample(row, name, self._floor_blast(load, server, offsets))
                for kafka in self._kafkas:
                    self._sample(row, kafka.name, self._blast(load, kafka, self.fetch_topic, offsets))
        return row

    def _floor_blast(self, load: RequestLoad, server: ServerProcess, offsets: list[int]) -> BlastSettings:
        return blast_settings(
            load, port=server.port, pid=server.pid, topic=self.fetch_topic, offsets=offsets, seconds=self._scale.seconds
        )

    def _blast(self, load: RequestLoad, kafka: Kafka, topic: str, offsets: list[int]) -> BlastSettings:
        return blast_settings(
            load,
            port=kafka.port,
            host=kafka.host,
            pid=kafka.pid,
            topic=topic,
            offsets=offsets,
            seconds=self._scale.seconds,
            kafka=True,
        )

    def _sample(self, row: Row, subject: str, settings: BlastSettings) -> None:
        self._steps.doing(f"{row.title}: {subject}")
        result = run_job("bench.blaster", asdict(settings))
        row.add(subject, result["requests_per_second"], result["server_cpu_us"])
        row.details.setdefault(subject, []).append(result)
        self._steps.advance()

    # -- librdkafka

    def clients(self, load: ClientLoad) -> list[Row]:
        rows: dict[str, tuple[Row, Row]] = {}
        for action in ("produce", "consume"):
            rate = Target("at least", load.messages_per_second) if load.messages_per_second else None
            rows[action] = (
                Row(load.name, f"{load.title} {action}", "messages/s", rate, load.value_size),
                Row(load.name, f"{load.title} {action}: broker", "cores a client core", CLIENT_CORES_TARGET),
            )
        for _ in range(self._scale.client_rounds):
            for kafka in self._kafkas:
                with kafka.topic(self._topic_name(), CLIENT_PARTITIONS) as topic:
                    stored = load.max_messages
                    for action, (rate_row, cores_row) in rows.items():
                        self._steps.doing(f"{rate_row.title}: {kafka.name}")
                        result = self._client(load, kafka, topic, action, stored)
                        stored = result["messages"] + warmup_messages(CLIENT_PARTITIONS)
                        rate_row.add(kafka.name, result["messages_per_second"])
                        rate_row.details.setdefault(kafka.name, []).append(result)
                        if result["server_cores"] is not None:
                            cores_row.add(kafka.name, result["server_cores"] / result["client_cores"])
                        self._steps.advance()
        return [row for pair in rows.values() for row in pair]

    def _client(self, load: ClientLoad, kafka: Kafka, topic: str, action: str, messages: int) -> dict[str, Any]:
        settings = ClientSettings(
            bootstrap=kafka.bootstrap,
            server_pid=kafka.pid,
            action="produce" if action == "produce" else "consume",
            topic=topic,
            partitions=CLIENT_PARTITIONS,
            value_size=load.value_size,
            seconds=self._scale.client_seconds,
            max_messages=messages,
        )
        return run_job("bench.clients", asdict(settings))

    # -- latency

    def latency(self) -> list[Row]:
        rows = {
            quantile: Row("latency", f"end to end at {LATENCY_RATE} messages/s: {quantile}", "ms", target)
            for quantile, target in LATENCY_TARGETS.items()
        }
        for _ in range(self._scale.latency_rounds):
            for kafka in self._kafkas:
                with kafka.topic(self._topic_name(), 1) as topic:
                    self._steps.doing(f"latency: {kafka.name}")
                    settings = LatencySettings(
                        bootstrap=kafka.bootstrap,
                        topic=topic,
                        messages_per_second=LATENCY_RATE,
                        seconds=self._scale.latency_seconds,
                    )
                    result = run_job("bench.latency", asdict(settings))
                    for quantile, key in (("p50", "p50_ms"), ("p99", "p99_ms"), ("p99.9", "p999_ms")):
                        rows[quantile].add(kafka.name, result[key])
                    rows["p50"].details.setdefault(kafka.name, []).append(result["quantiles_ms"])
                    self._steps.advance()
        return list(rows.values())


def _request_row(load: RequestLoad) -> Row:
    return Row(load.name, load.title, "requests/s", load.target, load.request_bytes)


def blast_settings(
    load: RequestLoad,
    *,
    port: int,
    pid: int,
    topic: str,
    offsets: list[int],
    seconds: float,
    host: str = "127.0.0.1",
    kafka: bool = False,
) -> BlastSettings:
    return BlastSettings(
        host=host,
        port=port,
        server_pid=pid,
        kafka=kafka,
        api=load.api,
        topic=topic,
        connections=load.connections,
        depth=load.depth,
        value_size=load.value_size,
        batch_size=load.batch_size,
        offsets=offsets,
        fetch_size=load.fetch_size,
        seconds=seconds,
        max_bytes=load.max_bytes,
    )


def samples_of(name: str, scale: Scale, kafkas: int) -> int:
    """How many steps of the progress bar a load takes."""
    if name in _READER_NAMES:
        return scale.rounds * (1 + kafkas)
    if name in _REPLICATED_NAMES:
        return scale.rounds * REPLICATED_WAYS * kafkas
    if name in _REQUEST_NAMES:
        return scale.rounds * (2 + kafkas)
    if name in _CLIENT_NAMES:
        return scale.client_rounds * kafkas * 2
    return scale.latency_rounds * kafkas if name == "latency" else 1
