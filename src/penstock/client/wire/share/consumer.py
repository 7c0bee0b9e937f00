"""`ShareConsumer`: takes records of topics from a share group, as from a queue.

    with ShareConsumer("127.0.0.1:9092", "jobs", group="workers", value=Json(Job)) as consumer:
        for record in consumer:
            do(record.value)

Any number of workers share a partition; each record goes to one of them. A record is accepted when the next one is
requested. If the block ends with an exception, the record that caused it is released, and delivered again, to this
worker or another; an exception of the types in `reject` rejects the record instead: it is not delivered again. `work`
does the same and goes on after a failure.

With `accept`, `release` and `reject` the worker decides about each record itself, in any order; with `explicit=True`
nothing is accepted by itself. `renew` keeps a record that takes longer than its lock (30 s by default). A record that
is neither accepted nor rejected in time is delivered again, up to the group's delivery count limit (5 by default).

Only one thread at a time may use a consumer: give each its own, in the same group.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Generic, Literal

from penstock.client.errors import BadSetting, Closed, CommitFailed, Undeserializable, noted_on
from penstock.client.wire.share.acknowledgements import Place, Verdict
from penstock.client.wire.share.fetching import Acquired, ShareFetching
from penstock.client.wire.share.membership import ShareMembership
from penstock.client.wire.share.records import K, ShareRecord, V
from penstock.client.wire.share.session import BATCH_OPTIMIZED, RECORD_LIMIT
from penstock.serializers.base import Context, Deserializer, Serde
from penstock.serializers.plain import Bytes

logger = logging.getLogger("penstock.share")

RECORDS_PER_FETCH: Final = 500
# How long an acknowledgement may wait for the next fetch, while records that came together are worked off.
_ACKNOWLEDGE_S: Final = 1.0
_WAIT_S: Final = 0.2

OnError = Literal["raise", "reject"]


class ShareConsumer(Generic[K, V]):
    def __init__(
        self,
        bootstrap: str,
        *topics: str,
        group: str,
        key: Deserializer[K] | None = None,
        value: Deserializer[V] | None = None,
        max_records: int | None = None,
        explicit: bool = False,
        reject: tuple[type[BaseException], ...] = (),
        on_error: OnError = "raise",
        timeout: float = 30.0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """
        - `max_records`: how many records to take at a time; small for slow work, so that other workers get some. By
          default whole batches, up to about 500 records.
        - `explicit`: records are accepted only by `accept`.
        - `reject`: the exceptions that make a record one that must not be delivered again.
        - `on_error`: for a record that cannot be deserialized: raise (it is released) or reject it.
        - `timeout`: seconds for requests to the cluster.
        - `settings`: how to log in, by Kafka's names.
        """
        if not topics:
            raise BadSetting("a ShareConsumer needs a topic")
        if not group:
            raise BadSetting("a ShareConsumer needs a group")
        if max_records is not None and max_records < 1:
            raise BadSetting(f"max_records is at least 1, not {max_records}")
        if on_error not in ("raise", "reject"):
            raise BadSetting(f'on_error is "raise" or "reject", not {on_error!r}')
        self.group = group
        self.explicit = explicit
        # Acknowledgements that had no effect: the records were delivered again.
        self.refused = 0
        self._deserializers: tuple[Deserializer[Any], Deserializer[Any]] = (key or Bytes(), value or Bytes())
        self._reject = reject
        self._on_error = on_error
        self._timeout = timeout
        self._unread: deque[Acquired] = deque()
        # Records that the application has and nothing was said about.
        self._handed_out: dict[tuple[Place, int], ShareRecord[K, V]] = {}
        self._acknowledge_at: float | None = None
        self._is_closed = False
        self._membership = ShareMembership(bootstrap, group, topics, timeout=timeout, options=settings)
        self._fetching = ShareFetching(
            bootstrap,
            group,
            self._membership.member_id,
            timeout=timeout,
            max_records=max_records or RECORDS_PER_FETCH,
            acquire_mode=BATCH_OPTIMIZED if max_records is None else RECORD_LIMIT,
            options=settings,
        )
        try:
            self._fetching.find(topics)
            self._membership.join()
        except BaseException:
            self._fetching.close()
            raise

    # -- reading -------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[ShareRecord[K, V]]:
        return self.records()

    def records(self, idle: float | None = None) -> Iterator[ShareRecord[K, V]]:
        """Iterate over records; with `idle`, until none came for so many seconds after partitions were assigned."""
        while True:
            had_partitions = bool(self._membership.assignment)
            record = self.poll(idle)
            if record is not None:
                yield record
            elif had_partitions:
                return

    def poll(self, timeout: float | None = 0.0) -> ShareRecord[K, V] | None:
        """Return the next record, waiting up to `timeout` seconds, or indefinitely with None."""
        self._fill(timeout)
        while self._unread:
            record = self._decoded(self._unread.popleft())
            if record is not None:
                return record
        return None

    def batch(self, max_records: int = 500, timeout: float | None = 1.0) -> list[ShareRecord[K, V]]:
        """Return the available records, up to `max_records`, as soon as there is one; empty if none came in time."""
        self._fill(timeout)
        found: list[ShareRecord[K, V]] = []
        while self._unread and len(found) < max_records:
            record = self._decoded(self._unread.popleft())
            if record is not None:
                found.append(record)
        return found

    def _fill(self, timeout: float | None) -> None:
        """Wait for records, if there are none. What was handed out before is done, unless the mode is explicit."""
        self._check_open()
        if not self.explicit:
            for record in list(self._handed_out.values()):
                self._say(record, Verdict.ACCEPT)
        if self._acknowledge_at is not None and time.monotonic() >= self._acknowledge_at:
            self._acknowledge_at = None
            self._fetching.send_acknowledgements()
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._unread:
            self._membership.check()
            left = _WAIT_S if deadline is None else min(_WAIT_S, max(0.0, deadline - time.monotonic()))
            self._unread.extend(self._fetching.fetch(self._membership.assignment, left))
            self._acknowledge_at = None
            self._count_refusals()
            if deadline is not None and time.monotonic() >= deadline:
                return

    def _decoded(self, acquired: Acquired) -> ShareRecord[K, V] | None:
        raw = acquired.record
        fields: list[Any] = []
        for deserializer, data, is_key in zip(self._deserializers, (raw.key, raw.value), (True, False), strict=True):
            try:
                if isinstance(deserializer, Serde):
                    fields.append(None if data is None else deserializer.decode(data))
                else:
                    pairs = [
                        (name if isinstance(name, str) else name.decode(errors="replace"), each)
                        for name, each in raw.headers
                    ]
                    fields.append(deserializer.deserialize(data, Context(acquired.topic, is_key, pairs)))
            except Exception as error:
                verdict = Verdict.REJECT if self._on_error == "reject" else Verdict.RELEASE
                self._fetching.acknowledge(acquired.place, raw.offset, verdict)
                if verdict is Verdict.REJECT:
                    return None
                raise Undeserializable(
                    f"{acquired.topic}-{acquired.place.partition}, offset {raw.offset}: "
                    f"{'key' if is_key else 'value'} {data!r:.80} is not for {deserializer!r}: {error}",
                    acquired.topic,
                    acquired.place.partition,
                    raw.offset,
                    is_key=is_key,
                ) from error
        record: ShareRecord[K, V] = ShareRecord(
            topic=acquired.topic,
            partition=acquired.place.partition,
            offset=raw.offset,
            timestamp=raw.timestamp,
            key=fields[0],
            value=fields[1],
            headers=raw.headers,
            delivery_count=acquired.delivery_count,
            topic_id=acquired.place.topic_id,
        )
        self._handed_out[record.place, record.offset] = record
        return record

    # -- acknowledging -------------------------------------------------------------------------------------------------

    def accept(self, record: ShareRecord[K, V]) -> None:
        """The record is done."""
        self._say(record, Verdict.ACCEPT)

    def release(self, record: ShareRecord[K, V]) -> None:
        """Give the record back: it is delivered again, if the delivery count limit allows it."""
        self._say(record, Verdict.RELEASE)

    def reject(self, record: ShareRecord[K, V]) -> None:
        """The record cannot be processed, and is not delivered again."""
        self._say(record, Verdict.REJECT)

    def renew(self, record: ShareRecord[K, V]) -> None:
        """Lock the record for another period. CommitFailed if the lock is lost already."""
        self._check_open()
        if (record.place, record.offset) not in self._handed_out:
            raise ValueError(f"{record!r} is not held by this consumer")
        self._unread.extend(self._fetching.renew(record.place, record.offset, self._timeout))
        self._raise_refusals("the lock was not renewed")

    def flush(self) -> None:
        """Wait until the cluster knows everything that was said. CommitFailed if some of it had no effect."""
        self._check_open()
        self._unread.extend(self._fetching.flush(self._timeout))
        self._raise_refusals("acknowledgements had no effect, and the records are delivered again")

    def _say(self, record: ShareRecord[K, V], verdict: Verdict) -> None:
        if self._handed_out.pop((record.place, record.offset), None) is None:
            raise ValueError(f"{record!r} is not held by this consumer")
        self._fetching.acknowledge(record.place, record.offset, verdict)
        if self._acknowledge_at is None:
            self._acknowledge_at = time.monotonic() + _ACKNOWLEDGE_S

    def _count_refusals(self) -> tuple[int, str]:
        number, reasons = self._fetching.take_refusals()
        if number:
            self.refused += number
            logger.warning("group %s: %d acknowledgements had no effect: %s", self.group, number, reasons)
        return number, reasons

    def _raise_refusals(self, what: str) -> None:
        number, reasons = self._count_refusals()
        if number:
            raise CommitFailed(f"group {self.group!r}: {what} ({number} records: {reasons})")

    # -- working -------------------------------------------------------------------------------------------------------

    def work(self, handle: Callable[[ShareRecord[K, V]], object], *, idle: float | None = None) -> int:
        """Call `handle` for each record; return how many it has handled.

        A record for which it raises one of the exceptions in `reject` is rejected; any other exception releases the
        record, is logged, and the work goes on. With `idle`, until no record came for so many seconds.
        """
        handled = 0
        for record in self.records(idle):
            try:
                handle(record)
                handled += 1
            except Exception as error:  # noqa: BLE001  # whatever it is: the record is for another attempt
                verdict = Verdict.REJECT if isinstance(error, self._reject) else Verdict.RELEASE
                logger.warning("%r: %s, %r", record, verdict.name.lower(), error)
                self._say(record, verdict)
            else:
                if (record.place, record.offset) in self._handed_out:
                    self._say(record, Verdict.ACCEPT)
        return handled

    # -- the end -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> ShareConsumer[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.interrupted_by(error)
        with noted_on(error):
            self.close()

    def interrupted_by(self, error: BaseException | None) -> None:
        """Release or reject what was being worked on when the exception came."""
        if error is None or self._is_closed:
            return
        verdict = Verdict.REJECT if isinstance(error, self._reject) else Verdict.RELEASE
        for record in list(self._handed_out.values()):
            self._say(record, verdict)

    def close(self) -> None:
        """Accept what was handed out, unless the mode is explicit; release everything else; leave the group."""
        if self._is_closed:
            return
        if not self.explicit:
            for record in list(self._handed_out.values()):
                self._say(record, Verdict.ACCEPT)
        self._is_closed = True
        try:
            self._fetching.close()
        finally:
            self._membership.leave()
        self._count_refusals()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("this ShareConsumer is closed")
