"""The options of the sink: Spark's names and meanings where Spark has them, each checked before anything runs.

`kafka.*` options are a Kafka producer's settings. The sink applies some of them. It ignores those that do not change
what is written, because it does that work in another way. It refuses those that it cannot apply, with a message that
says what to do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.arrow.writing import BATCH_BYTES
from penstock.records.compression import CODEC_NAMES
from penstock.spark.source.errors import BadOption
from penstock.spark.source.kafka_settings import PREFIX, nearest, whole_number
from penstock.spark.source.security import bootstrap_of, check_security, is_security

OPTIONS = ("topic", "deliveryGuarantee", "sinkId", "sinkNames", "version")
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
# Options for Spark itself, which passes them on.
_SPARK_OPTIONS = ("checkpointlocation", "queryname", "includeheaders")
_CANONICAL = {name.lower(): name for name in OPTIONS}
_SINK_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")

# Kafka's default for the broker setting transaction.max.timeout.ms: the longest time-out available without asking the
# brokers.
TRANSACTION_TIMEOUT_MS = 900_000


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_HEEDED = _names(
    """
    acks batch.size bootstrap.servers compression.type delivery.timeout.ms enable.idempotence request.timeout.ms
    security.protocol transaction.timeout.ms penstock.config
    """
)
_CODECS = tuple(name for name in CODEC_NAMES if name != "uncompressed")  # "uncompressed" is valid only for topics
_LEVELS = {f"compression.{codec}.level": codec for codec in ("gzip", "lz4", "zstd")}
_NEEDLESS = _names(
    """
    buffer.memory client.dns.lookup client.id connections.max.idle.ms enable.metrics.push linger.ms max.block.ms
    max.in.flight.requests.per.connection max.request.size metadata.max.age.ms metadata.max.idle.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
    retries retry.backoff.max.ms retry.backoff.ms send.buffer.bytes socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms
    """
)
_OTHER_DOOR = 'Spark\'s own connector, format("kafka"), has it'
_REFUSED = {
    "interceptor.classes": "no Java runs here; transform the columns instead",
    "key.serializer": "keys are bytes or text; encode the column",
    "value.serializer": "values are bytes or text; encode the column",
    "partitioner.class": "keys are placed as Kafka's own producer places them; a column named partition says otherwise",
    "partitioner.adaptive.partitioning.enable": _OTHER_DOOR,
    "partitioner.availability.timeout.ms": _OTHER_DOOR,
    "partitioner.ignore.keys": "rows without a key take turns; leave the column out",
    "transaction.two.phase.commit.enable": "it is used where brokers allow it",
    "transactional.id": "transactional ids come from sinkId",
}
_TIMES = {"request.timeout.ms": 10_000, "delivery.timeout.ms": 120_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """The settings of the sink's clients; processes keep connections by them."""

    bootstrap: str  # with a reference to the security settings, if there are any
    compression: str = "none"
    compression_level: int | None = None
    batch_bytes: int = BATCH_BYTES
    request_timeout: float = 10.0
    delivery_timeout: float = 120.0
    transaction_timeout_ms: int | None = None  # None: the longest that the brokers allow


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    producer: ProducerSettings
    topic: str | None  # None: a column contains it
    exactly_once: bool
    sink_id: str | None
    sink_names: tuple[str, ...]  # of a streaming query: its decisions are named by these and its checkpoint
    version: int | None


def sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    given: dict[str, str] = {}
    settings: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower.startswith(PREFIX):
            settings[lower.removeprefix(PREFIX)] = value.strip()
        elif lower in _CANONICAL:
            given[_CANONICAL[lower]] = value.strip()
        elif lower == "path":
            raise BadOption(f"path={value!r}: a topic is no path; say option('topic', {value!r}) and start() or save()")
        elif lower not in _SPARK_OPTIONS:
            raise BadOption(f"{name!r} is not an option of the sink.{nearest(name, [*OPTIONS, *_kafka_names()])}")
    guarantee = given.get("deliveryGuarantee", EXACTLY_ONCE).lower()
    if guarantee not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise BadOption(
            f"deliveryGuarantee={given['deliveryGuarantee']!r} is neither {EXACTLY_ONCE!r} nor {AT_LEAST_ONCE!r}"
        )
    if "topic" in given and not given["topic"]:
        raise BadOption("topic is empty: name one, or leave the option out and have a column named topic")
    exactly_once = guarantee == EXACTLY_ONCE
    return SinkOptions(
        producer=_producer_settings(settings, exactly_once=exactly_once),
        topic=given.get("topic"),
        exactly_once=exactly_once,
        sink_id=_sink_id(given, exactly_once=exactly_once),
        sink_names=_sink_names(given, streaming=streaming, exactly_once=exactly_once),
        version=_version(given, streaming=streaming),
    )


def _sink_id(given: Mapping[str, str], *, exactly_once: bool) -> str | None:
    sink_id = given.get("sinkId")
    if sink_id is not None and not exactly_once:
        raise BadOption(f"sinkId={sink_id!r} has no meaning with deliveryGuarantee={AT_LEAST_ONCE!r}")
    if sink_id is not None and not _SINK_ID.fullmatch(sink_id):
        raise BadOption(f"sinkId={sink_id!r} is not made of up to 100 letters, digits, '-' and '_'")
    return sink_id


def _sink_names(given: Mapping[str, str], *, streaming: bool, exactly_once: bool) -> tuple[str, ...]:
    text = given.get("sinkNames")
    if text is None:
        return ()
    if not streaming or not exactly_once or "sinkId" in given:
        raise BadOption(f"sinkNames={text!r} is for streaming queries, exactly-once, without a sinkId")
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise BadOption(f"sinkNames={text!r} is not a list of names, as JSON")
    return tuple(names)


def _version(given: Mapping[str, str], *, streaming: bool) -> int | None:
    text = given.get("version")
    if text is None:
        if "sinkId" in given and not streaming:
            raise BadOption("sinkId without version: say which write this is by option('version', 1), 2, 3, ...")
        return None
    if streaming:
        raise BadOption(f"version={text!r} has no meaning in a streaming query, whose batches are counted by Spark")
    if "sinkId" not in given:
        raise BadOption(f"version={text!r} without sinkId: say of what this is a version")
    if not text.isdecimal():
        raise BadOption(f"version={text!r} is not a number from 0 on")
    return int(text)


def _producer_settings(given: Mapping[str, str], *, exactly_once: bool) -> ProducerSettings:
    for name, value in given.items():
        _check(name, value)
    bootstrap = bootstrap_of(given)
    codec = given.get("compression.type", "none").lower()
    if codec not in _CODECS:
        raise BadOption(f"kafka.compression.type={codec!r} is not one of {', '.join(_CODECS)}")
    times = {name: whole_number(name, given.get(name, str(usual))) / 1000 for name, usual in _TIMES.items()}
    timeout = given.get("transaction.timeout.ms")
    if timeout is not None and not exactly_once:
        raise BadOption(f"kafka.transaction.timeout.ms has no meaning with deliveryGuarantee={AT_LEAST_ONCE!r}")
    level = given.get(f"compression.{codec}.level")
    return ProducerSettings(
        bootstrap=bootstrap,
        compression=codec,
        compression_level=None if level is None else int(level),
        batch_bytes=whole_number("batch.size", given.get("batch.size", str(BATCH_BYTES))),
        request_timeout=times["request.timeout.ms"],
        delivery_timeout=times["delivery.timeout.ms"],
        transaction_timeout_ms=None if timeout is None else whole_number("transaction.timeout.ms", timeout),
    )


def _check(name: str, value: str) -> None:
    if name in _REFUSED:
        raise BadOption(f"kafka.{name} cannot be set: {_REFUSED[name]}")
    if is_security(name):
        check_security(name, value)
        return
    if name == "acks" and value not in ("all", "-1"):
        raise BadOption(f"kafka.acks={value!r}: rows count as written when all replicas have them; leave it out")
    if name == "enable.idempotence" and value.lower() != "true":
        raise BadOption("kafka.enable.idempotence cannot be turned off: rows that are sent again are written once")
    if name in _LEVELS and not value.lstrip("-").isdecimal():
        raise BadOption(f"kafka.{name}={value!r} is not a number")
    if name not in _HEEDED | _NEEDLESS | set(_LEVELS):
        raise BadOption(f"there is no setting kafka.{name} of a producer.{nearest(PREFIX + name, _kafka_names())}")


def _kafka_names() -> list[str]:
    return [PREFIX + each for each in sorted(_HEEDED | _NEEDLESS | set(_LEVELS) | set(_REFUSED))]
