"""The shared part of `Producer` and `AsyncProducer`: settings, serializers, partitions, failures.

**The first record for a topic** waits for the topic's metadata, so that an unknown topic and an unreachable cluster are
an error at once, not after the delivery timeout. This also returns the number of partitions, which is queried again
every five minutes.

**Failures are never silent.** A failed delivery is logged, and kept until the user checks it (`result()`) or `flush` or
`close` raises it.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from penstock.client.errors import (
    BadSetting,
    ClientError,
    Closed,
    NotDelivered,
    QueueFull,
    Unserializable,
)
from penstock.client.librdkafka.delivery import Delivery
from penstock.client.librdkafka.library import Trouble, ask_partitions, checked, client_error, create, watch
from penstock.client.librdkafka.partitioners import Partitioner, SpreadName
from penstock.client.librdkafka.producer_transaction import Transactions
from penstock.client.librdkafka.types import K, V
from penstock.serializers.base import Context, HeaderPairs, Serializer, is_plain
from penstock.serializers.plain import Bytes

logger = logging.getLogger("penstock.client")

Acks = Literal["0", "1", "all"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Headers = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]]
Encode = Callable[[Any], bytes | None]

ANY_PARTITION = -1
# Added to a turn as a flag to poll as well; no topic has so many partitions that a turn without it is above
# MAX_PARTITION.
POLL = 1 << 24
MAX_PARTITION = POLL >> 1
_OWN = frozenset({"on_delivery", "delivery.report.only.error", "bootstrap.servers", "partitioner"})
_REFRESH_S = 300.0
_REFRESH_WAIT_S = 1.0
# A topic created a moment ago, perhaps by our own metadata request, is not known to every broker yet.
_TOPIC_PATIENCE_S = 3.0
_NOT_THERE_YET = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)
_TOPIC_RETRY_S = 0.05
_FAILURES_KEPT = 1000
# Polling takes about as long as sending, so it is done once for this many records.
_SENDS_A_POLL = 32
_PURGE_S = 10.0
_EXIT_S = 10.0
# Errors caused by our own abort or close; their callers know.
_GIVEN_UP = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})


def _checked(settings: Mapping[str, Any], partitioner: object) -> dict[str, Any]:
    """The settings that are given; raise BadSetting for one that the producer itself sets."""
    given = checked(settings, producer=True)
    for name in _OWN & given.keys():
        raise BadSetting(f"{name} is set by the producer itself; it has an argument of its own where it can vary")
    if not callable(partitioner) and partitioner not in ("round_robin", "sticky"):
        raise BadSetting(f"partitioner is round_robin, sticky or a function, not {partitioner!r}")
    return given


def _delivery(timeout_s: float | None, transactional_id: str | None) -> dict[str, Any]:
    seconds = timeout_s or (120.0 if transactional_id is None else 60.0)
    transactional = {} if transactional_id is None else {"transactional.id": transactional_id}
    return {"delivery.timeout.ms": round(seconds * 1000), **transactional}


class ProducerBase(Generic[K, V]):
    def __init__(
        self,
        bootstrap: str,
        *,
        key: Serializer[K] | None = None,
        value: Serializer[V] | None = None,
        acks: Acks = "all",
        idempotence: bool | None = None,
        compression: Compression = "none",
        linger_ms: float = 5,
        partitioner: SpreadName | Partitioner = "round_robin",
        transactional_id: str | None = None,
        delivery_timeout: float | None = None,
        max_block: float = 30.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """
        - `key`, `value`: serializers; without one, bytes.
        - `acks`: `"all"`: acknowledged when all in-sync replicas have the record; `"1"`: when the leader has it; `"0"`:
          no acknowledgement, and records may be lost unnoticed.
        - `idempotence`: no duplicate or reordered records when sends are retried; on with acks=all.
        - `linger_ms`: how long a record may wait for others in the same batch.
        - `partitioner`: for records without a key, `"round_robin"` or `"sticky"`; or your own function for all records.
        - `transactional_id`: of this producer, for `transaction()`.
        - `delivery_timeout`: seconds until a record that cannot be delivered fails; 120, or in transactions 60, which
          is `transaction.timeout.ms`.
        - `max_block`: seconds that `send` waits for a topic's metadata, or for space in the local queue.
        - `settings`: any of librdkafka's, which override the above.
        """
        given = _checked(settings or {}, partitioner)
        self._max_block = max_block
        self._serializers: tuple[Serializer[Any], Serializer[Any]] = (key or Bytes(), value or Bytes())
        self._encode_key, self._encode_value = (_encoder(each) for each in self._serializers)
        self._partitioner = partitioner if callable(partitioner) else None
        self._sticky = partitioner == "sticky"
        self._in_context = not all(is_plain(each) for each in self._serializers)
        self._plain = self._partitioner is None and all(getattr(each, "as_is", False) for each in self._serializers)
        self.transactional_id = transactional_id
        own: dict[str, Any] = {
            "acks": acks,
            "enable.idempotence": acks == "all" if idempotence is None else idempotence,
            "compression.type": compression,
            "linger.ms": linger_ms,
            "partitioner": "murmur2_random",
            **_delivery(delivery_timeout, transactional_id),
        }
        self._trouble = Trouble(bootstrap)
        self._client: Any = create(confluent_kafka.Producer, bootstrap, {**own, **given}, self._trouble)
        self._produce = self._client.produce
        self._transactions = Transactions(self._client, transactional_id, max_block, self._forget_failures)
        self._turns: dict[str, Iterator[int]] = {}
        self._partitions: dict[str, int] = {}
        self._refresh_at = time.monotonic() + _REFRESH_S
        self._polling = threading.Lock()
        self._failed: dict[Delivery, ClientError] = {}
        self._failed_count = 0
        self._closed_because: str | None = None
        watch(self)

    def __len__(self) -> int:
        """The number of records that wait for their acknowledgement, or whose outcome has not been polled yet."""
        return len(self._client)

    def __bool__(self) -> bool:
        return True

    # Calls from deliveries.

    def serve(self, seconds: float) -> None:
        """Poll for outcomes for up to `seconds`, or until there are some.

        One thread polls and the others wait for it: a second poller would keep sleeping after the first one received
        the outcome it waits for.
        """
        if self._polling.acquire(timeout=seconds) if seconds else self._polling.acquire(blocking=False):
            try:
                self._poll(seconds)
            finally:
                self._polling.release()

    def _poll(self, seconds: float) -> None:
        try:
            self._client.poll(seconds)
        except KafkaException as error:
            self._finished(error)

    def _flush(self, seconds: float) -> int:
        """Flush; return the number of records that are left."""
        try:
            return int(self._client.flush(seconds))
        except KafkaException as error:
            self._finished(error)
            return int(self._client.flush(seconds))

    def _finished(self, error: KafkaException) -> None:
        """Log a fatal error of this client, for example that it was fenced.

        The thread that polls at that time gets it, once. Records in flight fail individually, as do records that are
        sent later.
        """
        self._trouble(error.args[0])

    def delivery_failed(self, delivery: Delivery, error: ClientError) -> None:
        self._failed_count += 1
        if len(self._failed) < _FAILURES_KEPT:
            self._failed[delivery] = error
        if error.code == "_UNKNOWN_PARTITION":
            self._turns.clear()
        if error.code not in _GIVEN_UP:
            logger.warning("not delivered: %s", error)

    def failure_seen(self, delivery: Delivery) -> None:
        if delivery in self._failed:
            del self._failed[delivery]
            self._failed_count -= 1

    def _raise_failures(self) -> None:
        """Raise the failures that were not checked, once."""
        failures, count = list(self._failed.values()), self._failed_count
        self._forget_failures()
        if count:
            records = "1 record was" if count == 1 else f"{count} records were"
            error = NotDelivered(f"{records} not delivered; the first: {next(iter(failures), None)}")
            error.failures = failures
            raise error

    def _forget_failures(self) -> None:
        self._failed.clear()
        self._failed_count = 0

    # Topics and their partitions.

    def _open(self, topic: str) -> Iterator[int]:
        """Return the turns of a topic, once it is known to exist."""
        if self._closed_because is not None:
            raise Closed(self._closed_because)
        patience = time.monotonic() + min(_TOPIC_PATIENCE_S, self._max_block)
        while True:
            count, error = ask_partitions(self._client, topic, self._max_block, self._trouble)
            if error is None:
                return self._turns.get(topic) or self._remember(topic, count)
            if time.monotonic() > patience or error.code() not in _NOT_THERE_YET:
                raise client_error(error, f"topic {topic!r}")
            time.sleep(_TOPIC_RETRY_S)

    def _remember(self, topic: str, count: int) -> Iterator[int]:
        """Store the partitions for records without a key, in turn; a turn above MAX_PARTITION also means: poll."""
        self._partitions[topic] = count
        turns = [ANY_PARTITION] if self._sticky else list(range(count))
        turns *= -(-_SENDS_A_POLL // len(turns))
        turns[-1] += POLL
        self._turns[topic] = endless = itertools.cycle(turns)
        return endless

    def _refresh(self) -> None:
        """Check whether topics have more partitions. While the cluster does not answer, keep the known counts."""
        self._refresh_at = time.monotonic() + _REFRESH_S
        for topic, known in list(self._partitions.items()):
            try:
                count, error = ask_partitions(self._client, topic, _REFRESH_WAIT_S, self._trouble)
            except ClientError as failure:
                logger.warning("%s", failure)
                return
            if error is None and count != known:
                self._remember(topic, count)

    # Records to bytes.

    def _serialize(
        self, topic: str, key: Any, value: Any, headers: Headers | None
    ) -> tuple[bytes | None, bytes | None, Headers | None]:
        """Serialize with serializers that get the context and may add headers."""
        pairs: HeaderPairs = _pairs(headers)
        data = []
        for serializer, given, is_key in zip(self._serializers, (key, value), (True, False), strict=True):
            try:
                data.append(serializer.serialize(given, Context(topic, is_key, pairs)))
            except Exception as error:
                raise unserializable(topic, given, serializer, is_key, error) from error
        return data[0], data[1], pairs or None

    def _choose(self, topic: str, key: bytes | None, value: bytes | None) -> int | None:
        """Choose the partition of a record that names none, with the user's partitioner if there is one."""
        if self._partitioner is None:
            return None
        if topic not in self._partitions:
            self._open(topic)
        return self._partitioner(topic, key, value, self._partitions[topic])

    def _refused(self, error: Exception, topic: str, key: object, value: object) -> Exception:
        """Convert an exception of `produce` to an error that names the record."""
        if isinstance(error, KafkaException):
            if error.args[0].code() == KafkaError._STATE and self.transactional_id is not None:
                return ClientError("a producer with a transactional_id sends within `with producer.transaction():`")
            return client_error(error, f"{topic}, record with key {key!r:.60}")
        return Unserializable(f"{topic}, record with key {key!r:.60} and value {value!r:.60}: {error}")

    def _queue_full(self) -> QueueFull:
        return QueueFull(
            f"{len(self._client)} records wait to be sent to {self._trouble.bootstrap}, and none was acknowledged for"
            f" {self._max_block:g} s: send more slowly, raise queue.buffering.max.messages, or see whether the cluster"
            " is well"
        )

    # Closing.

    def _ended(self, why: str) -> None:
        self._closed_because = why
        self._turns = {}
        self._partitions = {}

    def _forked(self) -> None:
        self._ended("a producer does not survive a fork: make one in the new process")

    def _purge(self) -> None:
        """Drop all records that are not acknowledged, so that every delivery has an outcome."""
        self._client.purge()
        self._flush(_PURGE_S)

    def _at_exit(self) -> None:
        """Try a last flush for a producer that was not closed, and log it."""
        if self._closed_because is None and len(self._client):
            left = self._flush(_EXIT_S)
            logger.error(
                "a producer was not closed; of its last records %d are not acknowledged", left + self._failed_count
            )


def unserializable(topic: str, value: object, serializer: object, is_key: bool, error: Exception) -> Unserializable:
    what = "key" if is_key else "value"
    return Unserializable(f"{topic}: {what} {value!r:.80} is not for {serializer!r}: {error or type(error).__name__}")


def _encoder(serializer: Serializer[Any]) -> Encode | None:
    """Return the `encode` function of a Serde; None if there is nothing to encode, or it is not a Serde."""
    return serializer.encode if is_plain(serializer) and not serializer.as_is else None


def _pairs(headers: Headers | None) -> HeaderPairs:
    items = headers.items() if isinstance(headers, Mapping) else headers or ()
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in items]
