"""The `kafka.*` options of the source: Kafka's consumer settings, and what the source does with each.

There are four kinds. The source applies some settings; `security` has those about TLS and logins. It accepts and
ignores settings for work that it does not do (it is in no group, and asks only for records that exist), because they do
not change what is read. It refuses settings that it cannot apply and that would change what is read, with a message
that says what to do. All others are unknown.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.client.wire.log_offsets import ISOLATION_LEVELS, READ_UNCOMMITTED
from penstock.spark.source.errors import BadOption
from penstock.spark.source.security import bootstrap_of, check_security, is_security

PREFIX = "kafka."


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_HEEDED = _names(
    """
    bootstrap.servers isolation.level group.id request.timeout.ms default.api.timeout.ms fetch.max.bytes
    max.partition.fetch.bytes metadata.max.age.ms security.protocol penstock.config
    """
)
_NEEDLESS = _names(
    """
    auto.commit.interval.ms allow.auto.create.topics client.dns.lookup client.id connections.max.idle.ms
    enable.metrics.push exclude.internal.topics fetch.max.wait.ms fetch.min.bytes group.instance.id group.protocol
    group.remote.assignor heartbeat.interval.ms max.poll.interval.ms max.poll.records metadata.recovery.strategy
    metadata.recovery.rebootstrap.trigger.ms metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms partition.assignment.strategy receive.buffer.bytes reconnect.backoff.max.ms
    reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms send.buffer.bytes session.timeout.ms
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    """
)
_OTHER_DOOR = 'Spark\'s own connector, format("kafka"), has it'
_REFUSED = {
    "auto.offset.reset": "where a query begins is said by startingOffsets, earliest or latest",
    "check.crcs": "checksums are always checked",
    "client.rack": "records are read from leaders; " + _OTHER_DOOR,
    "enable.auto.commit": "a query commits its progress to its group by itself",
    "interceptor.classes": "no Java runs here; transform the columns instead",
    "key.deserializer": "keys are bytes; cast or decode the column",
    "value.deserializer": "values are bytes; cast or decode the column",
}

_TIMES = {"request.timeout.ms": 10_000, "default.api.timeout.ms": 60_000, "metadata.max.age.ms": 1000}
_SIZES = {"fetch.max.bytes": 50 * 1024 * 1024, "max.partition.fetch.bytes": 8 * 1024 * 1024}


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """The settings of the source's clients."""

    bootstrap: str
    """With a reference to the security settings, if there are any."""
    isolation: int = READ_UNCOMMITTED  # Kafka's default, and so Spark's
    group_id: str | None = None
    request_timeout: float = _TIMES["request.timeout.ms"] / 1000
    """How long a broker may take to answer."""
    patience: float = _TIMES["default.api.timeout.ms"] / 1000
    """How long to wait while leaders move or brokers are down."""
    metadata_age: float = _TIMES["metadata.max.age.ms"] / 1000
    """How long it may take until a new partition is noticed."""
    batch_bytes: int = _SIZES["max.partition.fetch.bytes"]
    """How much of a partition is fetched at once, which determines the size of a record batch."""


def kafka_settings(given: Mapping[str, str]) -> KafkaSettings:
    """`given` has the settings without their prefix, in lower case."""
    for name, value in given.items():
        _check(name, value)
    bootstrap = bootstrap_of(given)
    level = given.get("isolation.level", "read_uncommitted").lower()
    if level not in ISOLATION_LEVELS:
        raise BadOption(f"kafka.isolation.level={level!r} is not one of {', '.join(ISOLATION_LEVELS)}")
    times = {name: whole_number(name, given.get(name, str(usual))) / 1000 for name, usual in _TIMES.items()}
    sizes = {name: whole_number(name, given.get(name, str(usual))) for name, usual in _SIZES.items()}
    return KafkaSettings(
        bootstrap=bootstrap,
        isolation=ISOLATION_LEVELS[level],
        group_id=given.get("group.id") or None,
        request_timeout=times["request.timeout.ms"],
        patience=times["default.api.timeout.ms"],
        metadata_age=times["metadata.max.age.ms"],
        batch_bytes=min(sizes.values()),
    )


def nearest(name: str, names: Iterable[str]) -> str:
    """` Did you mean "subscribe"?`, if something is near."""
    by_lower = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), by_lower, 1, 0.6)
    return f" Did you mean {by_lower[close[0]]!r}?" if close else ""


def _check(name: str, value: str) -> None:
    if name in _REFUSED:
        if name == "check.crcs" and value.lower() == "true":
            return
        raise BadOption(f"kafka.{name} cannot be set: {_REFUSED[name]}")
    if is_security(name):
        check_security(name, value)
    elif name not in _HEEDED | _NEEDLESS:
        known = (PREFIX + each for each in _HEEDED | _NEEDLESS | set(_REFUSED))
        raise BadOption(f"there is no setting kafka.{name} of a consumer.{nearest(PREFIX + name, known)}")


def whole_number(name: str, text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise BadOption(f"kafka.{name}={text!r} is not a number from 1 on")
    return int(text)
