"""What the client tests ask of a Kafka client, whichever language it is written in.

A driver wraps one unmodified client library behind the few verbs below, so that one set of tests (`contract.py`) runs
with every client and what one client wrote can be read by all others. Drivers translate, they never smooth over: keys,
values, headers, timestamps and offsets are exactly what the client reported, and an error of the broker arrives as
`Refused` with Kafka's own error code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

DEADLINE_S = 30.0
"""How long any one operation may take before the test fails; a healthy broker needs milliseconds."""

FETCH_WAIT_MS = 500
"""How long a fetch waits at the broker for data: what most clients have by default."""

MAX_REQUEST_BYTES = 4 << 20
"""The clients' own limit on requests and messages, above the broker's, so that it is the broker that refuses."""


class Header(NamedTuple):
    name: str
    value: bytes | None


class Record(NamedTuple):
    """A record as sent (partition and timestamp may be left to the client, the offset is not known) or as read."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None
    partition: int | None = None
    offset: int | None = None


def record_of(message: Any) -> Record:
    """Of what aiokafka and kafka-python give, which have the same names."""
    headers = tuple(Header(name, value) for name, value in message.headers)
    return Record(message.key, message.value, headers, message.timestamp, message.partition, message.offset)


class Position(NamedTuple):
    """Where a produced record went, by the answer to the producer."""

    partition: int
    offset: int | None
    """None if no answer was asked for (acks=0)."""


class Refused(Exception):
    """The broker answered with an error, or the client gave up with one it had from the broker."""

    def __init__(self, code: int, message: object = "") -> None:
        super().__init__(code, str(message))
        self.code = code


class Reader(Protocol):
    def take(self, count: int, *, timeout_s: float = DEADLINE_S) -> list[Record]:
        """The next `count` records in the order the client gave them, or fewer when the time is over."""


class Client(Protocol):
    """What every client can do."""

    name: str
    sends_null_headers: bool
    """Kafka allows a header without a value; some clients' producers do not."""

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        batch_bytes: int | None = None,
    ) -> list[Position]:
        """Send all records, several requests in flight, wait for the answers; positions in the order of the records."""

    def reader(
        self, topic: str, starts: Mapping[int, int], *, wait_ms: int = FETCH_WAIT_MS
    ) -> AbstractContextManager[Reader]:
        """Read given partitions from given offsets; out of range resets to the earliest offset. No consumer group."""

    def earliest(self, topic: str, partition: int) -> int: ...

    def latest(self, topic: str, partition: int) -> int: ...

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        """The first offset whose timestamp is at or after the given one."""

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def topics(self) -> set[str]: ...

    def partition_count(self, topic: str) -> int: ...

    def create_partitions(self, topic: str, total: int) -> None: ...

    def delete_records(self, topic: str, partition: int, before: int) -> None: ...

    def topic_configs(self, topic: str) -> dict[str, str | None]: ...

    def alter_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None: ...

    def cluster(self) -> ClusterDescription: ...


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller: int
    brokers: dict[int, str]
    """Node id to "host:port"."""
