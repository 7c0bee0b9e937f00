"""`Producer`: sends records and returns deliveries.

    with Producer("127.0.0.1:9092", key=String(), value=Json(Order)) as producer:
        delivery = producer.send("orders", order, key="k")
        delivery.result()      # Sent(topic='orders', partition=3, offset=17, timestamp=...)

`send` queues and returns; leaving the block waits for every acknowledgement and raises if one is missing. When the
local queue is full (`queue.buffering.max.messages`), `send` waits up to `max_block` seconds for space.

There is no polling thread: confluent-kafka takes and releases the GIL for every delivery callback, so `send` polls
every few records. Any number of threads may share a producer. After a fork the child cannot use it.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaException

from penstock.client.errors import Closed, NotDelivered, TimedOut, noted_on
from penstock.client.librdkafka.delivery import Delivery
from penstock.client.librdkafka.producer_base import (
    ANY_PARTITION,
    MAX_PARTITION,
    POLL,
    Headers,
    ProducerBase,
    unserializable,
)
from penstock.client.librdkafka.producer_transaction import Transaction
from penstock.client.librdkafka.types import K, Timestamp, V, milliseconds

_POLL_S = 0.1


class Producer(ProducerBase[K, V]):
    def __enter__(self) -> Producer[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with noted_on(error, NotDelivered):
            self.close()

    def send(  # noqa: C901
        self,
        topic: str,
        value: V | None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: Timestamp | None = None,
        headers: Headers | None = None,
    ) -> Delivery:
        """Queue a record. Raises errors of the record or the topic at once; the delivery reports all others."""
        key_data: Any = key
        data: Any = value
        if not self._plain:
            if self._in_context:
                key_data, data, headers = self._serialize(topic, key, value, headers)
            else:
                if self._encode_key is not None and key is not None:
                    try:
                        key_data = self._encode_key(key)
                    except Exception as error:
                        raise unserializable(topic, key, self._serializers[0], True, error) from error
                if self._encode_value is not None and value is not None:
                    try:
                        data = self._encode_value(value)
                    except Exception as error:
                        raise unserializable(topic, value, self._serializers[1], False, error) from error
            if partition is None and self._partitioner is not None:
                partition = self._choose(topic, key_data, data)
        try:
            turn = next(self._turns[topic])
        except KeyError:
            turn = next(self._open(topic))
        if turn > MAX_PARTITION:
            turn -= POLL
            self._between_sends()
        if partition is None:
            partition = turn if key_data is None else ANY_PARTITION
        at = 0 if timestamp is None else milliseconds(timestamp)
        delivery = Delivery()
        delivery.state = self
        try:
            self._produce(topic, data, key_data, partition, delivery, None, at, headers)
        except BufferError:
            self._wait_for_room(topic, data, key_data, partition, delivery, None, at, headers)
        except (KafkaException, TypeError, ValueError) as error:
            raise self._refused(error, topic, key, value) from error
        return delivery

    def _between_sends(self) -> None:
        self.serve(0)
        if time.monotonic() > self._refresh_at:
            self._refresh()

    def _wait_for_room(self, *record: Any) -> None:
        deadline = time.monotonic() + self._max_block
        while True:
            self.serve(_POLL_S)
            try:
                return self._produce(*record)  # type: ignore[no-any-return]
            except BufferError:
                if time.monotonic() > deadline:
                    raise self._queue_full() from None

    def poll(self) -> None:
        """Process the outcomes that are known by now. `send` does so every few records."""
        self._check_open()
        self.serve(0)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records are acknowledged; raise failures that were not checked."""
        self._check_open()
        left = self._flush(-1 if timeout is None else timeout)
        if left:
            raise TimedOut(f"{left} records were not acknowledged within {timeout:g} s; they are still being sent")
        self._raise_failures()

    def close(self, timeout: float | None = None) -> None:
        """Flush; records not acknowledged within the timeout are dropped and raised as not delivered."""
        if self._closed_because is not None:
            return
        try:
            self._transactions.close()
            if self._flush(-1 if timeout is None else timeout):
                self._purge()
        finally:
            self._ended("the producer is closed: make a new one")
        self._raise_failures()

    def transaction(self) -> Transaction:
        """A block whose records and offsets take effect together or not at all: see `Transaction`."""
        self._check_open()
        return Transaction(self._transactions)

    def _check_open(self) -> None:
        if self._closed_because is not None:
            raise Closed(self._closed_because)
