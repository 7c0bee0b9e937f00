"""The first page."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.console import units
from penstock.console.markup import Child, Markup, address, joined, tag
from penstock.console.pages.layout import Column, Fact, empty, facts, table, time
from penstock.console.views.events import Event, Happening
from penstock.console.views.overview import NAMED_MAX, BrokerRow, Overview
from penstock.console.views.text import one_line
from penstock.doctor.findings import Finding
from penstock.model.ids import TopicPartition


def state(view: Overview) -> Markup:
    return joined(
        facts(
            [
                Fact(
                    "Brokers",
                    f"{view.up} of {len(view.brokers)} up",
                    state="good" if view.up == len(view.brokers) else "bad",
                ),
                Fact(
                    "Without a leader",
                    units.count(len(view.offline)),
                    "Clients can neither read nor write these partitions.",
                    state="bad" if view.offline else "good",
                ),
                Fact(
                    "Under-replicated",
                    units.count(len(view.under_replicated)),
                    "Partitions that lack a replica in sync.",
                    state="bad" if view.under_replicated else "good",
                ),
                Fact("Written", units.rate(view.records, "records"), "To all topics that are not internal."),
                Fact("In", units.size_rate(view.bytes_in), "From the brokers' metrics."),
                Fact("Out", units.size_rate(view.bytes_out), "From the brokers' metrics."),
                Fact(
                    "Topics",
                    tag("a", units.count(view.topics), href="/topics"),
                    f"and {view.internal_topics} internal ones",
                ),
                Fact("Partitions", units.count(view.partitions)),
                Fact("On disk", units.size(view.size), "All replicas."),
                Fact("Groups", tag("a", units.count(view.groups), href="/groups")),
                Fact("Largest lag", tag("a", units.count(view.largest_lag), href="/groups?sort=-lag")),
            ]
        ),
        _partitions("Partitions without a leader", view.offline),
        _partitions("Under-replicated partitions", view.under_replicated),
        _brokers(view),
        _controllers(view),
        [tag("p", note, class_="note") for note in view.notes],
    )


def _partitions(title: str, partitions: Sequence[TopicPartition]) -> Markup | None:
    if not partitions:
        return None
    named: list[Child] = [
        tag("li", tag("a", str(each), href=address("/topics/", each.topic))) for each in partitions[:NAMED_MAX]
    ]
    if len(partitions) > NAMED_MAX:
        named.append(tag("li", f"and {len(partitions) - NAMED_MAX} more"))
    return tag("section", tag("h2", title), tag("ul", named, class_="names"), class_="bad")


def _brokers(view: Overview) -> Markup:
    columns = [
        Column("Broker"),
        Column("Address"),
        Column("Rack", minor=True),
        Column("State"),
        Column("Leads", number=True, hint="Partitions that the broker leads."),
        Column("In sync", number=True, hint="Of its replicas, those that are in sync."),
        Column("In", number=True),
        Column("Out", number=True),
        Column("Requests", number=True, minor=True),
        Column("Connections", number=True, minor=True),
        Column("Memory", number=True, minor=True),
        Column("Disk", number=True, minor=True, hint="Used, of all its log directories' volumes."),
    ]
    return joined(tag("h2", "Brokers"), table(columns, map(_broker, view.brokers), caption="Brokers"))


def _broker(row: BrokerRow) -> list[Child]:
    in_sync = f"{row.in_sync:,} of {row.replicas:,}"
    return [
        joined(row.broker_id, " ", tag("span", "controller", class_="badge") if row.is_controller else None),
        row.address or units.UNKNOWN,
        row.rack or units.UNKNOWN,
        tag("span", "up" if row.is_up else "down", class_="good" if row.is_up else "bad"),
        units.count(row.leads),
        tag("span", in_sync, class_="bad") if row.lacks else in_sync,
        units.size_rate(row.bytes_in),
        units.size_rate(row.bytes_out),
        units.rate(row.requests),
        units.count(row.connections),
        units.size(row.memory_bytes),
        units.UNKNOWN
        if row.disk_total is None or row.disk_used is None
        else joined(
            units.size(row.disk_used),
            " ",
            tag("meter", value=row.disk_used, max=row.disk_total, high=row.disk_total * 0.9),
        ),
    ]


def _controllers(view: Overview) -> Markup | None:
    if not view.controllers:
        return None
    columns = [Column("Controller"), Column("Role"), Column("Behind", number=True, hint="Records of the metadata log.")]
    rows: list[list[Child]] = [
        [row.node_id, "active" if row.is_leader else "standby", units.count(row.lag)] for row in view.controllers
    ]
    return joined(tag("h2", f"Controllers, epoch {view.epoch}"), table(columns, rows, caption="Controllers"))


def recent(found: Sequence[Event]) -> Markup:
    return joined(
        tag("h2", "Recent events"),
        events(found),
        tag("p", tag("a", "All events", href="/events"), class_="note") if found else None,
    )


def events(found: Sequence[Event]) -> Markup:
    if not found:
        return empty(
            "Nothing has happened.",
            "Brokers that go and come back, new leaders, replicas out of sync, topics and groups appear here.",
        )
    return table(
        [Column("Time"), Column("About", minor=True), Column("What happened")],
        ([time(each.at_ms), each.happening.kind, _happening(each.happening)] for each in found),
        caption="Events, the newest first",
    )


def _happening(given: Happening) -> Markup:
    text = one_line(given.text, 400)
    state = given.severity or None
    if given.topic:
        return tag("a", text, href=address("/topics/", given.topic), class_=state)
    if given.group:
        return tag("a", text, href=address("/group", name=given.group), class_=state)
    return tag("span", text, class_=state)


def findings(found: Sequence[Finding] | None, at_ms: int | None, unobserved: Sequence[str]) -> Markup:
    if found is None:
        return joined(tag("h2", "Doctor"), tag("p", "The doctor is looking at the cluster …", class_="note"))
    content: Child
    if found:
        content = [
            tag(
                "details",
                tag(
                    "summary",
                    tag("span", each.severity, class_=f"badge {each.severity}"),
                    " ",
                    each.subject,
                    ": ",
                    each.what,
                ),
                tag("p", each.why),
                tag("p", tag("strong", "What to do: "), each.todo),
                class_="finding",
            )
            for each in found
        ]
    else:
        content = tag(
            "p",
            tag("strong", "Nothing is wrong", class_="good"),
            " with addresses, brokers, disks, groups and transactions.",
        )
    return joined(
        tag("h2", "Doctor"),
        content,
        tag("p", "Looked at ", time(at_ms), ".", class_="note"),
        [tag("p", f"not observed: {each}", class_="note") for each in unobserved],
    )
