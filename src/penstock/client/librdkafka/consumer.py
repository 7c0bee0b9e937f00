"""`Consumer`: reads records of topics, alone or shared with a group.

    with Consumer("127.0.0.1:9092", "orders", group="billing", key=String(), value=Json(Order)) as consumer:
        for record in consumer:
            bill(record.value)

Members of a group share the partitions of its topics. With `auto_commit`, a record is committed only after the next one
was requested, so a crash repeats records and never loses one; leaving the block by an exception does not commit the
record that caused it. Without a group there is nothing to commit, and every partition is read.

Only one thread at a time may use a consumer. After a fork the child cannot use it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType

from penstock.client.errors import noted_on
from penstock.client.librdkafka.consumer_base import CHUNK, ConsumerBase
from penstock.client.librdkafka.record import Batch, Record
from penstock.client.librdkafka.types import K, V


class Consumer(ConsumerBase[K, V]):
    def __enter__(self) -> Consumer[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupted_by(error)
        with noted_on(error):
            self.close()

    def __iter__(self) -> Iterator[Record[K, V]]:
        return self.records()

    def records(self, idle: float | None = None) -> Iterator[Record[K, V]]:
        """Iterate over records; with `idle`, until none came for so many seconds after partitions were assigned."""
        rebalances = self._rebalances
        while True:
            let_in = rebalances.let_in
            record = self.poll(idle)
            if record is not None:
                yield record
            elif let_in:
                return

    def poll(self, timeout: float | None = 0.0) -> Record[K, V] | None:
        """Return the next record, waiting up to `timeout` seconds, or indefinitely with None."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._must_fill():
                self._fill(CHUNK, None if deadline is None else max(deadline - time.monotonic(), 0.0))
            record = self._next_unread()
            if record is not None or (deadline is not None and time.monotonic() >= deadline):
                return record

    def batch(self, max_records: int = 500, timeout: float | None = 1.0) -> Batch[K, V]:
        """Return the available records, up to `max_records`, as soon as there is one; empty if none came in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._must_fill():
                self._fill(max_records, None if deadline is None else max(deadline - time.monotonic(), 0.0))
            batch = self._take(max_records)
            if batch or (deadline is not None and time.monotonic() >= deadline):
                return batch
