"""What the members of a group told, and the laws that it has to keep.

- In one generation a partition has one owner.
- Whatever is committed was read before, from the first record on.
- An offset that was acknowledged as committed stays so, and the next one is not lower: neither as the broker answers
  nor in its log of commits.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaError, TopicPartition

from chaos.programs import Event, Program
from clients.librdkafka import close
from narrowing import expect, present
from penstock.broker.coordinators.hashing import partition_for
from penstock.broker.coordinators.serde import GROUP_RECORDS
from penstock.model.topics import CONSUMER_OFFSETS
from penstock.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue


class Ledger:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[tuple[int, int], Program] = {}
        self._read: dict[int, set[int]] = {}
        self._read_up_to: Counter[int] = Counter()  # every offset below was read
        self.acknowledged: Counter[int] = Counter()  # partition -> the highest offset that was committed
        self.owned: dict[Program, frozenset[int]] = {}  # what each has now
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []

    def heard(self, member: Program, event: Event) -> None:
        with self._lock:
            self.counts[event["event"]] += 1
            if event["event"] == "given":
                self._given(member, event["generation"], event["partitions"])
            elif event["event"] == "read":
                for partition, runs in event["offsets"].items():
                    self._was_read(int(partition), runs)
            elif event["event"] == "committed":
                for partition, offset in event["offsets"].items():
                    self._was_committed(int(partition), offset)

    def _given(self, member: Program, generation: int, partitions: Iterable[int]) -> None:
        self.owned[member] = frozenset(partitions)
        for partition in self.owned[member]:
            owner = self._owners.setdefault((generation, partition), member)
            if owner is not member:
                self.violations.append(f"partition {partition} has two owners in generation {generation}")

    def _was_read(self, partition: int, runs: Iterable[tuple[int, int]]) -> None:
        read = self._read.setdefault(partition, set())
        for first, last in runs:
            read.update(range(first, last + 1))
            self.counts["records"] += last + 1 - first
        up_to = self._read_up_to[partition]
        while up_to in read:
            read.remove(up_to)
            up_to += 1
        self._read_up_to[partition] = up_to

    def _was_committed(self, partition: int, offset: int) -> None:
        if offset > self._read_up_to[partition]:
            self.violations.append(
                f"{offset} of partition {partition} was committed, {self._read_up_to[partition]} read"
            )
        self.acknowledged[partition] = max(self.acknowledged[partition], offset)

    def has_read(self, ends: Mapping[int, int]) -> bool:
        return all(self._read_up_to[partition] >= end for partition, end in ends.items())

    def has_committed(self, ends: Mapping[int, int]) -> bool:
        return all(self.acknowledged[partition] >= end for partition, end in ends.items())

    def progress(self) -> str:
        with self._lock:
            owned = [sorted(each) for member, each in self.owned.items() if member.is_running]
            return f"read {dict(self._read_up_to)}, committed {dict(self.acknowledged)}, owned {owned}"

    def check(self) -> None:
        assert not self.violations, self.violations[:5]


def commits_in_log(
    bootstrap: str, group: str, internal_partitions: int, login: Mapping[str, str], timeout: float = 30
) -> dict[int, list[int]]:
    """Every offset that was ever committed, by partition of the one topic the group reads, in the log's order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "auditor", "enable.partition.eof": True, **login})
    found: dict[int, list[int]] = {}
    deadline = time.monotonic() + timeout
    try:
        consumer.assign([TopicPartition(CONSUMER_OFFSETS, partition_for(group, internal_partitions), 0)])
        while True:
            message = consumer.poll(timeout)
            assert message is not None, "the log of commits cannot be read"
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return found
                assert time.monotonic() < deadline, f"the log of commits cannot be read: {error}"
                continue
            record = GROUP_RECORDS.decode(present(message.key()), message.value())
            if record is not None and isinstance(record.key, OffsetCommitKey) and record.key.group == group:
                assert record.value is not None, "a commit was deleted"
                found.setdefault(record.key.partition, []).append(expect(OffsetCommitValue, record.value).offset)
    finally:
        close(consumer)
