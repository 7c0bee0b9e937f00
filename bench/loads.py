"""What is measured, and what is aimed at: the loads of one broker, and those of three.

A request load is a number of connections that each keep some requests in flight. The small loads write one partition a
connection; the reading ones read slices of one partition, the last megabytes of it (the tail, which a broker has just
had in its hands) or the first ones (an older segment, in the page cache but nowhere else).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from bench.frames import (
    Ring,
    batch_of_size,
    fetch_reply_overhead,
    produce_reply_size,
    produce_ring,
    single_record_batch,
)
from bench.results import Target

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

FETCH_BATCH_SIZE = 16 * KIB
FETCH_SEGMENT_BYTES = 64 * MIB
TAIL_BYTES = 4 * MIB
DISK_BYTES = 64 * MIB
MAX_SLICES = 64


@dataclass(frozen=True, kw_only=True)
class RequestLoad:
    name: str
    title: str
    api: Literal["produce", "fetch"]
    connections: int
    depth: int = 1
    value_size: int = 0
    batch_size: int = 0
    fetch_size: int = 0
    source: Literal["tail", "disk"] = "tail"
    floor_ratio: float | None = None
    max_bytes: int = 2 * GIB
    """Of one sample. What is written stays in the page cache until the topic is deleted."""

    @property
    def target(self) -> Target | None:
        return None if self.floor_ratio is None else Target("floor ratio", self.floor_ratio)

    def batch(self) -> bytes:
        return batch_of_size(self.batch_size) if self.batch_size else single_record_batch(self.value_size)

    @property
    def slices(self) -> int:
        return min(MAX_SLICES, (TAIL_BYTES if self.source == "tail" else DISK_BYTES) // self.fetch_size)

    def offsets(self, filled_batches: int, records_a_batch: int) -> list[int]:
        """The offsets to ask for, in a partition filled with batches of `FETCH_BATCH_SIZE`."""
        batches_a_slice = self.fetch_size // FETCH_BATCH_SIZE
        first = 0 if self.source == "disk" else filled_batches - self.slices * batches_a_slice
        return [(first + index * batches_a_slice) * records_a_batch for index in range(self.slices)]

    def floor_settings(self, topic: str) -> dict[str, Any]:
        """What the floor must do to move the same bytes."""
        if self.api == "produce":
            ring: Ring = produce_ring(topic, 0, self.batch(), 1)
            return {"mode": "append", "skip": ring.payload_offset, "reply_size": produce_reply_size(topic)}
        return {
            "mode": "memory" if self.source == "tail" else "file",
            "reply_size": fetch_reply_overhead(topic, self.fetch_size),
            "slice_size": self.fetch_size,
            "slices": self.slices,
        }

    @property
    def request_bytes(self) -> int:
        """Bytes of records one request moves."""
        return self.fetch_size or len(self.batch())


REQUEST_LOADS = (
    RequestLoad(
        name="produce-100B",
        title="produce 100 B, 16 connections, acks=1",
        api="produce",
        connections=16,
        value_size=100,
        floor_ratio=0.55,
    ),
    RequestLoad(
        name="produce-pipelined",
        title="produce 100 B, 4 connections x 16 deep",
        api="produce",
        connections=4,
        depth=16,
        value_size=100,
        floor_ratio=0.50,
    ),
    RequestLoad(
        name="produce-16KiB",
        title="produce 16 KiB, 16 connections",
        api="produce",
        connections=16,
        batch_size=16 * KIB,
        max_bytes=768 * MIB,
    ),
    RequestLoad(
        name="produce-1MiB",
        title="produce 1 MiB, 4 connections",
        api="produce",
        connections=4,
        batch_size=MIB,
        floor_ratio=0.60,
        max_bytes=768 * MIB,
    ),
    RequestLoad(
        name="fetch-1MiB-tail",
        title="fetch 1 MiB from the tail, 4 connections",
        api="fetch",
        connections=4,
        fetch_size=MIB,
        floor_ratio=0.60,
        max_bytes=1 << 62,
    ),
    RequestLoad(
        name="fetch-1MiB-disk",
        title="fetch 1 MiB from disk, 4 connections",
        api="fetch",
        connections=4,
        fetch_size=MIB,
        source="disk",
        floor_ratio=0.50,
        max_bytes=1 << 62,
    ),
    RequestLoad(
        name="fetch-16KiB",
        title="fetch 16 KiB from the tail, 16 connections",
        api="fetch",
        connections=16,
        fetch_size=16 * KIB,
        max_bytes=1 << 62,
    ),
)


# Readers at the tail and behind it. Beside them a bare `sendfile` of the same bytes is measured.
READER_LOADS = tuple(
    RequestLoad(
        name=f"read-{size_name.replace(' ', '')}-{source_name}-{connections}",
        title=f"read {size_name}, {source_name}, {connections} connection{'s' if connections > 1 else ''}",
        api="fetch",
        connections=connections,
        fetch_size=size,
        source="tail" if source_name == "tail" else "disk",
    )
    for size_name, size in (("16 KiB", 16 * KIB), ("1 MiB", MIB))
    for source_name in ("tail", "older")
    for connections in (1, 4, 16)
)
SENDFILE_TARGET = Target("below", 1.5)
SENDFILE_TARGET_FROM = MIB  # smaller reads are copied


@dataclass(frozen=True, kw_only=True)
class ReplicatedLoad:
    """Produce requests to partitions with and without followers, all led by one of three brokers."""

    name: str
    title: str
    connections: int
    depth: int = 1
    value_size: int = 0
    batch_size: int = 0
    target: Target
    """What the leader may cost with two followers and acks=all, to the same without followers."""


REPLICATED_LOADS = (
    ReplicatedLoad(
        name="replicated-100B",
        title="100 B, 16 connections",
        connections=16,
        value_size=100,
        target=Target("below", 1.8),
    ),
    ReplicatedLoad(
        name="replicated-pipelined",
        title="100 B, 4 connections x 16 deep",
        connections=4,
        depth=16,
        value_size=100,
        target=Target("below", 2.5),
    ),
    ReplicatedLoad(
        name="replicated-16KiB",
        title="16 KiB, 16 connections",
        connections=16,
        batch_size=16 * KIB,
        target=Target("below", 2.0),
    ),
)


@dataclass(frozen=True, kw_only=True)
class ClientLoad:
    """librdkafka writes a topic and reads it again."""

    name: str
    title: str
    value_size: int
    max_messages: int
    messages_per_second: float | None = None
    """The rate aimed at, both ways."""


CLIENT_PARTITIONS = 4
CLIENT_CORES_TARGET = Target("below", 0.5)
CLIENT_LOADS = (
    ClientLoad(
        name="librdkafka-100B",
        title="librdkafka 100 B",
        value_size=100,
        max_messages=10_000_000,
        messages_per_second=1_000_000,
    ),
    ClientLoad(name="librdkafka-1KiB", title="librdkafka 1 KiB", value_size=KIB, max_messages=1_500_000),
)

LATENCY_RATE = 1000
LATENCY_TARGETS = {"p50": Target("below", 0.5), "p99": Target("below", 5.0), "p99.9": None}

START_TARGET = Target("below", 0.5)
MEMORY_TARGET = Target("below", 60.0)

MANY_PARTITIONS = 1000
MANY_START_TARGET = Target("below", 2.0)
MANY_MEMORY_TARGET = Target("below", 200.0)
MANY_CPU_TARGET = Target("below", 2.0)


@dataclass(frozen=True, kw_only=True)
class RestartLoad:
    """A partition of so many bytes, in batches of one size, after `kill -9` with nothing of it flushed."""

    name: str
    batch_size: int
    target: Target | None = None


RESTART_LOADS = (
    RestartLoad(name="restart-16KiB", batch_size=16 * KIB, target=Target("below", 1.0)),
    RestartLoad(name="restart-200B", batch_size=200, target=Target("below", 5.0)),
)

# Name of each group of loads, for --only: a load's own name or its group's.
GROUPS = {
    "produce": [load.name for load in REQUEST_LOADS if load.api == "produce"],
    "fetch": [load.name for load in REQUEST_LOADS if load.api == "fetch"],
    "readers": [load.name for load in READER_LOADS],
    "replicated": [load.name for load in REPLICATED_LOADS],
    "librdkafka": [load.name for load in CLIENT_LOADS],
    "latency": ["latency"],
    "idle": ["idle"],
    "partitions": ["partitions"],
    "restart": [load.name for load in RESTART_LOADS],
}
ALL_LOADS = [name for names in GROUPS.values() for name in names]


def chosen(only: list[str]) -> list[str]:
    """Names of loads, from names of loads and groups; all of them if none is given."""
    if not only:
        return list(ALL_LOADS)
    unknown = [name for name in only if name not in GROUPS and name not in ALL_LOADS]
    if unknown:
        raise ValueError(f"no load {unknown[0]!r}; there are {', '.join([*GROUPS, *ALL_LOADS])}")
    wanted = {load for name in only for load in GROUPS.get(name, [name])}
    return [name for name in ALL_LOADS if name in wanted]
