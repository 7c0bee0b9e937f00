"""The shared part of `Consumer` and `AsyncConsumer`: everything except how a user waits for records.

Calls that contact the cluster block, and are for one thread at a time; `AsyncConsumer` has a thread for them. Commits
use librdkafka's position minus the unread messages, never librdkafka's own offset store (see `handed_out`).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Literal

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place

from penstock.client.errors import BadSetting, ClientError, Closed, UnknownTopic, WrongThread
from penstock.client.librdkafka.dead_letters import DeadLetter, DeadLetterOffice
from penstock.client.librdkafka.decoding import Decoding
from penstock.client.librdkafka.handed_out import Reading, from_places, to_places
from penstock.client.librdkafka.library import Trouble, ask_partitions, asking, checked, client_error, create, watch
from penstock.client.librdkafka.rebalances import Hook, Rebalances
from penstock.client.librdkafka.record import Batch, Record
from penstock.client.librdkafka.types import K, Timestamp, V, milliseconds
from penstock.model.ids import TopicPartition
from penstock.serializers.base import Deserializer

Start = Literal["earliest", "latest", "error"]
Offset = int | Literal["earliest", "latest"]

CHUNK = 500
_NO_GROUP = "penstock-without-group"
_OWN = frozenset(
    {"enable.auto.offset.store", "bootstrap.servers", "group.id", "enable.auto.commit", "auto.offset.reset"}
)
# How long librdkafka waits before it fetches again when its queue is full. Its default of one second is too long for a
# fast reader, which empties the queue in a tenth of that and then starves.
_FULL_BACKOFF_MS = 10
_TOPIC_PATIENCE_S = 3.0
_RETRY_S = 0.05


def _checked(settings: Mapping[str, Any], start: str, on_error: object) -> dict[str, Any]:
    """The settings that are given; raise BadSetting for one that the consumer itself sets."""
    given = checked(settings, producer=False)
    for name in _OWN & given.keys():
        raise BadSetting(f"{name} has an argument of its own, or is set by the consumer itself")
    if start not in ("earliest", "latest", "error"):
        raise BadSetting(f"start is earliest, latest or error, not {start!r}")
    if not isinstance(on_error, DeadLetter) and on_error not in ("raise", "skip"):
        raise BadSetting(f'on_error is "raise", "skip" or a DeadLetter, not {on_error!r}')
    return given


def _is_incremental(given: Mapping[str, Any]) -> bool:
    """Whether a rebalance takes only the partitions that move."""
    strategy = str(given.get("partition.assignment.strategy", ""))
    return "cooperative" in strategy or given.get("group.protocol") == "consumer"


class ConsumerBase(Generic[K, V]):
    def __init__(
        self,
        bootstrap: str,
        *topics: str,
        pattern: str | re.Pattern[str] | None = None,
        group: str | None = None,
        key: Deserializer[K] | None = None,
        value: Deserializer[V] | None = None,
        start: Start = "earliest",
        auto_commit: bool = True,
        on_error: Literal["raise", "skip"] | DeadLetter = "raise",
        on_assigned: Hook | None = None,
        on_revoked: Hook | None = None,
        on_lost: Hook | None = None,
        timeout: float = 30.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """
        - `topics` or `pattern`: what to read; a pattern matches whole names, also of topics created later, and needs a
          group. With neither, call `subscribe` or `assign` before reading.
        - `start`: where reading begins in a partition without a committed offset of the group; `"error"` raises.
        - `auto_commit`: every `auto.commit.interval.ms` (5 s), when a partition moves to another member, and at the
          end.
        - `on_error`: for a record that cannot be deserialized: raise, skip and count (`skipped`), or a `DeadLetter`.
        - `on_assigned`, `on_revoked`, `on_lost`: called while reading. In `on_assigned` the consumer may `seek`; in
          `on_revoked` it may still `commit`; lost partitions already belong to another member.
        - `timeout`: seconds for requests to the cluster: the first contact, commits, offsets.
        - `settings`: any of librdkafka's.
        """
        given = _checked(settings or {}, start, on_error)
        self.group = group
        self.auto_commit = auto_commit and group is not None
        self._timeout = timeout
        self._start = start
        self._trouble = Trouble(bootstrap)
        self._closing = False
        self._closed_because: str | None = None
        self._lock = threading.RLock()
        self._letters = DeadLetterOffice(on_error, bootstrap, given) if isinstance(on_error, DeadLetter) else None
        self._decoding: Decoding[K, V] = Decoding(key, value, self._letters or on_error)  # type: ignore[arg-type]
        own = {
            "group.id": group or _NO_GROUP,
            "enable.auto.commit": self.auto_commit,
            "enable.auto.offset.store": False,
            "auto.offset.reset": start,
            "fetch.queue.backoff.ms": _FULL_BACKOFF_MS,
        }
        self._client: Any = create(confluent_kafka.Consumer, bootstrap, {**own, **given}, self._trouble)
        in_group = group is not None
        self._reading = Reading(self._client, lambda topic: self._partition_count(topic) is not None, in_group=in_group)
        self._rebalances = Rebalances(
            self._reading, (on_assigned, on_revoked, on_lost), self._before_revoked, incremental=_is_incremental(given)
        )
        watch(self)
        if topics or pattern is not None:
            try:
                self.subscribe(*topics, pattern=pattern)
            except BaseException:
                self.close()
                raise

    # Subscription.

    def subscribe(self, *topics: str, pattern: str | re.Pattern[str] | None = None) -> None:
        """Read these topics from now on; the members of a group share them."""
        with self._use():
            self._reading.drop(set(self.assignment()))
            if pattern is not None:
                if self.group is None:
                    raise ClientError("reading by pattern needs a group")
                expression = pattern if isinstance(pattern, str) else pattern.pattern
                topics = (*topics, f"^({expression})$")
            counts = {topic: self._await_topic(topic) for topic in topics if not topic.startswith("^")}
            if self.group is None:
                self.assign({TopicPartition(topic, n): None for topic, count in counts.items() for n in range(count)})
                return
            with asking("subscribe"):
                self._client.subscribe(list(topics), **self._rebalances.expected())

    def assign(self, partitions: Mapping[TopicPartition, Offset | None] | Iterable[TopicPartition]) -> None:
        """Read only these partitions, from the given offsets, or else according to `start`.

        They are not shared in a group.

        The latest offset is the one at the time of the call: a record written after this call is read.
        """
        with self._use():
            wanted = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions)
            self._reading.forget(set(self.assignment()))
            offsets = {TopicPartition(*place): self._first(TopicPartition(*place), at) for place, at in wanted.items()}
            with asking("assign"):
                self._client.assign(to_places(offsets))

    def assignment(self) -> list[TopicPartition]:
        with self._use():
            return from_places(self._client.assignment())

    def _first(self, place: TopicPartition, offset: Offset | None) -> int:
        if isinstance(offset, int):
            return offset
        if offset is None and self.group is not None:
            return confluent_kafka.OFFSET_STORED
        if "latest" in (offset, self._start if offset is None else None):
            return self._bounds(place)[1]
        return confluent_kafka.OFFSET_BEGINNING

    # The steps of reading. `AsyncConsumer` fills in another thread than it takes in.

    def _must_fill(self) -> bool:
        return not self._reading.unread or self._reading.keep_alive_due()

    def _fill(self, count: int, timeout: float | None) -> None:
        """Get messages; if there are some already, only poll to stay in the group."""
        with self._use():
            self._store_if_done()
            with asking("read"):
                if self._reading.unread:
                    self._reading.fill(1, 0.0)
                else:
                    self._reading.fill(count, timeout)

    def _next_unread(self) -> Record[K, V] | None:
        unread = self._reading.unread
        while unread:
            self._check_open()
            message = unread[0]
            record = self._decoding.one(message)
            unread.popleft()
            self._reading.hand_out((message,))
            if record is not None:
                return record
        return None

    def _take(self, max_records: int) -> Batch[K, V]:
        self._check_open()
        messages = self._reading.take(max_records)
        try:
            batch, done = self._decoding.many(messages)
        except BaseException:
            self._reading.put_back(messages)
            raise
        if done < len(messages):
            self._reading.put_back(messages[done:])
            messages = messages[:done]
        self._reading.hand_out(messages)
        return batch

    def _interrupted_by(self, error: BaseException | None) -> None:
        """Mark the last returned records as unprocessed if an error, not the user, ended the block."""
        self._reading.interrupted = isinstance(error, Exception)

    @property
    def skipped(self) -> int:
        """The number of records that could not be deserialized and were skipped."""
        return self._decoding.skipped

    @property
    def dead_lettered(self) -> int:
        """The number of records that could not be deserialized and were sent to the dead-letter topic."""
        return self._letters.count if self._letters else 0

    # Commits.

    def commit(self, record: Record[K, V] | None = None) -> None:
        """Commit all records returned so far, or this record and those before it in its partition.

        Committed on return.
        """
        with self._use():
            if self.group is None:
                raise ClientError('commits belong to a group: Consumer(..., group="...")')
            if record is not None:
                offsets = {TopicPartition(record.topic, record.partition): record.offset + 1}
            else:
                offsets = self._reading.positions()
            self._settle()
            if offsets:
                with asking("commit"):
                    for each in self._client.commit(offsets=to_places(offsets), asynchronous=False):
                        if each.error is not None:
                            raise client_error(each.error, f"commit of {each.topic}-{each.partition}")

    def offsets_for_transaction(self) -> tuple[list[Place], Any]:
        """Return this consumer's positions and its group metadata, for a transaction."""
        with self._use():
            if self.group is None or self.auto_commit:
                raise ClientError("offsets in a transaction need a consumer with a group and auto_commit=False")
            self._settle()
            return to_places(self._reading.positions()), self._client.consumer_group_metadata()

    def _settle(self) -> None:
        if self._letters is not None:
            self._letters.settle()

    def _before_revoked(self) -> None:
        if not self._closing:
            self._store_if_done()

    def _store_if_done(self) -> None:
        if self.auto_commit and self._reading.has_done():
            self._store()

    def _store(self) -> None:
        """Store the positions of processed records for the next commit."""
        self._settle()
        offsets = self._reading.positions()
        if offsets:
            with asking("store offsets"):
                self._client.store_offsets(offsets=to_places(offsets))
        self._reading.done()

    # Positions.

    def positions(self) -> dict[TopicPartition, int]:
        """By assigned partition, the offset of the next record to return; without partitions not yet begun."""
        with self._use():
            return self._reading.positions()

    def committed(self) -> dict[TopicPartition, int | None]:
        """By assigned partition, the committed offset of the group."""
        with self._use(), asking("committed offsets"):
            found = self._client.committed(self._client.assignment(), timeout=self._timeout)
        return {TopicPartition(each.topic, each.partition): each.offset if each.offset >= 0 else None for each in found}

    def lag(self) -> dict[TopicPartition, int]:
        """By assigned partition, the number of offsets between the next record and the end of the log."""
        with self._use():
            positions = self._reading.positions()
            starts = self.committed() if self.group and len(positions) < len(self.assignment()) else {}
            lags = {}
            for place in self.assignment():
                low, high = self._bounds(place)
                start = high if self._start == "latest" else low
                at = positions.get(place, starts.get(place))
                lags[place] = max(high - max(start if at is None else at, low), 0)
            return lags

    def seek(self, topic: str, partition: int, offset: Offset) -> None:
        """Continue reading at this offset. In `on_assigned`: start there."""
        place = TopicPartition(topic, partition)
        with self._use():
            at = offset if isinstance(offset, int) else self._bounds(place)[offset == "latest"]
            if self._rebalances.assigning is not None:
                self._rebalances.assigning[place] = at
                return
            self._reading.sought(place, at)
            self._seek(place, at)

    def seek_to_time(self, time: Timestamp, *partitions: TopicPartition) -> None:
        """Seek to the first record that is not older, in all or the named partitions; to the end if none."""
        with self._use():
            at = milliseconds(time)
            places = partitions or tuple(self._rebalances.assigning or self.assignment())
            with asking("offsets by time"):
                found = self._client.offsets_for_times(to_places(dict.fromkeys(places, at)), timeout=self._timeout)
            for each in found:
                if each.error is not None:
                    raise client_error(each.error, f"offsets by time of {each.topic}-{each.partition}")
                self.seek(each.topic, each.partition, each.offset if each.offset >= 0 else "latest")

    def rewind(self) -> None:
        """Go back to the committed offsets: records returned since are read again."""
        with self._use():
            for place, offset in self.committed().items():
                self.seek(*place, ("latest" if self._start == "latest" else "earliest") if offset is None else offset)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no more records of these partitions, or of all, until `resume`; the consumer stays in the group."""
        with self._use():
            places = set(partitions or self.assignment())
            with asking("pause"):
                self._client.pause([Place(*place) for place in places])
            for place, offset in self._reading.drop(places).items():
                self._reading.sought(place, offset)
                self._seek(place, offset)

    def resume(self, *partitions: TopicPartition) -> None:
        with self._use(), asking("resume"):
            self._client.resume([Place(*place) for place in partitions or self.assignment()])

    def _seek(self, place: TopicPartition, offset: int) -> None:
        # librdkafka cannot seek in a newly assigned partition until fetching has begun.
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self._client.seek(Place(*place, offset))  # type: ignore[no-any-return]
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE or time.monotonic() > deadline:
                    raise client_error(error, f"seek in {place}") from error
                if place not in self.assignment():
                    raise ClientError(f"{place} is not assigned to this consumer, so it cannot seek there") from error
                time.sleep(_RETRY_S)

    def _bounds(self, place: TopicPartition) -> tuple[int, int]:
        with asking(f"offsets of {place}"):
            low, high = self._client.get_watermark_offsets(Place(*place), timeout=self._timeout)
        return low, high

    # Contact with the cluster, and closing.

    def _await_topic(self, topic: str) -> int:
        """Return the number of partitions, once the topic is known; also the first contact with the cluster."""
        deadline = time.monotonic() + min(_TOPIC_PATIENCE_S, self._timeout)
        while (count := self._partition_count(topic)) is None:
            if time.monotonic() > deadline:
                raise UnknownTopic(
                    f"there is no topic {topic!r}: create it (penstock topics create), or is it misspelt?"
                )
            time.sleep(_RETRY_S)
        return count

    def _partition_count(self, topic: str) -> int | None:
        count, error = ask_partitions(self._client, topic, self._timeout, self._trouble)
        if error is None:
            return count
        if error.retriable() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise client_error(error, f"topic {topic!r}")

    def close(self) -> None:
        """Commit, with `auto_commit`, the processed records, and leave the group."""
        if self._closed_because is not None:
            return
        with self._use():
            try:
                if self.auto_commit and self._reading.has_done():
                    self._store()
                else:
                    self._settle()
            finally:
                self._closing = True
                try:
                    self._client.close()  # hooks that this calls may still use the consumer
                finally:
                    self._closed_because = "the consumer is closed: make a new one"
                    if self._letters is not None:
                        self._letters.close()

    def _check_open(self) -> None:
        if self._closed_because is not None:
            raise Closed(self._closed_because)

    def _at_exit(self) -> None:
        """Do nothing: records that the consumer did not commit are read again."""

    def _forked(self) -> None:
        self._closed_because = "a consumer does not survive a fork: make one in the new process"

    @contextmanager
    def _use(self) -> Iterator[None]:
        self._check_open()
        if not self._lock.acquire(blocking=False):
            raise WrongThread("another thread is using this consumer: give each thread its own, in the same group")
        try:
            yield
        finally:
            self._lock.release()
