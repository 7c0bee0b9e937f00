"""What a worker process keeps between tasks: connections, and its own transactional ids."""

from __future__ import annotations

import os
import time
import uuid
from typing import Any

from penstock.arrow.writing import Writer
from penstock.client.errors import UnknownTopic
from penstock.client.wire.admin import ResourceType
from penstock.client.wire.admin.configs import Configs
from penstock.client.wire.leaders import Leaders
from penstock.client.wire.transaction import Transaction
from penstock.model.errors import ErrorCode, KafkaError
from penstock.spark.sink.brokers import SinkBrokers
from penstock.spark.sink.options import TRANSACTION_TIMEOUT_MS, ProducerSettings
from penstock.spark.sink.two_phase import Slots
from penstock.spark.source.errors import BadOption

# Writers are replaced after this time, so that added partitions get rows.
METADATA_S = 300.0
_MAX_TIMEOUT = "transaction.max.timeout.ms"

_by_settings: dict[ProducerSettings, WorkerConnections] = {}
_slots = Slots(uuid.uuid4().hex)


def _begin_anew() -> None:
    """In a forked worker: with the ids of its parent, workers would abort each other's transactions."""
    global _slots
    _slots = Slots(uuid.uuid4().hex)
    _by_settings.clear()


os.register_at_fork(after_in_child=_begin_anew)


class WorkerConnections:
    """The connections of one process to one cluster."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self.brokers = SinkBrokers(settings)
        self._plain: Writer | None = None
        self._transactional: Writer | None = None
        self._timeout_ms = settings.transaction_timeout_ms or TRANSACTION_TIMEOUT_MS
        self._topics: set[str] = set()
        self._made = time.monotonic()

    def close(self) -> None:
        self.brokers.close()
        self._close_writers()

    def check_topic(self, topic: str) -> None:
        """Check once that the cluster can be reached and has the topic."""
        if topic not in self._topics:
            with Leaders(self._settings.bootstrap, timeout=self._settings.request_timeout) as leaders:
                try:
                    leaders.find([topic])
                except UnknownTopic as error:
                    raise UnknownTopic(f"topic={topic!r}: {error}; penstock topics create {topic} makes it") from error
            self._topics.add(topic)

    def begin(self, sink: str, run: str, batch: int) -> Transaction:
        """A transaction for one attempt of a task, under an epoch of its own."""
        transactional_id = _slots.take(sink, run, batch)
        try:
            return self._transaction(transactional_id)
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise
            longest = self._longest_timeout_ms()
            if self._settings.transaction_timeout_ms is not None:
                raise BadOption(
                    f"kafka.transaction.timeout.ms={self._timeout_ms} is more than brokers allow ({longest}): lower "
                    f"it, or raise {_MAX_TIMEOUT} of the brokers"
                ) from error
            self._timeout_ms = longest
            return self._transaction(transactional_id)

    def write(self, topic: str, table: Any, transaction: Transaction | None) -> None:
        writer = self._writer(transaction)
        partition = "partition" if "partition" in table.schema.names else None
        writer.write(topic, table, partition=partition)

    def _transaction(self, transactional_id: str) -> Transaction:
        return Transaction(
            self._settings.bootstrap,
            transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            cluster=self.brokers.cluster,
        )

    def _close_writers(self) -> None:
        for writer in (self._plain, self._transactional):
            if writer is not None:
                writer.close()
        self._plain = self._transactional = None

    def _writer(self, transaction: Transaction | None) -> Writer:
        if time.monotonic() - self._made > METADATA_S:
            self._close_writers()
            self._made = time.monotonic()
        if transaction is None:
            self._plain = self._plain or self._new_writer(None)
            return self._plain
        self._transactional = self._transactional or self._new_writer(transaction)
        self._transactional.transaction = transaction
        return self._transactional

    def _new_writer(self, transaction: Transaction | None) -> Writer:
        settings = self._settings
        return Writer(
            settings.bootstrap,
            compression=settings.compression,
            compression_level=settings.compression_level,
            transaction=transaction,
            batch_bytes=settings.batch_bytes,
            timeout=settings.delivery_timeout,
            request_timeout=settings.request_timeout,
        )

    def _longest_timeout_ms(self) -> int:
        cluster = self.brokers.cluster
        entries = Configs(cluster).describe(ResourceType.BROKER, str(cluster.broker_ids()[0]))
        return next((int(each.value or 0) for each in entries if each.name == _MAX_TIMEOUT), self._timeout_ms)


def worker_connections(settings: ProducerSettings) -> WorkerConnections:
    """The connections of this process."""
    if settings not in _by_settings:
        _by_settings[settings] = WorkerConnections(settings)
    return _by_settings[settings]


def discard(settings: ProducerSettings) -> None:
    """After a failure: the next task opens new connections."""
    found = _by_settings.pop(settings, None)
    if found is not None:
        found.close()
