"""The list of topics, and the state of one topic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.wire.admin.configs import ConfigEntry
from penstock.console.views.listing import Listing, Sorts, listing, matches, search_of
from penstock.console.views.sample import Seen, end_totals, record_totals, size_totals
from penstock.model.errors import KafkaError
from penstock.model.ids import TopicPartition
from penstock.settings.topic import TOPIC_SETTINGS


@dataclass(frozen=True, slots=True)
class TopicRow:
    name: str
    internal: bool
    partitions: int
    replication: int
    under_replicated: int
    offline: int
    records: int | None
    size: int | None
    rate: float | None


_SORTS: Sorts[TopicRow] = {
    "name": lambda row: row.name,
    "partitions": lambda row: row.partitions,
    "replication": lambda row: row.replication,
    "records": lambda row: row.records or 0,
    "size": lambda row: row.size or 0,
    "rate": lambda row: row.rate or 0,
    "problems": lambda row: row.under_replicated + row.offline,
}


def topic_list(seen: Seen, given: Mapping[str, str]) -> Listing[TopicRow]:
    now = seen.now
    if now is None:
        return listing((), 0, _SORTS, given, "name")
    internal, search = bool(given.get("internal")), search_of(given)
    shown = [topic for topic in now.topics.values() if internal or not topic.internal]
    ends, records, sizes = end_totals(now), record_totals(now), size_totals(now)
    earlier = {} if seen.before is None else end_totals(seen.before)
    rows = [
        TopicRow(
            name=topic.name,
            internal=topic.internal,
            partitions=len(topic.partitions),
            replication=topic.replication_factor,
            under_replicated=sum(each.under_replicated for each in topic.partitions),
            offline=sum(each.leader is None for each in topic.partitions),
            records=records.get(topic.name),
            size=sizes.get(topic.name),
            rate=seen.rate(earlier.get(topic.name), ends.get(topic.name)),
        )
        for topic in shown
        if matches(topic.name, search)
    ]
    return listing(rows, len(shown), _SORTS, given, "name")


@dataclass(frozen=True, slots=True)
class PartitionRow:
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start: int | None
    end: int | None
    sizes: Mapping[int, int]
    rate: float | None

    @property
    def records(self) -> int | None:
        return None if self.start is None or self.end is None else max(0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class TopicState:
    name: str
    topic_id: str | None
    internal: bool
    partitions: tuple[PartitionRow, ...]
    groups: tuple[tuple[str, int], ...]
    """The groups that read it, and their lag in it."""

    @property
    def records(self) -> int:
        return sum(each.records or 0 for each in self.partitions)

    @property
    def size(self) -> int:
        return sum(sum(each.sizes.values()) for each in self.partitions)

    @property
    def rate(self) -> float | None:
        rates = [each.rate for each in self.partitions if each.rate is not None]
        return sum(rates) if rates else None

    @property
    def replication(self) -> int:
        return max((len(each.replicas) for each in self.partitions), default=0)


def topic_state(seen: Seen, name: str) -> TopicState | None:
    """None if there is no such topic."""
    now = seen.now
    topic = None if now is None else now.topics.get(name)
    if now is None or topic is None:
        return None
    rows = []
    for each in topic.partitions:
        place = TopicPartition(name, each.partition)
        earlier = None if seen.before is None else seen.before.ends.get(place)
        rows.append(
            PartitionRow(
                each.partition,
                each.leader,
                each.replicas,
                each.isr,
                now.starts.get(place),
                now.ends.get(place),
                now.sizes.get(place, {}),
                seen.rate(earlier, now.ends.get(place)),
            )
        )
    groups = []
    for group_id, group in now.groups.items():
        lags = [each for each in group.lags if each.topic == name]
        if lags:
            groups.append((group_id, sum(each.lag or 0 for each in lags)))
    return TopicState(name, topic.topic_id, topic.internal, tuple(rows), tuple(sorted(groups)))


@dataclass(frozen=True, slots=True)
class SettingRow:
    name: str
    value: str
    source: str
    is_own: bool
    """Set on this topic, and not inherited."""
    is_changeable: bool
    documentation: str


def setting_rows(entries: list[ConfigEntry]) -> list[SettingRow]:
    """Those that are set on the topic first."""
    rows = []
    for entry in entries:
        known = TOPIC_SETTINGS.get(entry.name)
        rows.append(
            SettingRow(
                entry.name,
                "" if entry.value is None else entry.value,
                entry.source.removesuffix("_CONFIG").replace("_", " ").lower(),
                entry.source == "DYNAMIC_TOPIC_CONFIG",
                not entry.read_only and not entry.sensitive,
                "" if known is None else known.documentation,
            )
        )
    return sorted(rows, key=lambda row: (not row.is_own, row.name))


def setting_problem(name: str, value: str) -> str | None:
    """What is wrong with a value, if the setting is known here; the broker decides."""
    known = TOPIC_SETTINGS.get(name)
    if known is None:
        return None
    try:
        known.parse(value)
    except KafkaError as error:
        return str(error)
    return None


_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def name_problem(name: str) -> str | None:
    if not _NAME.fullmatch(name) or name in (".", ".."):
        return "a topic's name has 1 to 249 letters, digits, '.', '_' or '-', and is neither '.' nor '..'"
    return None
