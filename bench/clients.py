"""Loads with librdkafka as the client: bulk produce, bulk consume.

Run as a process of its own (settings as JSON in, a result as JSON out), so that the costs of the client and of the
broker are measured separately.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, Literal

from bench.processes import cpu_seconds
from bench.rdkafka import BatchConsumer, BatchProducer, RdKafkaError

BLOCK = 10_000
FLUSH_TIMEOUT_MS = 60_000
POLL_MS = 100
STALL_S = 30.0


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    bootstrap: str
    server_pid: int = 0
    action: Literal["produce", "consume"]
    topic: str
    partitions: int
    value_size: int
    seconds: float
    max_messages: int
    """produce: at most so many, to bound the log; consume: what the topic holds."""
    acks: str = "1"


@dataclass(frozen=True, kw_only=True)
class ClientResult:
    messages: int
    seconds: float
    messages_per_second: float
    bytes_per_second: float
    """Of values; keys are null."""
    server_cores: float | None
    client_cores: float

    @property
    def server_cores_a_client_core(self) -> float | None:
        return None if self.server_cores is None else self.server_cores / self.client_cores


def run(settings: ClientSettings) -> ClientResult:
    return produce(settings) if settings.action == "produce" else consume(settings)


class _Meter:
    """Time and CPU from construction to `result`."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._server_cpu = cpu_seconds(settings.server_pid) if settings.server_pid else 0.0
        self._client_cpu = time.process_time()
        self._started = time.perf_counter()

    def elapsed(self) -> float:
        return time.perf_counter() - self._started

    def result(self, messages: int) -> ClientResult:
        settings = self._settings
        seconds = self.elapsed()
        server = cpu_seconds(settings.server_pid) - self._server_cpu if settings.server_pid else None
        return ClientResult(
            messages=messages,
            seconds=seconds,
            messages_per_second=messages / seconds,
            bytes_per_second=messages * settings.value_size / seconds,
            server_cores=None if server is None else server / seconds,
            client_cores=(time.process_time() - self._client_cpu) / seconds,
        )


def produce(settings: ClientSettings) -> ClientResult:
    """Blocks of messages to the partitions in turn, until time or number is up and all of them are acknowledged."""
    properties: dict[str, str | int] = {
        "bootstrap.servers": settings.bootstrap,
        "acks": settings.acks,
        "linger.ms": 5,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 256 * 1024,
        "batch.num.messages": BLOCK,
        "delivery.timeout.ms": FLUSH_TIMEOUT_MS,
    }
    with BatchProducer(settings.topic, b"v" * settings.value_size, BLOCK, properties) as producer:
        for partition in range(settings.partitions):
            producer.produce_block(partition)
        producer.flush(FLUSH_TIMEOUT_MS)
        meter = _Meter(settings)
        messages = 0
        while meter.elapsed() < settings.seconds and messages < settings.max_messages:
            messages += producer.produce_block(messages // BLOCK % settings.partitions)
        producer.flush(FLUSH_TIMEOUT_MS)
        return meter.result(messages)


def warmup_messages(partitions: int) -> int:
    """What `produce` sends before the clock starts."""
    return BLOCK * partitions


def consume(settings: ClientSettings) -> ClientResult:
    """From the beginning, as much as there is or the time allows; the clock starts with the first message."""
    properties: dict[str, str | int] = {
        "bootstrap.servers": settings.bootstrap,
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 256 * 1024,
        # The default waits a second when the queue is full: a stall of the client, not of the broker.
        "fetch.queue.backoff.ms": 0,
        "fetch.message.max.bytes": 1024 * 1024,
    }
    with BatchConsumer(settings.topic, settings.partitions, properties) as consumer:
        give_up = time.perf_counter() + STALL_S
        while not consumer.consume(POLL_MS):
            if time.perf_counter() > give_up:
                raise RdKafkaError(f"nothing of {settings.topic} within {STALL_S:g} s")
        meter = _Meter(settings)
        messages = 0
        stalled_at = meter.elapsed() + STALL_S
        while meter.elapsed() < settings.seconds and messages < settings.max_messages - BLOCK:
            got = consumer.consume(POLL_MS)
            messages += got
            if got:
                stalled_at = meter.elapsed() + STALL_S
            elif meter.elapsed() > stalled_at:
                raise RdKafkaError(f"{settings.topic}: stalled after {messages} messages")
        return meter.result(messages)


def main(arguments: dict[str, Any]) -> None:
    print(json.dumps(asdict(run(ClientSettings(**arguments)))))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
