"""Who reads: consumer groups the events, and one reader everything that pipelines write.

A group reads its topics as any application would: as a member, committing as it goes. The reader of results starts at
the beginning and reads committed records only, so it sees what a pipeline has decided and nothing else.
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING

from penstock.demo.clients import BATCHES_SECONDS, Latencies, settings
from penstock.demo.ledger import EventId, Ledger
from penstock.demo.letters import REPLAYED, Letters
from penstock.demo.poison import is_spoilt, repair
from penstock.demo.reports import Reports
from penstock.demo.streams import (
    BY_OUTPUT,
    DEAD_LETTERS,
    FLOWS,
    PARTITIONS,
    REPORTS,
)

if TYPE_CHECKING:
    from confluent_kafka import Message

_BATCH = 1000
_WAIT_SECONDS = 0.1


class GroupReader:
    def __init__(self, bootstrap: str, group: str, ledger: Ledger, letters: Letters | None) -> None:
        """With `letters`, what cannot be read is put aside: without pipelines nobody else would."""
        self._bootstrap = bootstrap
        self.group = group
        self._topics = [flow.topic for flow in FLOWS if flow.group == group]
        self._ledger = ledger
        self._letters = letters
        self.latencies = Latencies()
        self.read = 0
        self.unreadable = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            settings(
                self._bootstrap,
                group_id=self.group,
                auto_offset_reset="earliest",
                auto_commit_interval_ms=1000,
                fetch_wait_max_ms=100,
            )
        )
        try:
            consumer.subscribe(self._topics)
            while not self.stopping.is_set():
                for message in consumer.consume(_BATCH, _WAIT_SECONDS):
                    if message.error() is None:
                        self._take(message)
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        topic, partition, offset = _place(message)
        if not self._ledger.topics.is_new(topic, partition, offset):
            return
        value = message.value() or b""
        spoilt = is_spoilt(value)
        if not message.headers() or REPLAYED not in dict(message.headers() or ()):
            key, sequence = _identity(message, repair(value))
            self._ledger.topics.see(topic, key, sequence)
        if spoilt:
            self.unreadable += 1
            if self._letters is not None:
                self._letters.put_aside(message)
        self.latencies.add(time.time() * 1000 - message.timestamp()[1])
        self.read += 1


class ResultsReader:
    def __init__(
        self, bootstrap: str, ledger: Ledger, letters: Letters, reports: Reports, marks: dict[EventId, float]
    ) -> None:
        self._bootstrap = bootstrap
        self._ledger = ledger
        self._letters = letters
        self._reports = reports
        self._marks = marks
        self.latencies = {name: Latencies(BATCHES_SECONDS) for name in ledger.outputs}
        self.read = dict.fromkeys(ledger.outputs, 0)
        self.stopping = threading.Event()

    def run(self) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            settings(
                self._bootstrap,
                group_id="penstock-demo-results",  # never joined
                enable_auto_commit=False,
                isolation_level="read_committed",
                fetch_wait_max_ms=100,
            )
        )
        topics = (*BY_OUTPUT, *REPORTS.values(), *DEAD_LETTERS.values())
        try:
            consumer.assign(
                [TopicPartition(topic, index, OFFSET_BEGINNING) for topic in topics for index in range(PARTITIONS)]
            )
            while not self.stopping.is_set():
                for message in consumer.consume(_BATCH, _WAIT_SECONDS):
                    if message.error() is None:
                        self._take(message)
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        topic = message.topic() or ""
        if topic in BY_OUTPUT:
            self._passed_on(topic, message)
        elif topic in DEAD_LETTERS.values():
            self._letters.arrived(message)
        else:
            self._reports.report(topic, json.loads(message.value() or b"{}"))

    def _passed_on(self, topic: str, message: Message) -> None:
        flow = BY_OUTPUT[topic]
        output = self._ledger.outputs[flow.pipeline]
        if not output.is_new(*_place(message)):
            return
        row = json.loads(message.value() or b"{}")
        which = (flow.topic, row[flow.key], row["sequence"])
        output.see(*which)
        self._reports.event(flow, row)
        self.read[flow.pipeline] += 1
        sent = self._marks.pop(which, None)
        if sent is not None:
            self.latencies[flow.pipeline].add((time.monotonic() - sent) * 1000)


def _place(message: Message) -> tuple[str, int, int]:
    return message.topic() or "", message.partition() or 0, message.offset() or 0


def _identity(message: Message, value: bytes) -> tuple[str, int]:
    return (message.key() or b"").decode(), json.loads(value)["sequence"]
