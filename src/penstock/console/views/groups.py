"""The list of groups, and the state of one: members, assignments, lag in records and in seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.client.wire.admin.group_members import GroupDescription
from penstock.client.wire.admin.group_reset import ResetTarget, ShiftBy
from penstock.console.views.sample import GroupSeen, Seen
from penstock.model.ids import TopicPartition

PAGE = 100


@dataclass(frozen=True, slots=True)
class GroupRow:
    name: str
    kind: str
    state: str
    members: int
    topics: tuple[str, ...]
    lag: int
    seconds: float | None
    rate: float | None
    """Records a second, computed from commits."""


@dataclass(frozen=True, slots=True)
class GroupList:
    rows: tuple[GroupRow, ...]
    found: int
    all: int
    page: int
    pages: int
    search: str
    sort: str
    descending: bool


_SORTS: Mapping[str, Callable[[GroupRow], Any]] = {
    "name": lambda row: row.name,
    "kind": lambda row: row.kind,
    "state": lambda row: row.state,
    "members": lambda row: row.members,
    "lag": lambda row: row.lag,
    "seconds": lambda row: row.seconds or 0.0,
    "rate": lambda row: row.rate or 0.0,
}


def group_list(seen: Seen, given: Mapping[str, str]) -> GroupList:
    search = given.get("q", "").strip()
    sort = given.get("sort", "-lag")
    descending = sort.startswith("-")
    column = sort.removeprefix("-") if sort.removeprefix("-") in _SORTS else "lag"
    groups = {} if seen.now is None else seen.now.groups
    words = search.lower().split()
    rows = [_row(seen, name, group) for name, group in groups.items() if all(word in name.lower() for word in words)]
    rows.sort(key=lambda row: row.name)
    rows.sort(key=_SORTS[column], reverse=descending)
    pages = max(1, -(-len(rows) // PAGE))
    wanted = given.get("page", "1")
    page = min(pages, max(1, int(wanted))) if wanted.isdecimal() and len(wanted) < 10 else 1
    shown = tuple(rows[(page - 1) * PAGE : page * PAGE])
    return GroupList(shown, len(rows), len(groups), page, pages, search, column, descending)


@dataclass(frozen=True, slots=True)
class LagRow:
    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    seconds: float | None
    member_id: str | None
    client: str


@dataclass(frozen=True, slots=True)
class GroupState:
    row: GroupRow
    description: GroupDescription
    lags: tuple[LagRow, ...]


def group_state(seen: Seen, name: str) -> GroupState | None:
    group = None if seen.now is None else seen.now.groups.get(name)
    if group is None:
        return None
    owners = group.description.owners()
    lags = []
    for each in group.lags:
        place = TopicPartition(each.topic, each.partition)
        owner = owners.get(place)
        lags.append(
            LagRow(
                each.topic,
                each.partition,
                each.committed,
                each.end,
                each.lag,
                group.seconds.get(place),
                each.member_id,
                "" if owner is None else f"{owner.client_id} on {owner.host}",
            )
        )
    return GroupState(_row(seen, name, group), group.description, tuple(lags))


def _row(seen: Seen, name: str, group: GroupSeen) -> GroupRow:
    earlier = None if seen.before is None else seen.before.groups.get(name)
    return GroupRow(
        name=name,
        kind=kind_of(group.description),
        state=group.description.state,
        members=len(group.description.members),
        topics=tuple(sorted({each.topic for each in group.lags})),
        lag=group.lag,
        seconds=group.seconds_behind,
        rate=seen.rate(None if earlier is None else earlier.committed, group.committed),
    )


def kind_of(group: GroupDescription) -> str:
    return "consumer (KIP-848)" if group.type == "consumer" else "classic"


RESETS = {
    "earliest": "the first record",
    "latest": "the end",
    "offset": "an offset",
    "time": "a time",
    "duration": "so many minutes ago",
    "shift": "forward or back by records",
}


def parse_reset(given: Mapping[str, str]) -> ResetTarget:
    """ValueError with a message for the person who filled in the form."""
    to, value = given.get("to", ""), given.get("value", "").strip()
    if to in ("earliest", "latest"):
        return "earliest" if to == "earliest" else "latest"
    if to not in RESETS:
        raise ValueError("choose where to move the group")
    if not value:
        raise ValueError(f"fill in the value for: {RESETS[to]}")
    if to == "time":
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"{value!r} is not a time such as 2026-05-01T12:00:00Z") from None
        return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    if not value.lstrip("-").isdecimal() or len(value) > 19:
        raise ValueError(f"{value!r} is not a number")
    number = int(value)
    if to == "shift":
        return ShiftBy(number)
    if number < 0:
        raise ValueError(f"{number} is negative")
    if to == "duration" and number > 60 * 24 * 365 * 50:
        raise ValueError(f"{number} minutes ago is before 1970")
    return timedelta(minutes=number) if to == "duration" else number
