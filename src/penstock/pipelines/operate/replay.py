"""Replays dead letters: sends them back to the topics they were read from, each once.

A transaction sends some dead letters and stores their offsets in a topic beside theirs (`<topic>.replayed`, compacted),
so that both are written or neither. A replay that is killed leaves an open transaction; the next call aborts it before
it reads what was done. If two calls run at the same time, the later one fences the earlier one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from penstock.arrow import read_table, scan
from penstock.client.errors import ClientError, UnknownTopic
from penstock.client.librdkafka.producer import Producer
from penstock.client.wire.admin import Admin
from penstock.client.wire.admin.topics import EARLIEST
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.pipelines.operate.dead_letters import (
    Cause,
    CauseSummary,
    Done,
    Letter,
    Selection,
    ledger_entry,
    read_ledger,
    replay,
)

_AT_ONCE = 500
_TIMEOUT_S = 30.0


class Kind(NamedTuple):
    """The categories by which letters are counted."""

    pipeline: str
    source: str | None
    reason: str


class ReplayResult(NamedTuple):
    chosen: dict[Kind, int]
    """Letters that were sent, or would be."""
    before: int
    """Letters that were replayed by earlier calls."""
    others: int
    """Letters that the selection does not match."""
    homeless: int
    """Letters that were not records of a topic, and are sent only if a topic is given."""


class DeadLetterTopic:
    """`with DeadLetterTopic(bootstrap, "orders.dead-letters") as letters: letters.replay(...)`."""

    def __init__(self, bootstrap: str, topic: str, options: Mapping[str, str] | None = None) -> None:
        """`options`: security settings by Kafka's names; or `bootstrap` refers to them."""
        self.topic = topic
        self.ledger = f"{topic}.replayed"
        self._bootstrap = bootstrap
        self._options = options
        with self._admin() as admin:
            there = {each.name: each for each in admin.topics.list(internal=True)}
            if topic not in there:
                raise UnknownTopic(f"there is no topic {topic!r}: no record has died, or its name is another")
            self._described = there[topic]
            self._partitions = {name: len(each.partitions) for name, each in there.items()}
            places = [TopicPartition(topic, each.partition) for each in self._described.partitions]
            self._begins = admin.topics.offsets(places, EARLIEST)

    def count(self, selection: Selection, to: str = "", *, limit: int | None = None) -> ReplayResult:
        """What `replay` would send."""
        return self._each(self._done(), selection, to, lambda letters: None, limit, lambda read: None)

    def replay(
        self,
        selection: Selection,
        to: str = "",
        *,
        limit: int | None = None,
        edited: Mapping[tuple[int, int], bytes] | None = None,
        progress: Callable[[int], None] = lambda read: None,
    ) -> ReplayResult:
        """`edited`: values to send instead of those of the letters, by partition and offset; the letters stay as they
        are. `progress` is called with the number of letters read."""
        self._make_ledger()
        producer: Producer[bytes, bytes] = Producer(
            self._bootstrap,
            transactional_id=f"penstock-replay-{self.topic}",
            max_block=_TIMEOUT_S,
            settings=self._options,
        )
        with producer:
            with producer.transaction():
                pass  # fences an earlier replay and aborts what it left open
            return self._each(
                self._done(),
                selection,
                to,
                lambda letters: self._send(producer, letters, to, edited or {}),
                limit,
                progress,
            )

    def summary(self, selection: Selection, *, last: int | None = None, samples: int = 1) -> dict[Cause, CauseSummary]:
        """The letters by cause, most first; only the `last` offsets of each partition, and up to `samples` of each."""
        done = self._done()
        start = dict(self._begins)
        if last is not None:
            with self._admin() as admin:
                ends = admin.topics.offsets(list(self._begins))
            start = {each: max(begin, ends[each] - last) for each, begin in self._begins.items()}
        found: dict[Cause, CauseSummary] = {}
        for letters in self._letters(start):
            for letter in filter(selection.takes, letters):
                cause = Cause(letter.pipeline, letter.source, letter.field, letter.reason)
                replayed = letter.offset in done.get(letter.partition, Done())
                found.setdefault(cause, CauseSummary()).add(letter, replayed=replayed, samples_max=samples)
        return dict(sorted(found.items(), key=lambda each: -each[1].letters))

    def one(self, partition: int, offset: int) -> tuple[Letter, bool] | None:
        """A letter, and whether it was replayed; None if there is none at this place."""
        place = TopicPartition(self.topic, partition)
        if place not in self._begins or offset < self._begins[place]:
            return None
        start: dict[int | TopicPartition, str | int | datetime] = {place: offset}
        end: dict[int | TopicPartition, str | int | datetime] = {place: offset + 1}
        columns = ["key", "value", "offset", "timestamp", "headers"]
        with scan(
            self._bootstrap,
            self.topic,
            start=start,
            end=end,
            columns=columns,
            partitions=[partition],
            options=self._options,
        ) as batches:
            for _, batch in batches.located():
                for row in batch.to_pylist():
                    return self._letter(partition, row), offset in self._done().get(partition, Done())
        return None

    def size(self) -> int:
        """The number of offsets to read, at most."""
        with self._admin() as admin:
            ends = admin.topics.offsets(list(self._begins))
        return sum(ends[each] - begin for each, begin in self._begins.items())

    def _admin(self) -> Admin:
        return Admin(self._bootstrap, timeout=_TIMEOUT_S, options=self._options)

    def _each(
        self,
        done: dict[int, Done],
        selection: Selection,
        to: str,
        send: Callable[[list[Letter]], None],
        limit: int | None,
        progress: Callable[[int], None],
    ) -> ReplayResult:
        chosen: Counter[Kind] = Counter()
        others = homeless = 0
        begins = {each.partition: begin for each, begin in self._begins.items()}
        before = sum(each.count_from(begins[partition]) for partition, each in done.items())
        start = {each: done.get(each.partition, Done()).first_missing(begin) for each, begin in self._begins.items()}
        for letters in self._letters(start):
            picked: list[Letter] = []
            for letter in letters:
                if letter.offset in done.get(letter.partition, Done()):
                    continue
                if not selection.takes(letter):
                    others += 1
                elif not to and letter.source is None:
                    homeless += 1
                elif limit is None or chosen.total() + len(picked) < limit:
                    self._check_target(to or letter.source or "")
                    picked.append(letter)
            if picked:
                send(picked)
            chosen.update(Kind(letter.pipeline, letter.source, letter.reason) for letter in picked)
            progress(len(letters))
            if limit is not None and chosen.total() >= limit:
                break
        return ReplayResult(dict(chosen), before, others, homeless)

    def _letters(self, begins: Mapping[TopicPartition, int]) -> Iterator[list[Letter]]:
        """The letters that exist now, from an offset on, in groups of one partition each."""
        columns = ["key", "value", "offset", "timestamp", "headers"]
        start: dict[int | TopicPartition, str | int | datetime] = dict(begins.items())
        with scan(
            self._bootstrap, self.topic, start=start, columns=columns, batch_rows=_AT_ONCE, options=self._options
        ) as batches:
            for place, batch in batches.located():
                yield [self._letter(place.partition, row) for row in batch.to_pylist()]

    def _letter(self, partition: int, row: dict[str, Any]) -> Letter:
        return Letter(
            topic=self.topic,
            partition=partition,
            offset=row["offset"],
            key=row["key"],
            value=row["value"],
            headers=tuple((header["key"], header["value"]) for header in row["headers"] or ()),
            timestamp_ms=round(row["timestamp"].timestamp() * 1000),
        )

    def _send(
        self,
        producer: Producer[bytes, bytes],
        letters: list[Letter],
        to: str,
        edited: Mapping[tuple[int, int], bytes],
    ) -> None:
        with producer.transaction():
            for letter in letters:
                record = replay(letter, to, edited.get((letter.partition, letter.offset)))
                known = self._partitions[record.topic]
                producer.send(
                    record.topic,
                    record.value,
                    key=record.key,
                    partition=record.partition if record.partition is not None and record.partition < known else None,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),
                )
            offsets = [letter.offset for letter in letters]
            key, value = ledger_entry(self._described.topic_id or "", letters[0].partition, offsets)
            producer.send(self.ledger, value.encode(), key=key.encode())

    def _done(self) -> dict[int, Done]:
        if self.ledger not in self._partitions:
            return {}
        columns = ["key", "value"]
        table = read_table(
            self._bootstrap, self.ledger, key="string", value="string", columns=columns, options=self._options
        )
        entries = zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)
        return read_ledger(self._described.topic_id or "", entries)

    def _make_ledger(self) -> None:
        if self.ledger in self._partitions:
            return
        with self._admin() as admin:
            try:
                admin.topics.create(
                    self.ledger,
                    partitions=1,
                    replication_factor=self._described.replication_factor,
                    configs={"cleanup.policy": "compact"},
                )
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
        self._partitions[self.ledger] = 1

    def _check_target(self, topic: str) -> None:
        if topic not in self._partitions:
            raise ClientError(f"there is no topic {topic!r} to send letters to: create it, or choose another with --to")
