"""`python -m bench.tls`: produce and fetch over TLS, beside the same without it, in one run.

A broker with a PLAINTEXT and an SSL listener; librdkafka writes a partition full and reads it back, over each in turn,
with records of 100 B, 16 KiB and 1 MiB. Counted are records and bytes a second, and the broker's CPU time; the ratios
are medians over the rounds. `--kafka` measures Apache Kafka with the same certificates as well, from Maven Central.
"""

from __future__ import annotations

import argparse
import datetime
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.apache_kafka import VERSION, apache_kafka
from bench.processes import cpu_seconds
from penstock.client.wire.admin import Admin
from penstock.local.node import LocalNode
from penstock.local.ports import free_ports
from penstock.tls.authority import Authority

SIZES = {"100 B": (100, 300_000), "16 KiB": (16 << 10, 10_000), "1 MiB": ((1 << 20) - 200, 200)}


class Sample(NamedTuple):
    seconds: float
    cpu_s: float


class Subject(NamedTuple):
    name: str
    plain: int
    secure: int
    pid: int

    def client(self, *, tls: bool, directory: Path) -> dict[str, Any]:
        if not tls:
            return {"bootstrap.servers": f"localhost:{self.plain}"}
        return {
            "bootstrap.servers": f"localhost:{self.secure}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(directory / "ca.pem"),
        }


def certificates(directory: Path) -> None:
    directory.mkdir()
    now = datetime.datetime.now(datetime.UTC)
    authority = Authority.create("Bench CA", now)
    (directory / "ca.pem").write_text(authority.certificate)
    (directory / "node.pem").write_text(authority.issue("node", ["localhost", "127.0.0.1"], now).pem)


def measured(pid: int, work: Any) -> Sample:
    cpu, began = cpu_seconds(pid), time.perf_counter()
    work()
    return Sample(time.perf_counter() - began, cpu_seconds(pid) - cpu)


def load(subject: Subject, tls: bool, directory: Path, topic: str, size: int, count: int) -> tuple[Sample, Sample]:
    client = subject.client(tls=tls, directory=directory)
    producer = Producer(
        {
            **client,
            "linger.ms": 5,
            "batch.size": 1 << 20,
            "message.max.bytes": 2 << 20,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "acks": 1,
        }
    )
    value = os.urandom(size)

    def produce() -> None:
        for number in range(count):
            producer.produce(topic, value, partition=0)
            if not number % 1000:
                producer.poll(0)
        assert producer.flush(120) == 0

    consumer = Consumer(
        {
            **client,
            "group.id": topic,
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4 << 20,
            "queued.max.messages.kbytes": 1 << 18,
        }
    )

    def fetch() -> None:
        consumer.assign([TopicPartition(topic, 0, 0)])
        left = count
        while left:
            messages = consumer.consume(min(left, 10_000), 30)
            assert messages, "no records for 30 s"
            left -= len(messages)

    producer.list_topics(topic, timeout=30)
    produced, fetched = measured(subject.pid, produce), measured(subject.pid, fetch)
    consumer.close()
    return produced, fetched


def measure(subject: Subject, directory: Path, rounds: int) -> None:
    print(f"\n{subject.name}: rate of TLS, of plain and their ratio; CPU of the broker a GB of each and their ratio")
    for title, (size, count) in SIZES.items():
        samples: dict[tuple[str, bool], list[Sample]] = {}
        for number in range(rounds + 1):
            for tls in (False, True):
                topic = f"bench-{size}-{number}-{tls}-{int(time.time())}"
                with Admin(f"localhost:{subject.plain}") as admin:
                    admin.topics.create(topic, partitions=1, configs={"max.message.bytes": str(2 << 20)})
                    found = load(subject, tls, directory, topic, size, count)
                    admin.topics.delete(topic)
                if number:  # the first is for warming up
                    for kind, sample in zip(("produce", "fetch"), found, strict=True):
                        samples.setdefault((kind, tls), []).append(sample)
        for kind in ("produce", "fetch"):
            plain, secure = samples[kind, False], samples[kind, True]
            gigabytes = size * count / 1e9
            rates = [count / median(each.seconds for each in found) for found in (secure, plain)]
            cpus = [median(each.cpu_s for each in found) / gigabytes for found in (secure, plain)]
            slower = median(b.seconds / a.seconds for a, b in zip(plain, secure, strict=True))
            costlier = [b.cpu_s / max(a.cpu_s, 1e-9) for a, b in zip(plain, secure, strict=True)]
            print(
                f"{title} {kind}: {rates[0]:,.0f} and {rates[1]:,.0f} records/s ({1 / slower:.2f}); "
                f"{cpus[0]:.2f} and {cpus[1]:.2f} s/GB ({median(costlier):.2f}, {min(costlier):.2f} to "
                f"{max(costlier):.2f})"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kafka", nargs="?", const=VERSION, metavar="VERSION", help=f"default: {VERSION}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as temporary:
        directory = Path(temporary, "certificates")
        certificates(directory)
        plain, secure = free_ports(2)
        node = LocalNode(
            1,
            os.path.join(temporary, "node"),
            host="127.0.0.1",
            port=plain,
            properties={
                "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{secure}",
                "advertised.listeners": f"PLAINTEXT://localhost:{plain},SSL://localhost:{secure}",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(directory / "node.pem"),
                "file.delete.delay.ms": "0",
            },
        )
        node.start()
        try:
            node.wait_ready(60.0)
            assert node.process is not None
            measure(Subject("Penstock", plain, secure, node.process.pid), directory, options.rounds)
        finally:
            node.stop()
        if options.kafka:
            (secure,) = free_ports(1)
            with apache_kafka(temporary, version=options.kafka, tls=(secure, str(directory / "node.pem"))) as cluster:
                (kafka,) = cluster.brokers
                measure(
                    Subject(f"Apache Kafka {options.kafka}", kafka.port, secure, kafka.pid), directory, options.rounds
                )


if __name__ == "__main__":
    main()
