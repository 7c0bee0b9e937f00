"""Offsets in the form of Spark's checkpoints and options, and the meaning of start and end bounds.

Everything here is pure. In a checkpoint an offset is

    {"orders": {"0": 17, "1": 4}, "topic ids": {"orders": "8bY2OhTzRhKZyc1KZkHcyw"}}

the next record to read of each partition, in the form that Spark's own Kafka source uses, and the topics that these
offsets belong to: a topic that is deleted and created again keeps its name, and its records have the same offsets. No
topic can be called "topic ids", because names have no spaces. Checkpoints of earlier versions have no ids. Spark
compares offsets by their text, so they are always written in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.model.ids import ZERO_UUID, TopicPartition, Uuid, uuid_from_text, uuid_text
from penstock.spark.source.errors import BadOption, ForeignCheckpoint, OutOfRange

Offsets = dict[TopicPartition, int]
TopicIds = Mapping[str, Uuid]
SparkOffset = dict[str, dict[str, Any]]

LATEST, EARLIEST = -1, -2  # as Spark's options spell them in JSON
TOPIC_IDS = "topic ids"


def to_spark(offsets: Mapping[TopicPartition, int], ids: TopicIds | None = None) -> SparkOffset:
    """Sorted by topic and partition number, whatever the order of the input; with the ids of these topics, as far as
    the cluster has any."""
    made: SparkOffset = {}
    for (topic, index), offset in sorted(offsets.items()):
        made.setdefault(topic, {})[str(index)] = offset
    known = {topic: uuid_text(ids[topic]) for topic in made if ids and ids.get(topic, ZERO_UUID) != ZERO_UUID}
    return {**made, TOPIC_IDS: known} if known else made


def from_spark(offset: Any) -> Offsets:
    """The offsets in a checkpoint; ForeignCheckpoint if this source did not write it."""
    return _from_checkpoint(offset)[0]


def topic_ids(offset: Any) -> dict[str, Uuid]:
    """The topics that the offsets in a checkpoint belong to, as far as it says."""
    return _from_checkpoint(offset)[1]


def _from_checkpoint(offset: Any) -> tuple[Offsets, dict[str, Uuid]]:
    try:
        if not isinstance(offset, dict):
            raise ValueError("not an object")
        ids = offset.get(TOPIC_IDS, {})
        by_partition = _by_partition({name: each for name, each in offset.items() if name != TOPIC_IDS}, minimum=0)
        return by_partition, {topic: uuid_from_text(text) for topic, text in ids.items()}
    except (ValueError, AttributeError, TypeError):
        raise ForeignCheckpoint(
            f"the checkpoint holds {json.dumps(offset)[:80]}, which is no offset of topics: it belongs to another "
            f"query; give this one a checkpointLocation of its own"
        ) from None


def parse_offsets(option: str, text: str) -> Offsets:
    """The value of an option, such as `{"orders": {"0": 23, "1": -1}}`; -1 is the latest, -2 the earliest."""
    return _parse(option, text, EARLIEST, '{"orders": {"0": 23, "1": -1}}, where -1 is latest and -2 earliest')


def parse_timestamps(option: str, text: str) -> Offsets:
    return _parse(option, text, 0, '{"orders": {"0": 1700000000000}}, in milliseconds since 1970')


def parse_partitions(option: str, text: str) -> frozenset[TopicPartition]:
    """`{"orders": [0, 1]}`."""
    try:
        named = json.loads(text)
        chosen = {TopicPartition(topic, _integer(index, 0)) for topic, indexes in named.items() for index in indexes}
    except (ValueError, AttributeError, TypeError):
        raise BadOption(f'{option}={text!r} is not like {{"orders": [0, 1], "payments": [2]}}') from None
    if not chosen:
        raise BadOption(f"{option}={text!r} names no partition")
    return frozenset(chosen)


def _parse(option: str, text: str, minimum: int, example: str) -> Offsets:
    try:
        parsed = _by_partition(json.loads(text), minimum)
    except ValueError:
        raise BadOption(f"{option}={text!r} is not like {example}") from None
    if not parsed:
        raise BadOption(f"{option}={text!r} names no partition")
    return parsed


def _by_partition(parsed: Any, minimum: int) -> Offsets:
    if not isinstance(parsed, dict) or not all(isinstance(each, dict) for each in parsed.values()):
        raise ValueError("not an object of objects")
    return {
        TopicPartition(topic, _partition_index(index)): _integer(offset, minimum)
        for topic, by_index in parsed.items()
        for index, offset in by_index.items()
    }


def _partition_index(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no partition")
    return int(text)


def _integer(value: Any, minimum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"{value!r} is not an integer from {minimum} on")
    return value


@dataclass(frozen=True, slots=True)
class Bound:
    """Where to begin or end: "earliest" or "latest", offsets, or times; the same for all partitions, or one for
    each."""

    option: str  # the option that it comes from, for messages
    point: int | Offsets  # LATEST, EARLIEST or an offset; or a time in milliseconds
    by_time: bool = False

    @property
    def moves(self) -> bool:
        """Whether it may resolve to another offset the next time."""
        return self.by_time or (self.point == LATEST if isinstance(self.point, int) else LATEST in self.point.values())

    def of(self, partition: TopicPartition) -> int:
        return self.point if isinstance(self.point, int) else self.point[partition]

    def check_names(self, partitions: Iterable[TopicPartition]) -> None:
        """A bound by partition must name exactly the partitions that are read."""
        if isinstance(self.point, int):
            return
        wanted, named = set(partitions), set(self.point)
        if wanted - named:
            raise BadOption(
                f"{self.option} says nothing of {_listed(wanted - named)}; name every partition"
                + ("" if self.by_time else ", with -1 for latest and -2 for earliest")
            )
        if named - wanted:
            raise BadOption(f"{self.option} names {_listed(named - wanted)}, which is not read by this query")

    def times(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The times to search the log for."""
        wanted: dict[int, list[TopicPartition]] = {}
        for partition in partitions if self.by_time else ():
            wanted.setdefault(self.of(partition), []).append(partition)
        return wanted


def resolve(bound: Bound, earliest: Offsets, latest: Offsets, found: Mapping[TopicPartition, int]) -> Offsets:
    """Offsets for the partitions of `earliest`. A partition without a record at or after its time is missing in
    `found`, and in the result."""
    resolved: Offsets = {}
    for partition in earliest:
        if bound.by_time:
            if partition in found:
                resolved[partition] = found[partition]
            continue
        point = bound.of(partition)
        words = {LATEST: latest, EARLIEST: earliest}
        resolved[partition] = words[point][partition] if point in words else point
    return resolved


def within_log(bound: Bound, resolved: Offsets, earliest: Offsets, latest: Offsets) -> list[str]:
    """The errors of offsets given as numbers that are outside the log; usually none."""
    problems = []
    for partition, offset in resolved.items():
        low, high = earliest[partition], latest[partition]
        if not low <= offset <= high:
            problems.append(f"{bound.option}: {partition} has offsets {low} to {high}, {offset} is not among them")
    return problems


def check_order(first: Offsets, end: Offsets, start_option: str, end_option: str) -> None:
    for partition, offset in first.items():
        if offset > end[partition]:
            raise OutOfRange(
                f"{partition}: {end_option} is at offset {end[partition]}, before {start_option} at {offset}"
            )


def _listed(partitions: Iterable[TopicPartition], at_most: int = 5) -> str:
    ordered = sorted(partitions)
    shown = ", ".join(str(each) for each in ordered[:at_most])
    return shown if len(ordered) <= at_most else f"{shown} and {len(ordered) - at_most} more"
