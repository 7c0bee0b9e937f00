"""What a broker costs when it does nothing, and how long it takes to be there: start, memory, many partitions, restart.

These need no floor and have no peer: they start and stop brokers of their own.
"""

from __future__ import annotations

import os
import socket
import time

from bench.fill import fill
from bench.frames import (
    REPLY_HEADER_SIZE,
    BadReply,
    batch_of_size,
    check_fetch_reply,
    fetch_ring,
    single_record_batch,
)
from bench.loads import (
    MANY_CPU_TARGET,
    MANY_MEMORY_TARGET,
    MANY_PARTITIONS,
    MANY_START_TARGET,
    MEMORY_TARGET,
    MIB,
    START_TARGET,
    RestartLoad,
)
from bench.processes import cpu_seconds, resident_bytes, wait_until
from bench.progress import Steps
from bench.results import Row
from bench.run import Scale
from bench.subjects import PENSTOCK, READY_TIMEOUT_S, Kafka, PenstockNode
from penstock.client.errors import ClientError, raise_for
from penstock.client.wire.admin import Admin
from penstock.client.wire.connection import Connection
from penstock.model.errors import ErrorCode
from penstock.model.ids import Uuid, uuid_from_text
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.records.batch import read_header

STARTS = 3
_MEGABYTE = 1_000_000


class Footprint:
    def __init__(self, directory: str, scale: Scale, steps: Steps) -> None:
        self._directory = directory
        self._scale = scale
        self._steps = steps

    def idle(self) -> list[Row]:
        """Start with an empty directory, and memory of a broker without clients."""
        start = Row("idle", "start to first reply", "s", START_TARGET)
        memory = Row("idle", "memory, idle", "MB", MEMORY_TARGET)
        node = PenstockNode(os.path.join(self._directory, "idle"))
        self._steps.doing("starting an empty broker")
        node.start()  # compiles our modules, if they are not compiled
        node.stop()
        for number in range(STARTS):
            node = PenstockNode(os.path.join(self._directory, f"idle-{number}"))
            try:
                start.add(PENSTOCK, node.start())
                memory.add(PENSTOCK, resident_bytes(node.kafka.pid) / _MEGABYTE)
            finally:
                node.stop()
        self._steps.advance()
        return [start, memory]

    def partitions(self) -> list[Row]:
        """Many partitions, each with a little data in it, after a clean stop."""
        title = f"{MANY_PARTITIONS:,} partitions"
        start = Row("partitions", f"{title}: start until all are led", "s", MANY_START_TARGET)
        memory = Row("partitions", f"{title}: memory", "MB", MANY_MEMORY_TARGET)
        idle = Row("partitions", f"{title}: CPU, idle", "%", MANY_CPU_TARGET)
        node = PenstockNode(os.path.join(self._directory, "partitions"))
        self._steps.doing(title)
        try:
            node.start()
            topic = "bench-many"
            with Admin(node.kafka.bootstrap, timeout=READY_TIMEOUT_S) as admin:
                created = admin.topics.create(topic, partitions=MANY_PARTITIONS, replication_factor=1)
            wait_until(lambda: node.kafka.leads(topic), f"leaders of {title}")
            assert created.topic_id is not None
            _produce_to_all(node.kafka, uuid_from_text(created.topic_id))
            for _ in range(STARTS):
                node.stop()
                began = time.perf_counter()
                node.start()
                wait_until(lambda: node.kafka.leads(topic), f"leaders of {title}")
                start.add(PENSTOCK, time.perf_counter() - began)
            pid = node.kafka.pid
            memory.add(PENSTOCK, resident_bytes(pid) / _MEGABYTE)
            before, began = cpu_seconds(pid), time.perf_counter()
            time.sleep(self._scale.idle_seconds)
            idle.add(PENSTOCK, (cpu_seconds(pid) - before) / (time.perf_counter() - began) * 100)
        finally:
            node.stop()
        self._steps.advance()
        return [start, memory, idle]

    def restart(self, load: RestartLoad) -> Row:
        """From the start after `kill -9` until the last batch can be fetched again.

        Recovery points are not written meanwhile: the whole log has to be looked at, which is the worst case.
        """
        size = self._scale.restart_bytes
        batches = f"{load.batch_size // 1024} KiB" if load.batch_size >= 1024 else f"{load.batch_size} B"
        row = Row(load.name, f"restart after kill -9, {size // MIB:,} MiB in batches of {batches}", "s", load.target)
        never = {"log.flush.offset.checkpoint.interval.ms": "3600000"}
        node = PenstockNode(os.path.join(self._directory, load.name), never)
        topic = "bench-restart"
        batch = batch_of_size(load.batch_size)
        records = read_header(batch).count
        count = size // len(batch)
        self._steps.doing(f"{row.title}: filling")
        try:
            node.start()
            with Admin(node.kafka.bootstrap) as admin:
                admin.topics.create(topic, partitions=1, replication_factor=1)
            wait_until(lambda: node.kafka.leads(topic), topic)
            fill(node.kafka, topic, batch, count)
            node.kill()
            self._steps.doing(f"{row.title}: recovering")
            began = time.perf_counter()
            node.start()
            wait_until(lambda: _serves(node.kafka, topic, (count - 1) * records, len(batch)), f"{topic} after a crash")
            row.add(PENSTOCK, time.perf_counter() - began)
        finally:
            node.stop()
        self._steps.advance()
        return row


def _serves(kafka: Kafka, topic: str, offset: int, size: int) -> bool:
    """Whether the batch at an offset comes back, whole."""
    ring = fetch_ring(topic, 0, [offset], size)
    try:
        with socket.create_connection((kafka.host, kafka.port), timeout=READY_TIMEOUT_S) as connection:
            connection.sendall(ring.frames[: ring.frame_size])
            with connection.makefile("rb") as replies:
                reply = replies.read(int.from_bytes(replies.read(4), "big"))
        check_fetch_reply(memoryview(reply)[REPLY_HEADER_SIZE - 4 :], topic, offset, size)
    except (BadReply, OSError):
        return False
    return True


def _produce_to_all(kafka: Kafka, topic_id: Uuid) -> None:
    """A broker opens the logs of many new partitions bit by bit. Those that it does not lead yet are tried again."""
    batch = single_record_batch(100)
    missing = set(range(MANY_PARTITIONS))

    def all_have_a_record() -> bool:
        partitions = [PartitionProduceData(index=index, records=batch) for index in sorted(missing)]
        topic = TopicProduceData(topic_id=topic_id, partition_data=partitions)
        response = connection.request(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic]), ProduceResponse)
        for partition in response.responses[0].partition_responses:
            if partition.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise_for(partition.error_code, partition.error_message, f"produce to partition {partition.index}")
                missing.discard(partition.index)
        return not missing

    try:
        with Connection(kafka.host, kafka.port, timeout=READY_TIMEOUT_S) as connection:
            wait_until(all_have_a_record, f"a record in each of {MANY_PARTITIONS} partitions")
    except ClientError as error:
        raise BadReply(f"no reply to a Produce for {MANY_PARTITIONS} partitions: {error}") from error
