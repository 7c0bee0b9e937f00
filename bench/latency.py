"""End-to-end latency: a librdkafka producer sends at a steady rate, a consumer reads at the tail.

Both live in one process, so that the times are of one clock. Each message carries when it was handed to the producer;
what is counted is the time until the consumer has it. Settings as JSON in, quantiles as JSON out.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

_SENT_AT = struct.Struct(">q")
_QUANTILES = [number / 1000 for number in range(1000)] + [0.9995, 0.9999]
_ASSIGN_TIMEOUT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class LatencySettings:
    bootstrap: str
    topic: str
    messages_per_second: int
    seconds: float
    warmup_s: float = 0.5
    value_size: int = 100
    acks: str = "1"


@dataclass(frozen=True, kw_only=True)
class LatencyResult:
    messages: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    quantiles_ms: list[tuple[float, float]]


class _Reader(threading.Thread):
    """Reads the one partition from its end of now, and notes how long each message took."""

    def __init__(self, settings: LatencySettings) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": settings.bootstrap,
                "group.id": "bench-latency",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign([TopicPartition(settings.topic, 0, 0)])
        self.at_end = threading.Event()
        self.latencies_ns: list[int] = []
        self.failure: KafkaError | None = None
        self._stopping = False

    def run(self) -> None:
        while not self._stopping:
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self.latencies_ns.append(time.perf_counter_ns() - _SENT_AT.unpack_from(message.value() or b"")[0])
            elif error.code() == KafkaError._PARTITION_EOF:
                self.at_end.set()
            else:
                self.failure = error
                self.at_end.set()
                return

    def stop(self) -> None:
        self._stopping = True
        self.join()
        self._consumer.close()
        if self.failure is not None:
            raise KafkaException(self.failure)


def measure(settings: LatencySettings) -> LatencyResult:
    reader = _Reader(settings)
    reader.start()
    if not reader.at_end.wait(_ASSIGN_TIMEOUT_S):
        raise TimeoutError(f"the consumer does not reach the end of {settings.topic}")
    producer = Producer({"bootstrap.servers": settings.bootstrap, "acks": settings.acks, "linger.ms": 0})
    padding = bytes(settings.value_size - _SENT_AT.size)
    interval = 1.0 / settings.messages_per_second
    count = int((settings.warmup_s + settings.seconds) * settings.messages_per_second)
    due = time.perf_counter()
    for _ in range(count):
        due += interval
        wait = due - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        producer.produce(settings.topic, _SENT_AT.pack(time.perf_counter_ns()) + padding, partition=0)
        producer.poll(0)
    producer.flush(_ASSIGN_TIMEOUT_S)
    deadline = time.perf_counter() + _ASSIGN_TIMEOUT_S
    while len(reader.latencies_ns) < count and time.perf_counter() < deadline and reader.failure is None:
        time.sleep(0.01)
    reader.stop()
    if len(reader.latencies_ns) != count:
        raise RuntimeError(f"{len(reader.latencies_ns)} of {count} messages came back")
    measured = sorted(reader.latencies_ns[int(settings.warmup_s * settings.messages_per_second) :])

    def quantile_ms(fraction: float) -> float:
        return measured[min(len(measured) - 1, int(len(measured) * fraction))] / 1e6

    return LatencyResult(
        messages=len(measured),
        p50_ms=quantile_ms(0.5),
        p99_ms=quantile_ms(0.99),
        p999_ms=quantile_ms(0.999),
        quantiles_ms=[(fraction, quantile_ms(fraction)) for fraction in _QUANTILES],
    )


def main(arguments: dict[str, Any]) -> None:
    print(json.dumps(asdict(measure(LatencySettings(**arguments)))))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
