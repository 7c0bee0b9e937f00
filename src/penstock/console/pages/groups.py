"""The list of groups, and one group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.client.wire.admin.group_reset import OffsetReset
from penstock.console import units
from penstock.console.markup import NOTHING, Child, Markup, address, joined, tag
from penstock.console.pages.layout import (
    Column,
    Fact,
    Frame,
    Sorting,
    empty,
    facts,
    form,
    hidden,
    labelled,
    pager,
    select,
    table,
)
from penstock.console.views.groups import RESETS, GroupRow, GroupState
from penstock.console.views.listing import Listing

_LAG = "Records between the committed offsets and the ends."
_SHARE_LAG = "Records that are neither accepted nor given up."

COLUMNS = [
    Column("Group", "name"),
    Column("Protocol", "kind", minor=True),
    Column("State", "state"),
    Column("Members", "members", number=True),
    Column("Topics", minor=True),
    Column("Lag", "lag", number=True, hint=f"{_LAG} Of share groups: {_SHARE_LAG[0].lower()}{_SHARE_LAG[1:]}"),
    Column("Behind", "seconds", number=True, hint="How long ago the next record to read was written."),
    Column("Reads", "rate", number=True, hint="Records a second, computed from commits and acknowledgements."),
]
_TOPICS_MAX = 3


def listing(view: Listing[GroupRow], parameters: Mapping[str, str]) -> Markup:
    if not view.all:
        return empty(
            "There are no groups.", "A group exists as soon as a consumer joins: penstock consume TOPIC --group GROUP"
        )
    if not view.rows:
        return empty(f"No group has {view.search!r} in its name.", tag("a", "Show all", href="/groups"))
    sorting = Sorting("/groups", parameters, view.sort, view.descending)
    return joined(
        tag("p", units.plural(view.found, "group"), class_="note"),
        table(COLUMNS, map(_row, view.rows), sorting=sorting, caption="Groups"),
        pager("/groups", parameters, view.page, view.pages),
    )


def _row(row: GroupRow) -> list[Child]:
    topics: list[Child] = []
    for name in row.topics[:_TOPICS_MAX]:
        topics += [", " if topics else None, tag("a", name, href=address("/topics/", name))]
    if len(row.topics) > _TOPICS_MAX:
        topics.append(f" and {len(row.topics) - _TOPICS_MAX} more")
    return [
        tag("a", row.name or "(empty name)", href=address("/group", name=row.name), class_="name"),
        row.kind,
        _state(row.state),
        units.count(row.members),
        joined(topics),
        units.count(row.lag),
        units.duration(row.seconds),
        units.rate(row.rate),
    ]


def _state(state: str) -> Markup:
    return tag("span", state, class_="good" if state == "Stable" else "quiet" if state == "Empty" else "warn")


def state(view: GroupState) -> Markup:
    row, group = view.row, view.description
    return joined(
        facts(
            [
                Fact("State", _state(row.state)),
                Fact("Protocol", row.kind),
                Fact("Assignor", group.assignor or units.UNKNOWN),
                Fact("Coordinator", f"broker {group.coordinator}"),
                Fact("Epoch", units.count(group.epoch)),
                Fact("Members", units.count(row.members)),
                Fact("Lag", units.count(row.lag), _SHARE_LAG if view.is_share else _LAG),
                Fact("Behind", units.duration(row.seconds), "How long ago the next record to read was written."),
                Fact("Reads", units.rate(row.rate, "records")),
            ]
        ),
        tag("h2", "Partitions"),
        _lags(view),
        tag("h2", "Members"),
        _members(view),
    )


def _lags(view: GroupState) -> Markup:
    if not view.lags:
        return empty("The group has neither partitions nor committed offsets.")
    position = Column("Committed", number=True)
    if view.is_share:
        position = Column("Start", number=True, hint="All records before it are done; records after it may be, too.")
    columns = [
        Column("Topic"),
        Column("Partition", number=True),
        position,
        Column("End", number=True),
        Column("Lag", number=True),
        Column("Behind", number=True),
        Column("Members" if view.is_share else "Member", minor=True),
    ]
    rows: list[list[Child]] = [
        [
            tag("a", each.topic, href=address("/topics/", each.topic)),
            each.partition,
            tag(
                "a",
                units.count(each.committed),
                href=address("/topics/", each.topic)
                + f"/messages?partition={each.partition}&from=offset&offset={each.committed}",
            )
            if each.committed is not None
            else units.UNKNOWN,
            units.count(each.end),
            units.count(each.lag),
            units.duration(each.seconds),
            each.client or tag("span", "no member reads it", class_="quiet"),
        ]
        for each in view.lags
    ]
    return table(columns, rows, caption="Lag by partition")


def _members(view: GroupState) -> Markup:
    if not view.description.members:
        return empty("The group has no members now.", "Its offsets can be reset below.")
    columns = [
        Column("Client"),
        Column("Host"),
        *([] if view.is_share else [Column("Instance", minor=True, hint="Of static members.")]),
        Column("Epoch", number=True, minor=True),
        Column("Partitions"),
        Column("Member id", minor=True),
    ]
    rows: list[list[Child]] = []
    for member in view.description.members:
        by_topic: dict[str, list[str]] = {}
        for topic, partition in member.assignment:
            by_topic.setdefault(topic, []).append(str(partition))
        moving = member.target_assignment is not None and member.target_assignment != member.assignment
        rows.append(
            [
                member.client_id,
                member.host,
                *([] if view.is_share else [member.instance_id or units.UNKNOWN]),
                units.count(member.epoch),
                joined(
                    "; ".join(f"{topic} {', '.join(numbers)}" for topic, numbers in by_topic.items()) or "idle",
                    tag("span", " moving", class_="warn") if moving else None,
                ),
                tag("code", member.member_id),
            ]
        )
    return table(columns, rows, caption="Members")


def reset_form(view: GroupState, given: Mapping[str, str], frame: Frame) -> Markup:
    """Asks for a preview by a GET, so that the preview has an address."""
    if frame.read_only:
        return NOTHING
    topics = {
        "": "all topics it has read" if view.is_share else "all topics it has committed in",
        **{name: name for name in view.row.topics},
    }
    return tag(
        "section",
        tag("h2", "Reset offsets", id="reset"),
        tag(
            "form",
            hidden("name", view.row.name),
            labelled("In", select("topic", topics, given.get("topic", ""))),
            labelled("To", select("to", RESETS, given.get("to", "earliest"))),
            labelled(
                "Value",
                tag("input", name="value", value=given.get("value", ""), autocomplete="off"),
                "Offset, time (2026-05-01T12:00:00Z), minutes, or records.",
            ),
            tag("button", "Preview"),
            method="get",
            action="/group#reset",
            class_="bar",
        ),
    )


def reset_preview(view: GroupState, given: Mapping[str, str], resets: Sequence[OffsetReset], frame: Frame) -> Markup:
    columns = [
        Column("Topic"),
        Column("Partition", number=True),
        Column("Start" if view.is_share else "Committed", number=True),
        Column("New", number=True),
        Column("Change", number=True),
        Column("Remark"),
    ]
    rows: list[list[Child]] = [
        [each.topic, each.partition, units.count(each.old), units.count(each.new), _change(each), each.remark or ""]
        for each in resets
    ]
    if view.description.members:
        apply: Markup = tag(
            "p",
            "The group has members",
            "" if view.is_share else ", which would go on from their own positions",
            ". Stop them first: ",
            view.description.who(),
            class_="flash warn",
        )
    else:
        apply = form(
            "/do/group.reset",
            frame.csrf,
            hidden("back", address("/group", name=view.row.name)),
            [hidden(name, given.get(name, "")) for name in ("topic", "to", "value")],
            hidden("name", view.row.name),
            hidden("type", view.description.type),
            tag("button", "Reset these offsets", class_="danger"),
        )
    return tag(
        "section", tag("p", "Nothing is changed yet:"), table(columns, rows, caption="Preview of the reset"), apply
    )


def _change(reset: OffsetReset) -> str:
    if reset.old is None:
        return units.UNKNOWN
    return f"{reset.new - reset.old:+,}"


def delete_form(view: GroupState, frame: Frame) -> Markup:
    if frame.read_only or view.description.members:
        return NOTHING
    return tag(
        "details",
        tag("summary", "Delete the group"),
        form(
            "/do/group.delete",
            frame.csrf,
            hidden("back", "/groups"),
            hidden("name", view.row.name),
            labelled(
                "Delete the group and its offsets",
                tag("input", name="confirm", required=True, autocomplete="off", data_confirm=view.row.name),
                "Type the name of the group.",
            ),
            tag("button", "Delete", class_="danger"),
            class_="stack",
        ),
        class_="box",
    )
