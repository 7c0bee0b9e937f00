"""The list of groups, and the state of one: members, assignments, lag in records and in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.client.wire.admin.group_members import CONSUMER, STREAMS, GroupDescription, GroupMember, in_one_line
from penstock.client.wire.admin.group_reset import ResetTarget, ShiftBy
from penstock.client.wire.admin.share_groups import SHARE
from penstock.console.views.listing import Listing, Sorts, listing, matches, search_of
from penstock.console.views.sample import GroupSeen, Seen
from penstock.model.ids import TopicPartition


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
    """Records a second, computed from commits; of share groups, records that are done."""


_SORTS: Sorts[GroupRow] = {
    "name": lambda row: row.name,
    "kind": lambda row: row.kind,
    "state": lambda row: row.state,
    "members": lambda row: row.members,
    "lag": lambda row: row.lag,
    "seconds": lambda row: row.seconds or 0.0,
    "rate": lambda row: row.rate or 0.0,
}


def group_list(seen: Seen, given: Mapping[str, str]) -> Listing[GroupRow]:
    groups = {} if seen.now is None else seen.now.groups
    search = search_of(given)
    rows = [_row(seen, name, group) for name, group in groups.items() if matches(name, search)]
    return listing(rows, len(groups), _SORTS, given, "-lag")


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
    is_share: bool = False


def group_state(seen: Seen, name: str) -> GroupState | None:
    group = None if seen.now is None else seen.now.groups.get(name)
    if group is None:
        return None
    readers: dict[TopicPartition, list[GroupMember]] = {}
    for member in group.description.members:
        for place in member.assignment:
            readers.setdefault(place, []).append(member)
    lags = []
    for each in group.lags:
        place = TopicPartition(each.topic, each.partition)
        lags.append(
            LagRow(
                each.topic,
                each.partition,
                each.committed,
                each.end,
                each.lag,
                group.seconds.get(place),
                each.member_id,
                in_one_line((member.client_id, member.host) for member in readers.get(place, ())),
            )
        )
    return GroupState(_row(seen, name, group), group.description, tuple(lags), group.is_share)


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
        rate=seen.rate(None if earlier is None else earlier.read, group.read),
    )


def kind_of(group: GroupDescription) -> str:
    return _KINDS.get(group.type, group.type)


_KINDS = {CONSUMER: "consumer (KIP-848)", STREAMS: "streams (KIP-1071)", SHARE: "share (KIP-932)"}


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
