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

from penstock.client.errors import ClientError, UnknownTopic
from penstock.client.wire.admin import Admin
from penstock.client.wire.partition_log import PartitionLog
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.spark.progress.query_progress import QueryProgress, UnreadableProgress

TOPIC = "__pipelines"
PARTITION = TopicPartition(TOPIC, 0)

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


def last_words(bootstrap: str, start: int = 0) -> dict[str, str]:
    """The last value of every key from an offset on."""
    last: dict[str, str] = {}
    with PartitionLog(bootstrap, PARTITION) as log:
        try:
            for record in log.read(start):
                if record.key is None:
                    continue
                key = record.key.decode(errors="replace")
                if record.value is None:
                    last.pop(key, None)
                else:
                    last[key] = record.value.decode(errors="replace")
        except UnknownTopic:
            return {}
    return last


class PipelinesTopic:
    """Writes to the topic of one cluster, and creates it if it does not exist. For one thread. A write that does not
    succeed within `timeout` seconds raises a ClientError or KafkaError, and the next `write` starts with new
    connections."""

    def __init__(self, bootstrap: str, *, timeout: float) -> None:
        self._bootstrap = bootstrap
        self._timeout = timeout
        self._log: PartitionLog | None = None

    def write(self, progress: QueryProgress) -> None:
        self.put(progress.query_id, progress.to_json())

    def make(self) -> None:
        """Create the topic if it does not exist."""
        if self._log is None:
            self._open()

    def put(self, key: str, value: str) -> None:
        log = self._log or self._open()
        try:
            # A record that is written twice repeats the same state.
            log.append(key.encode(), value.encode())
        except (ClientError, KafkaError):
            self.close()
            raise

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _open(self) -> PartitionLog:
        with Admin(self._bootstrap, timeout=self._timeout) as admin:
            if not _exists(admin):
                _create(admin)
        self._log = PartitionLog(self._bootstrap, PARTITION, timeout=self._timeout, request_timeout=self._timeout)
        return self._log


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
