"""The options that sinks and sources take: each is declared once, with its name, its type and its values.

`validate` reports options that a sink or source does not have. Where other options are passed on (to a driver, to a
store), an unknown name is reported only if it is nearly one of those declared.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.pipelines.spec import spark_sql
from penstock.pipelines.spec.problems import nearest
from penstock.pipelines.spec.secrets import Secret

_NEAR = 0.85


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    kind: Literal["text", "number", "truth"] = "text"
    choices: tuple[str, ...] = ()
    """Without regard to case."""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Declared:
    options: tuple[Option, ...]
    passes_on: bool = False
    """Other options go to what it writes to or reads from."""
    any_case: bool = False
    """Names are the same in upper and lower case, as everywhere in Spark."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.options)

    def problems(self, given: Mapping[str, str | Secret], what: str) -> Iterator[tuple[str, str]]:
        """Name of an option (empty: a missing one) and what is wrong with it."""
        known = {(each.name.lower() if self.any_case else each.name): each for each in self.options}
        for name, value in given.items():
            option = known.get(name.lower() if self.any_case else name)
            if option is not None:
                wrong = _wrong(option, value)
                if wrong:
                    yield name, wrong
            elif not self.passes_on or difflib.get_close_matches(name.lower(), map(str.lower, known), 1, _NEAR):
                yield name, f'no option "{name}" of {what}; {nearest(name, self.names)}'
        for option in self.options:
            if option.required and option.name not in given:
                yield "", f'{what} needs the option "{option.name}"'


def _wrong(option: Option, value: str | Secret) -> str:
    if isinstance(value, Secret):
        return ""
    if option.kind == "number" and not value.strip().lstrip("-").isdecimal():
        return f'"{option.name}" is a whole number, not "{value}"'
    choices = ("true", "false") if option.kind == "truth" else option.choices
    if choices and value.strip().lower() not in map(str.lower, choices):
        hint = nearest(value, choices)
        suffix = f"; {hint}" if hint.startswith("did") else ""
        return f'"{option.name}" is one of {", ".join(choices)}, not "{value}"{suffix}'
    return ""


def words(text: str) -> list[str]:
    return text.split()


def texts(names: str) -> tuple[Option, ...]:
    return tuple(map(Option, names.split()))


def numbers(names: str) -> tuple[Option, ...]:
    return tuple(Option(name, "number") for name in names.split())


# -- Topics. A test compares these names with those of the source and the sink.

SOURCE_NAMES = words("""
startingOffsetsByTimestamp startingTimestamp startingOffsetsByTimestampStrategy endingOffsets endingOffsetsByTimestamp
endingTimestamp untilOffsets maxTriggerDelay groupIdPrefix subscribe subscribePattern assign startingOffsets
""")
_SOURCE_NUMBERS = """
maxOffsetsPerTrigger minOffsetsPerTrigger minPartitions maxRecordsPerPartition kafkaConsumer.pollTimeoutMs
fetchOffset.numRetries fetchOffset.retryIntervalMs partition.metadata.cache.ttl.ms
"""
SINK_NAMES = words("topic deliveryGuarantee sinkId version")
CONSUMER_SETTINGS = words("""
bootstrap.servers isolation.level group.id request.timeout.ms default.api.timeout.ms fetch.max.bytes
max.partition.fetch.bytes metadata.max.age.ms security.protocol auto.commit.interval.ms allow.auto.create.topics
client.dns.lookup client.id connections.max.idle.ms enable.metrics.push exclude.internal.topics fetch.max.wait.ms
fetch.min.bytes group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms max.poll.interval.ms
max.poll.records metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms partition.assignment.strategy receive.buffer.bytes
reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms send.buffer.bytes session.timeout.ms
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms auto.offset.reset check.crcs client.rack
enable.auto.commit interceptor.classes key.deserializer value.deserializer penstock.config
""")
PRODUCER_SETTINGS = words("""
acks batch.size bootstrap.servers compression.type delivery.timeout.ms enable.idempotence request.timeout.ms
security.protocol transaction.timeout.ms compression.gzip.level compression.lz4.level compression.zstd.level
buffer.memory client.dns.lookup client.id connections.max.idle.ms enable.metrics.push linger.ms max.block.ms
max.in.flight.requests.per.connection max.request.size metadata.max.age.ms metadata.max.idle.ms
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
retries retry.backoff.max.ms retry.backoff.ms send.buffer.bytes socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms interceptor.classes key.serializer value.serializer partitioner.class
partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.ignore.keys
transaction.two.phase.commit.enable transactional.id penstock.config
""")
SECURITY_PREFIXES = ("kafka.sasl.", "kafka.ssl.", "kafka.security.")


def _kafka(names: list[str]) -> tuple[Option, ...]:
    return tuple(Option(f"kafka.{name}") for name in names)


TOPIC_SOURCE = Declared(
    (
        *map(Option, SOURCE_NAMES),
        *numbers(_SOURCE_NUMBERS),
        Option("failOnDataLoss", "truth"),
        Option("includeHeaders", "truth"),
        *_kafka(CONSUMER_SETTINGS),
    ),
    any_case=True,
)
TOPIC_SINK = Declared(
    (
        *map(Option, SINK_NAMES),
        *texts("includeHeaders checkpointLocation queryName"),  # of Spark itself
        *_kafka(PRODUCER_SETTINGS),
    ),
    any_case=True,
)

# -- Formats of Spark.

_READERS = texts(
    "path basePath pathGlobFilter recursiveFileLookup modifiedBefore modifiedAfter ignoreCorruptFiles "
    "ignoreMissingFiles maxBytesPerTrigger maxFileAge latestFirst fileNameOnly cleanSource sourceArchiveDir "
    "maxCachedFiles discardCachedInputRatio rowTag allowEmptyFile inferColumnTypes dbName"
) + numbers("maxFilesPerTrigger")
_WRITERS = texts("path partitionOverwriteMode") + numbers("maxRecordsPerFile")
_FILES = ("csv", "json", "orc", "parquet", "text")
_OTHERS: dict[str, Declared] = {
    "rate": Declared(numbers("rowsPerSecond numPartitions") + texts("rampUpTime useManualClock"), any_case=True),
    "rate-micro-batch": Declared(
        numbers("rowsPerBatch numPartitions startTimestamp advanceMillisPerBatch"), any_case=True
    ),
    "socket": Declared(
        (Option("host", required=True), Option("port", "number", required=True), Option("includeTimestamp", "truth"))
    ),
}


def format_options(name: str, *, reads: bool) -> Declared | None:
    """Of a format of Spark's; None if they are not known. Names with a dot are settings of Hadoop or of a library."""
    if name in _FILES:
        own = tuple(map(Option, spark_sql.format_options(name)))
        return Declared((*own, *(_READERS if reads else _WRITERS)), any_case=True)
    return _OTHERS.get(name) if reads else None
