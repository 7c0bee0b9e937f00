"""`__pipelines`: the topic that streaming queries write their progress to, and that tools read it from.

    from penstock.spark import queries

    for query in queries("127.0.0.1:9092"):
        print(query.name, query.state, query.lag)

The topic has one partition and is compacted, so it keeps the last record of every query. Records that were not renewed
for a week are deleted, because a query without a checkpoint has a new id at every start. Segments are small, because
the active segment is never compacted.

Keys with a slash do not belong to queries: `pipeline/NAME` is the report of a pipeline that runs from a file, and
`control/NAME` holds the commands for it (`penstock.pipelines.operate.reports`).
"""

from __future__ import annotations

import logging
import time
from typing import Literal

import pyarrow as pa

from penstock.arrow import Writer, read_table
from penstock.client.errors import ClientError, UnknownTopic
from penstock.client.wire.admin import Admin
from penstock.model.errors import ErrorCode, KafkaError
from penstock.spark.progress.query_progress import QueryProgress, UnreadableProgress

TOPIC = "__pipelines"

logger = logging.getLogger("penstock.spark")

_REPLICATION_FACTOR_MAX = 3
_CONFIGS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(7 * 24 * 3600 * 1000),
    "segment.bytes": str(8 * 1024 * 1024),
    "segment.ms": str(3600 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}


def queries(bootstrap: str) -> list[QueryProgress]:
    """The last record of every query that wrote to this cluster, by name; queries without heartbeats are `lost`."""
    now_ms = time.time_ns() // 1_000_000
    found = []
    for key, text in last_words(bootstrap).items():
        if "/" in key:
            continue
        try:
            found.append(QueryProgress.from_json(text).as_of(now_ms))
        except UnreadableProgress as error:
            logger.warning("%s: %s", TOPIC, error)
    return sorted(found, key=lambda query: (query.name or "", query.query_id))


def last_words(bootstrap: str, start: int | Literal["earliest"] = "earliest") -> dict[str, str]:
    """The last value of every key from an offset on."""
    try:
        table = read_table(bootstrap, TOPIC, start=start, key="string", value="string", columns=["key", "value"])
    except UnknownTopic:
        return {}
    last = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    return {key: value for key, value in last.items() if key is not None and value is not None}


class PipelinesTopic:
    """Writes to the topic of one cluster, and creates it if it does not exist. For one thread. A write that does not
    succeed within `timeout` seconds raises a ClientError or KafkaError, and the next `write` starts with new
    connections."""

    def __init__(self, bootstrap: str, *, timeout: float) -> None:
        self._bootstrap = bootstrap
        self._timeout = timeout
        self._writer: Writer | None = None

    def write(self, progress: QueryProgress) -> None:
        self.put(progress.query_id, progress.to_json())

    def make(self) -> None:
        """Create the topic if it does not exist."""
        if self._writer is None:
            self._open()

    def put(self, key: str, value: str) -> None:
        writer = self._writer or self._open()
        table = pa.table({"key": [key], "value": [value]})
        try:
            writer.write(TOPIC, table)
        except (ClientError, KafkaError):
            self.close()
            raise

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self) -> Writer:
        with Admin(self._bootstrap, timeout=self._timeout) as admin:
            if not _exists(admin):
                _create(admin)
        # A record that is written twice repeats the same state, so the producer needs no idempotence.
        self._writer = Writer(self._bootstrap, idempotent=False, timeout=self._timeout, request_timeout=self._timeout)
        return self._writer


def _exists(admin: Admin) -> bool:
    """A client that may write to the topic need not have the right to create it."""
    try:
        admin.topics.describe([TOPIC])
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return False
    return True


def _create(admin: Admin) -> None:
    replicas = min(_REPLICATION_FACTOR_MAX, len(admin.cluster.describe().brokers))
    try:
        admin.topics.create(TOPIC, partitions=1, replication_factor=replicas, configs=_CONFIGS)
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
