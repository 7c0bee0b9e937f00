"""What commands do with their arguments: connect to a cluster; parse and print partitions, times and durations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.cli.output import fail, print_json

if TYPE_CHECKING:
    from penstock.client.wire.admin import Admin
    from penstock.model.errors import ErrorCode
    from penstock.model.ids import TopicPartition

# `2h`, `1d12h`, and ISO 8601's `P1DT12H`.
_DURATION = re.compile(
    r"(?i:p)?(?:(?P<weeks>\d+)[wW])?(?:(?P<days>\d+)[dD])?(?i:t)?"
    r"(?:(?P<hours>\d+)[hH])?(?:(?P<minutes>\d+)[mM])?(?:(?P<seconds>\d+(?:\.\d+)?)[sS])?"
)

_UNIT_S = {"weeks": 604_800, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}


def connect(bootstrap_server: str) -> Admin:
    from penstock.client.wire.admin import Admin

    return Admin(bootstrap_server)


def delete_each(names: Iterable[str], delete: Callable[[str], None], missing: ErrorCode | None, *, json: bool) -> None:
    """Delete by name, and print what is deleted. `missing`: the error of a name that does not exist, if that is
    allowed."""
    from penstock.model.errors import KafkaError

    deleted = []
    for name in names:
        try:
            delete(name)
        except KafkaError as error:
            if error.code != missing:
                raise
            continue
        deleted.append(name)
        if not json:
            print(f"deleted {name}")
    if json:
        print_json(deleted)


def parse_partitions(option: str, texts: Iterable[str]) -> dict[str, list[int] | None]:
    """`TOPIC` or `TOPIC:PARTITION,...`, repeated: the partitions of each topic; None means all."""
    parsed: dict[str, list[int] | None] = {}
    for text in texts:
        topic, separator, numbers = text.partition(":")
        indexes = numbers.split(",")
        if not topic or (separator and not all(each.strip().isdecimal() for each in indexes)):
            fail(f"{option} {text!r} is not TOPIC or TOPIC:PARTITION,...")
        before = parsed.get(topic, [])
        parsed[topic] = before + [int(each) for each in indexes] if separator and before is not None else None
    return parsed


def existing_partitions(admin: Admin, wanted: dict[str, list[int] | None]) -> list[TopicPartition]:
    """The wanted partitions of the cluster. A partition that does not exist ends the command."""
    from penstock.model.ids import TopicPartition

    found: list[TopicPartition] = []
    for topic in admin.topics.describe(wanted):
        there = [partition.partition for partition in topic.partitions]
        chosen = wanted[topic.name]
        for index in chosen or ():
            if index not in there:
                fail(f"topic {topic.name!r} has no partition {index}, only {len(there)} in all")
        found += [TopicPartition(topic.name, index) for index in sorted(set(there if chosen is None else chosen))]
    return found


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """The inverse of `parse_partitions`: `orders:0,1 payments:2`."""
    by_topic: dict[str, list[str]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(str(partition))
    return " ".join(f"{topic}:{','.join(indexes)}" for topic, indexes in by_topic.items())


def parse_duration(option: str, text: str) -> timedelta:
    match = _DURATION.fullmatch(text.strip())
    given = {unit: float(number) for unit, number in match.groupdict().items() if number} if match else {}
    if not given:
        fail(f"{option} {text!r} is not a duration such as 90m, 1d12h or PT1H30M")
    seconds = sum(number * _UNIT_S[unit] for unit, number in given.items())
    if seconds > datetime.now(UTC).timestamp():
        fail(f"{option} {text!r} is before 1970")
    return timedelta(seconds=seconds)


def parse_time(option: str, text: str) -> datetime:
    """ISO 8601, in UTC if it has no time zone, or milliseconds since 1970."""
    try:
        if text.strip().isdecimal():
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(text))
        time = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        fail(f"{option} {text!r} is not a time such as 2026-05-01T12:00:00Z, nor milliseconds since 1970")
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def duration_text(milliseconds: int) -> str:
    """In the two largest units people read: 3d 4h, 2m 5s."""
    seconds = max(0, milliseconds) // 1000
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s")]
    first = next((index for index, (number, _) in enumerate(parts) if number), len(parts) - 1)
    return " ".join(f"{number}{unit}" for number, unit in parts[first : first + 2])
