"""The list of topics, and one topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.console import units
from penstock.console.markup import NOTHING, Child, Markup, address, joined, tag
from penstock.console.pages.layout import (
    Column,
    Fact,
    Frame,
    Sorting,
    check_box,
    empty,
    facts,
    form,
    hidden,
    labelled,
    pager,
    search_form,
    select,
    table,
    tabs,
)
from penstock.console.views import uploads
from penstock.console.views.decoding import decode
from penstock.console.views.listing import Listing
from penstock.console.views.text import one_line
from penstock.console.views.topics import SettingRow, TopicRow, TopicState

COLUMNS = [
    Column("Topic", "name"),
    Column("Partitions", "partitions", number=True),
    Column("Replicas", "replication", number=True, minor=True),
    Column("Written", "rate", number=True),
    Column("Records", "records", number=True, hint="Offsets between start and end."),
    Column("Size", "size", number=True, hint="All replicas."),
    Column("State", "problems"),
]


def search(view: Listing[TopicRow], parameters: Mapping[str, str]) -> Markup:
    return search_form(
        "/topics",
        view.search,
        check_box("internal", "internal topics", checked=bool(parameters.get("internal"))),
        hidden("sort", parameters["sort"]) if parameters.get("sort") else None,
    )


def listing(view: Listing[TopicRow], parameters: Mapping[str, str]) -> Markup:
    if not view.all:
        return empty(
            "There are no topics yet.", "Create the first one below, or write to one: penstock produce greetings"
        )
    found = (
        f"{units.plural(view.found, 'topic')} of {view.all:,}"
        if view.found != view.all
        else units.plural(view.all, "topic")
    )
    if not view.rows:
        return empty(f"No topic has {view.search!r} in its name.", tag("a", "Show all", href="/topics"))
    sorting = Sorting("/topics", parameters, view.sort, view.descending)
    return joined(
        tag("p", found, class_="note"),
        table(COLUMNS, map(_row, view.rows), sorting=sorting, caption="Topics"),
        pager("/topics", parameters, view.page, view.pages),
    )


def _row(row: TopicRow) -> list[Child]:
    trouble = [
        *([f"{row.offline} without a leader"] if row.offline else []),
        *([f"{row.under_replicated} under-replicated"] if row.under_replicated else []),
    ]
    return [
        joined(
            tag("a", row.name, href=address("/topics/", row.name), class_="name"),
            " ",
            tag("span", "internal", class_="badge") if row.internal else None,
        ),
        units.count(row.partitions),
        units.count(row.replication),
        units.rate(row.rate),
        units.count(row.records),
        units.size(row.size),
        tag("span", ", ".join(trouble), class_="bad") if trouble else tag("span", "in sync", class_="good"),
    ]


def create_form(frame: Frame) -> Markup:
    if frame.read_only:
        return NOTHING
    return tag(
        "details",
        tag("summary", "Create a topic"),
        form(
            "/do/topic.create",
            frame.csrf,
            hidden("back", "/topics"),
            labelled(
                "Name",
                tag(
                    "input", name="name", required=True, maxlength=249, pattern="[a-zA-Z0-9._\\-]+", autocomplete="off"
                ),
            ),
            labelled(
                "Partitions", tag("input", name="partitions", type="number", min=1, max=100000, placeholder="default")
            ),
            labelled(
                "Replicas", tag("input", name="replication", type="number", min=1, max=100, placeholder="default")
            ),
            labelled(
                "Settings",
                tag("textarea", "", name="configs", rows=2, placeholder="retention.ms=3600000"),
                "One KEY=VALUE a line.",
            ),
            tag("button", "Create", class_="primary"),
            class_="stack",
        ),
        class_="box",
        id="create",
    )


def topic_tabs(name: str, current: str) -> Markup:
    return tabs(
        [
            ("Partitions", address("/topics/", name), current == "partitions"),
            ("Messages", address("/topics/", name) + "/messages", current == "messages"),
            ("Settings", address("/topics/", name) + "/settings", current == "settings"),
            ("Produce", address("/topics/", name) + "/produce", current == "produce"),
        ]
    )


def state(view: TopicState) -> Markup:
    columns = [
        Column("Partition", number=True),
        Column("Leader", number=True),
        Column("Replicas"),
        Column("In sync"),
        Column("First offset", number=True),
        Column("End", number=True),
        Column("Records", number=True),
        Column("Written", number=True),
        Column("Size by broker", minor=True),
    ]
    rows: list[list[Child]] = []
    for each in view.partitions:
        lacks = len(each.isr) < len(each.replicas)
        isr = ", ".join(map(str, each.isr))
        rows.append(
            [
                tag("a", each.partition, href=address("/topics/", view.name) + f"/messages?partition={each.partition}"),
                tag("span", "none", class_="bad") if each.leader is None else each.leader,
                ", ".join(map(str, each.replicas)),
                tag("span", isr or "none", class_="bad") if lacks else isr,
                units.count(each.start),
                units.count(each.end),
                units.count(each.records),
                units.rate(each.rate),
                ", ".join(f"{broker}: {units.size(size)}" for broker, size in sorted(each.sizes.items()))
                or units.UNKNOWN,
            ]
        )
    return joined(
        facts(
            [
                Fact("Partitions", units.count(len(view.partitions))),
                Fact("Replicas", units.count(view.replication)),
                Fact("Records", units.count(view.records), "Offsets between start and end."),
                Fact("Written", units.rate(view.rate, "records")),
                Fact("Size", units.size(view.size), "All replicas."),
                Fact("Id", tag("code", view.topic_id or units.UNKNOWN)),
            ]
        ),
        table(columns, rows, caption=f"Partitions of {view.name}"),
        _readers(view),
    )


def _readers(view: TopicState) -> Markup:
    if not view.groups:
        return tag("p", "No group has committed an offset in this topic.", class_="note")
    rows: list[list[Child]] = [
        [tag("a", name, href=address("/group", name=name)), units.count(lag)] for name, lag in view.groups
    ]
    return joined(
        tag("h2", "Groups that read it"), table([Column("Group"), Column("Lag", number=True)], rows, caption="Groups")
    )


def danger(view: TopicState, frame: Frame) -> Markup:
    """Growing, emptying, deleting; what cannot be undone needs the name."""
    if frame.read_only or view.internal:
        return NOTHING
    back = hidden("back", address("/topics/", view.name))
    name = hidden("name", view.name)

    def confirmed(action: str, title: str, what: str) -> Markup:
        return form(
            action,
            frame.csrf,
            name,
            back,
            labelled(
                what,
                tag(
                    "input",
                    name="confirm",
                    required=True,
                    autocomplete="off",
                    placeholder=view.name,
                    data_confirm=view.name,
                ),
                "Type the name of the topic.",
            ),
            tag("button", title, class_="danger"),
            class_="stack",
        )

    return tag(
        "details",
        tag("summary", "Grow, empty or delete"),
        form(
            "/do/topic.grow",
            frame.csrf,
            name,
            back,
            labelled(
                "Partitions in all",
                tag("input", name="partitions", type="number", min=len(view.partitions) + 1, max=100000, required=True),
                "Keys may then go to other partitions than before.",
            ),
            tag("button", "Grow"),
            class_="stack",
        ),
        confirmed("/do/topic.empty", "Empty", "Delete all records so far"),
        confirmed("/do/topic.delete", "Delete", "Delete the topic"),
        class_="box",
    )


def settings(name: str, rows: Sequence[SettingRow], frame: Frame) -> Markup:
    items = []
    for row in rows:
        control: Child
        if frame.read_only or not row.is_changeable:
            control = tag("code", row.value or units.UNKNOWN)
        else:
            control = form(
                "/do/topic.set",
                frame.csrf,
                hidden("name", name),
                hidden("setting", row.name),
                hidden("back", address("/topics/", name) + "/settings"),
                tag("input", name="value", value=row.value, aria_label=row.name, autocomplete="off"),
                tag("button", "Save", name="do", value="set"),
                tag("button", "Reset", name="do", value="delete", title="Use the default again")
                if row.is_own
                else None,
                class_="inline",
            )
        items.append(
            [
                joined(
                    tag("code", row.name), tag("p", row.documentation, class_="note") if row.documentation else None
                ),
                control,
                tag("span", row.source, class_="badge own" if row.is_own else "badge"),
            ]
        )
    return table([Column("Setting"), Column("Value"), Column("From")], items, caption=f"Settings of {name}")


def file_form(view: TopicState, frame: Frame) -> Markup:
    """The script looks at the whole file first, and sends it then."""
    if frame.read_only:
        return NOTHING
    return tag(
        "section",
        tag("h2", "Send a file"),
        tag(
            "form",
            labelled("File", tag("input", type="file", name="file", required=True)),
            labelled("It has", select("format", uploads.FORMATS, "jsonl"), "Empty lines are left out."),
            labelled(
                "Key",
                tag("input", name="key", autocomplete="off", placeholder="none"),
                "Of values: a field of the JSON, or a column of the CSV.",
            ),
            tag(
                "div",
                tag("button", "Look at it", class_="primary", data_step="check"),
                tag("button", "Send", type="button", data_step="send", hidden=True),
                tag("button", "Stop", type="button", data_step="stop", hidden=True),
                class_="inline",
            ),
            tag("progress", max=1, value=0, hidden=True, aria_label="read"),
            tag("p", "", class_="note", role="status"),
            tag("ul", class_="errors"),
            tag("div", "", class_="preview"),
            class_="stack box",
            data_upload=address("/topics/", view.name) + "/produce/piece",
            data_csrf=frame.csrf,
        ),
    )


def upload_preview(entries: Sequence[uploads.Entry]) -> Markup:
    rows: list[list[Child]] = []
    for entry in entries[: uploads.PREVIEW_MAX]:
        key, value = decode(entry.key), decode(entry.value)
        names = ", ".join(one_line(name, 40) for name, _ in entry.headers)
        rows.append([entry.line, key.preview, value.preview, names])
    columns = [Column("Line", number=True), Column("Key"), Column("Value"), Column("Headers", minor=True)]
    return table(columns, rows, caption="The first records") if rows else empty("There is no record in it.")


def produce_form(view: TopicState, frame: Frame) -> Markup:
    if frame.read_only:
        return empty("This console is read-only.")
    return form(
        "/do/record.produce",
        frame.csrf,
        hidden("name", view.name),
        hidden("back", address("/topics/", view.name) + "/produce"),
        labelled("Key", tag("input", name="key", autocomplete="off"), "Empty: no key."),
        labelled("Value", tag("textarea", "", name="value", rows=8, spellcheck="false")),
        labelled("Headers", tag("textarea", "", name="headers", rows=2, spellcheck="false"), "One NAME=VALUE a line."),
        labelled(
            "Partition",
            tag(
                "input",
                name="partition",
                type="number",
                min=0,
                max=max(0, len(view.partitions) - 1),
                placeholder="by the key",
            ),
        ),
        check_box("null", "null value (a tombstone: deletes the key from a compacted topic)"),
        tag("button", "Send", class_="primary"),
        class_="stack box",
    )
