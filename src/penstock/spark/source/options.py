"""The options of the source: Spark's names and meanings, each checked before anything runs.

The names are those of Spark's Kafka source, so a query can switch between the two sources by its format alone. Names
are case-insensitive, as everywhere in Spark.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.model.ids import TopicPartition
from penstock.spark.source.errors import BadOption
from penstock.spark.source.kafka_settings import PREFIX, KafkaSettings, kafka_settings, nearest
from penstock.spark.source.offsets import (
    EARLIEST,
    LATEST,
    Bound,
    Offsets,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
)
from penstock.spark.source.planning import Limits

logger = logging.getLogger(__name__)

OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "untilOffsets",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
)
_STRATEGIES = ("subscribe", "subscribePattern", "assign")
_STREAMS_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_UNTIL = "untilOffsets"
_BATCH_ONLY = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_CANONICAL = {name.lower(): name for name in OPTIONS}
_DURATION = re.compile(r"(-?\d+)\s*([a-z]*)")
_UNITS = {"us": 1e-6, "ms": 1e-3, "": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The topics, or some of their partitions. Exactly one of the three is given."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[TopicPartition] = frozenset()

    @property
    def option(self) -> str:
        return "subscribe" if self.topics else "assign" if self.partitions else "subscribePattern"

    @property
    def names(self) -> list[str]:
        """The topics that are named; none with a pattern."""
        return sorted(set(self.topics) | {partition.topic for partition in self.partitions})

    def takes_topic(self, topic: str) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.names

    def takes(self, partition: TopicPartition) -> bool:
        return self.takes_topic(partition.topic) and (not self.partitions or partition in self.partitions)

    def __str__(self) -> str:
        if self.partitions:
            return json.dumps(
                {name: [p.partition for p in sorted(self.partitions) if p.topic == name] for name in self.names}
            )
        return self.pattern or ",".join(self.topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    kafka: KafkaSettings
    subscription: Subscription
    start: Bound
    end: Bound
    start_after_last: bool
    """If no record is at or after the start time: begin at the end. Otherwise that is an error."""
    until: Offsets | None = None
    """Where a stream ends that reads the existing records (the trigger availableNow), instead of at the topics'
    ends."""
    limits: Limits = field(default_factory=Limits)
    partitions_min: int | None = None
    records_max: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    group_prefix: str = "spark"
    read_patience: float = 60.0
    """How long a task may make no progress."""
    offset_retries: int | None = None
    """How often offsets are requested again; None: until `patience` ends."""
    offset_retry_interval: float = 0.05


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Everything that can be checked before it is known whether the read is a batch or a stream."""
    return _parse(options)[1]


def batch_options(options: Mapping[str, str]) -> SourceOptions:
    given, parsed = _parse(options)
    for name in _STREAMS_ONLY:
        if name in given:
            logger.warning("%s has no meaning in a batch query and is passed over", name)
    if _UNTIL in given:
        raise BadOption(f"{_UNTIL} is for streams; a batch query ends at endingOffsets")
    if _points(parsed.start, LATEST):
        raise BadOption("startingOffsets cannot be latest (-1) in a batch query; say earliest, or offsets")
    if _points(parsed.end, EARLIEST):
        raise BadOption("endingOffsets cannot be earliest (-2); say latest, or offsets")
    _check_order(parsed.start, parsed.end)
    return parsed


def stream_options(options: Mapping[str, str]) -> SourceOptions:
    given, parsed = _parse(options, usual_start=LATEST)
    for name in _BATCH_ONLY:
        if name in given:
            raise BadOption(
                f"{name} has no meaning in a streaming query: it ends when it is stopped, or by its trigger"
            )
    return parsed


def _parse(options: Mapping[str, str], usual_start: int = EARLIEST) -> tuple[dict[str, str], SourceOptions]:
    given: dict[str, str] = {}
    settings: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower.startswith(PREFIX):
            settings[lower.removeprefix(PREFIX)] = value
        elif lower in _CANONICAL:
            given[_CANONICAL[lower]] = value.strip()
        else:
            known = [*OPTIONS, PREFIX + "bootstrap.servers", PREFIX + "group.id", PREFIX + "isolation.level"]
            raise BadOption(f"{name!r} is not an option of the source.{nearest(name, known)}")
    subscription = _subscription(given)
    kafka = kafka_settings(settings)
    retries = _number(given, "fetchOffset.numRetries", 0)
    limits = Limits(
        offsets_max=_number(given, "maxOffsetsPerTrigger"),
        offsets_min=_number(given, "minOffsetsPerTrigger"),
        delay_max=_duration("maxTriggerDelay", given.get("maxTriggerDelay", "15m")),
    )
    if limits.offsets_min is not None and limits.offsets_max is not None and limits.offsets_min > limits.offsets_max:
        raise BadOption(
            f"minOffsetsPerTrigger={limits.offsets_min} is more than maxOffsetsPerTrigger={limits.offsets_max}"
        )
    return given, SourceOptions(
        kafka=_with_metadata_age(kafka, given),
        subscription=subscription,
        start=_bound(given, "starting", usual_start),
        end=_bound(given, "ending", LATEST),
        until=_until(given),
        start_after_last=_choice(given, "startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        limits=limits,
        partitions_min=_number(given, "minPartitions"),
        records_max=_number(given, "maxRecordsPerPartition"),
        fail_on_data_loss=_choice(given, "failOnDataLoss", ("true", "false")) == "true",
        include_headers=_choice(given, "includeHeaders", ("false", "true")) == "true",
        group_prefix=given.get("groupIdPrefix") or "spark",
        read_patience=_milliseconds(given, "kafkaConsumer.pollTimeoutMs", 1000 * kafka.patience),
        offset_retries=retries,
        offset_retry_interval=_milliseconds(given, "fetchOffset.retryIntervalMs", 50),
    )


def _with_metadata_age(kafka: KafkaSettings, given: Mapping[str, str]) -> KafkaSettings:
    text = given.get("partition.metadata.cache.ttl.ms")
    if text is None or text == "-1":
        return kafka
    return replace(kafka, metadata_age=(_number(given, "partition.metadata.cache.ttl.ms") or 0) / 1000)


def _subscription(given: Mapping[str, str]) -> Subscription:
    chosen = [name for name in _STRATEGIES if name in given]
    if len(chosen) != 1:
        said = f"; {' and '.join(chosen)} are given" if chosen else ": none is given"
        raise BadOption(f"say what to read by exactly one of {', '.join(_STRATEGIES)}{said}")
    (name,) = chosen
    text = given[name]
    if name == "assign":
        return Subscription(partitions=parse_partitions(name, text))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
        if not topics:
            raise BadOption(f"subscribe={text!r} names no topic")
        return Subscription(topics=topics)
    try:
        re.compile(text)
    except re.error as error:
        raise BadOption(f"subscribePattern={text!r} is not a regular expression: {error}") from None
    if not text:
        raise BadOption("subscribePattern is empty")
    return Subscription(pattern=text)


def _bound(given: Mapping[str, str], prefix: str, usual: int) -> Bound:
    """The first of these that is given: a time for all partitions, a time for each, or offsets."""
    for_all, by_times, by_offsets = f"{prefix}Timestamp", f"{prefix}OffsetsByTimestamp", f"{prefix}Offsets"
    if for_all in given:
        return Bound(for_all, _number(given, for_all, 0) or 0, by_time=True)
    if by_times in given:
        return Bound(by_times, parse_timestamps(by_times, given[by_times]), by_time=True)
    text = given.get(by_offsets)
    if text is None:
        return Bound(by_offsets, usual)
    words = {"latest": LATEST, "earliest": EARLIEST}
    if text.lower() in words:
        return Bound(by_offsets, words[text.lower()])
    if not text.startswith("{"):
        raise BadOption(f"{by_offsets}={text!r} is neither 'earliest' nor 'latest' nor {{\"orders\": {{\"0\": 23}}}}")
    return Bound(by_offsets, parse_offsets(by_offsets, text))


def _until(given: Mapping[str, str]) -> Offsets | None:
    if _UNTIL not in given:
        return None
    until = parse_offsets(_UNTIL, given[_UNTIL])
    if min(until.values()) < 0:
        raise BadOption(f"{_UNTIL} has no words for earliest and latest; say offsets")
    return until


def _points(bound: Bound, word: int) -> bool:
    if bound.by_time:
        return False
    return bound.point == word if isinstance(bound.point, int) else word in bound.point.values()


def _check_order(start: Bound, end: Bound) -> None:
    """Check two bounds of the same kind against each other."""
    if isinstance(start.point, int) or isinstance(end.point, int) or start.by_time != end.by_time:
        return
    end.check_names(start.point)
    for partition, first in start.point.items():
        last = end.point[partition]
        if first > last and first >= 0 and last >= 0:
            raise BadOption(f"{partition}: {end.option} says {last}, before {start.option}'s {first}")


def _number(given: Mapping[str, str], name: str, minimum: int = 1) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < minimum:
        raise BadOption(f"{name}={text!r} is not a number from {minimum} on")
    return int(text)


def _milliseconds(given: Mapping[str, str], name: str, usual: float) -> float:
    """In seconds."""
    number = _number(given, name, 0)
    return (usual if number is None else number) / 1000


def _choice(given: Mapping[str, str], name: str, values: Iterable[str]) -> str:
    """One of the values; the first is the default."""
    usual, *_ = values = tuple(values)
    text = given.get(name, usual).lower()
    if text not in values:
        raise BadOption(f"{name}={given[name]!r} is not one of {', '.join(values)}")
    return text


def _duration(name: str, text: str) -> float:
    matched = _DURATION.fullmatch(text.strip().lower())
    if matched is None or matched[2] not in _UNITS or int(matched[1]) < 0:
        raise BadOption(f"{name}={text!r} is not a time like 500ms, 30s, 15m or 2h")
    return int(matched[1]) * _UNITS[matched[2]]
