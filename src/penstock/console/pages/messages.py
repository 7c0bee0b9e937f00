"""The page of messages: the form, rows as they are found, one record."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from penstock.console import units
from penstock.console.markup import Child, Markup, address, joined, tag
from penstock.console.pages.layout import Fact, check_box, empty, facts, labelled, select, time
from penstock.console.views.decoding import Decoded, SchemaDecoder, decode, decode_record
from penstock.console.views.query import LIMITS, Query
from penstock.console.views.records import Done, Progress, Row
from penstock.console.views.text import one_line

_LISTED_PARTITIONS_MAX = 200
EXPORTS = {"csv": "CSV", "jsonl": "JSON lines", "parquet": "Parquet"}


def path_of(topic: str) -> str:
    return address("/topics/", topic) + "/messages"


def query_form(topic: str, partitions: int, query: Query) -> Markup:
    return tag(
        "form",
        _where_to_begin(query),
        labelled("Partition", _partition_field(partitions, query)),
        _what_to_find(query),
        labelled("Show", select("limit", [str(each) for each in LIMITS], str(query.limit))),
        check_box("everywhere", "look for the key in all partitions", checked=query.everywhere),
        check_box("follow", "live: new records as they come", checked=query.follow),
        tag("button", "Search", class_="primary"),
        tag("a", "Clear", href=path_of(topic), class_="button"),
        method="get",
        action=path_of(topic),
        class_="bar wrap",
    )


def _where_to_begin(query: Query) -> Markup:
    starts = {
        "end": "newest first",
        "beginning": "from the beginning",
        "offset": "from an offset",
        "time": "from a time",
    }
    given = query.parameters()
    offset, since, until = (given.get(name, "") for name in ("offset", "since", "until"))
    return joined(
        labelled("Order", select("from", starts, query.start)),
        labelled("Offset", tag("input", name="offset", type="number", min=0, value=offset, data_for="offset")),
        labelled("Since", tag("input", name="since", value=since, placeholder="2026-05-01T12:00:00Z", data_for="time")),
        labelled("Until", tag("input", name="until", value=until, placeholder="2026-05-01T13:00:00Z")),
    )


def _partition_field(partitions: int, query: Query) -> Markup:
    chosen = "" if query.partition is None else str(query.partition)
    if partitions > _LISTED_PARTITIONS_MAX:
        return tag("input", name="partition", type="number", min=0, max=partitions - 1, value=chosen)
    return select("partition", {"": "all", **{str(each): str(each) for each in range(partitions)}}, chosen)


def _what_to_find(query: Query) -> Markup:
    text = tag("input", type="search", name="text", value=query.text, id="search", placeholder="in key or value  ( / )")
    where = tag("input", name="where", value=query.where, placeholder='order.total > 10, status = "open"')
    return joined(
        labelled(
            "Key", tag("input", name="key", value=query.key, placeholder="the whole key"), "Asks one or two partitions."
        ),
        labelled("Text", text),
        labelled("Where", where, "A field of the JSON."),
        labelled("Header", tag("input", name="header", value=query.header, placeholder="name or name=value")),
    )


def results(topic: str, query: Query) -> Markup:
    """An empty table that the script fills from the stream."""
    heads = ("Partition", "Offset", "Time", "Key", "Value")
    return joined(
        [tag("p", problem, class_="flash error") for problem in query.problems],
        tag(
            "div",
            tag("progress", id="progress", max=1, value=0, aria_label="searched"),
            tag("span", "", id="status", role="status"),
            tag("button", "Stop", type="button", id="cancel"),
            tag(
                "span",
                "Export: ",
                [
                    joined(
                        tag("a", name, href=address(path_of(topic) + "/export", format=kind, **query.parameters())), " "
                    )
                    for kind, name in EXPORTS.items()
                ],
                class_="exports",
            ),
            class_="bar status",
        ),
        tag(
            "div",
            tag(
                "table",
                tag("caption", "Records", class_="sr"),
                tag(
                    "thead",
                    tag(
                        "tr",
                        [
                            tag("th", name, scope="col", class_="number" if name in heads[:2] else None)
                            for name in heads
                        ],
                    ),
                ),
                tag("tbody", id="rows"),
            ),
            class_="scroll messages",
            tabindex=0,
            role="region",
            aria_label="Records",
        ),
        tag("div", "", id="nothing", data_stream=address(path_of(topic) + "/stream", **query.parameters())),
        tag("dialog", "", id="record", aria_label="Record"),
    )


def rows(found: Sequence[Row], schema: SchemaDecoder | None) -> Markup:
    return joined([_row(row, schema) for row in found])


def _row(row: Row, schema: SchemaDecoder | None) -> Markup:
    key, value = decode_record(row.topic, row.key, row.value, schema)
    where = f"{path_of(row.topic)}/{row.partition}/{row.offset}"
    return tag(
        "tr",
        tag("td", row.partition, class_="number"),
        tag("td", tag("a", row.offset, href=where, class_="record"), class_="number"),
        tag("td", time(row.timestamp_ms)),
        tag("td", _preview(key), class_="key"),
        tag("td", _preview(value), class_="value"),
    )


def _preview(decoded: Decoded) -> Markup:
    if decoded.kind in ("null", "empty"):
        return tag("span", decoded.kind, class_="quiet")
    return joined(
        tag("span", decoded.preview),
        tag("small", f" {decoded.kind} {units.size(decoded.size)}", class_="quiet")
        if decoded.size > 1000 or decoded.kind == "hex"
        else None,
    )


def progress_text(progress: Progress, follow: bool) -> str:
    speed = progress.searched / progress.seconds if progress.seconds > 0 else 0
    if follow:
        return f"following: {units.plural(progress.matched, 'record')} since {units.duration(progress.seconds)}"
    return (
        f"{progress.searched:,} of {progress.total:,} searched ({units.rate(speed)}), "
        f"{units.plural(progress.matched, 'record')} found"
    )


def done_text(done: Done, query: Query, limit: int) -> str:
    where = (
        f"partition {done.partitions[0]}"
        if len(done.partitions) == 1
        else units.plural(len(done.partitions), "partition")
    )
    if query.key and not query.everywhere and query.partition is None:
        where += ", where clients put this key,"
    speed = units.rate(done.searched / done.seconds) if done.seconds > 0.05 else ""
    took = f" in {units.duration(done.seconds)}{' (' + speed + ')' if speed and query.is_filtered else ''}"
    if not query.is_filtered:
        every = "all" if done.complete else f"{done.matched:,} of {done.total:,}"
        return f"{every} {'records' if done.total != 1 else 'record'} of {where}"
    if done.complete:
        return f"Complete: all {done.total:,} records of {where} searched{took}; {done.matched:,} found."
    if done.matched >= limit:
        which = "newest" if query.newest_first else "first"
        so_far = f"{done.searched:,} of {done.total:,} searched{took}"
        return f"Not complete: the {which} {done.matched:,} that match; {so_far}. Show more to go on."
    return f"Stopped after {done.searched:,} of {done.total:,}{took}; {done.matched:,} found."


def nothing(query: Query, total: int) -> Markup:
    if query.is_filtered:
        hint = "Another program may have put the key into another partition: look for it in all of them."
        return empty("No record matches.", hint if query.key and not query.everywhere else "Every record was searched.")
    if not total:
        return empty("The topic has no records.", "Send one on the page Produce, or follow it live.")
    return empty("There are no records from there on.")


# -- One record.


def record(row: Row, schema: SchemaDecoder | None, registry_note: str = "") -> Markup:
    key, value = decode_record(row.topic, row.key, row.value, schema, pretty=True)
    raw = f"{path_of(row.topic)}/{row.partition}/{row.offset}/raw"
    return joined(
        facts(
            [
                Fact("Topic", tag("a", row.topic, href=address("/topics/", row.topic))),
                Fact("Partition", row.partition),
                Fact("Offset", row.offset),
                Fact("Time", time(row.timestamp_ms)),
                Fact("Key", f"{key.kind}, {units.size(key.size)}"),
                Fact("Value", f"{value.kind}, {units.size(value.size)}"),
            ]
        ),
        tag("h2", "Key"),
        _content(key, ""),
        tag("h2", "Value"),
        _content(value, raw),
        _headers(row),
        tag(
            "p",
            tag("button", "Copy as JSON", type="button", data_copy=as_json(row, schema)),
            " ",
            tag("button", "Copy as a command", type="button", data_copy=as_command(row)),
            " ",
            tag("a", "Download the value", href=raw, class_="button", download=True) if row.value is not None else None,
        ),
    )


def _content(decoded: Decoded, raw: str) -> Markup:
    if decoded.kind in ("null", "empty"):
        return tag(
            "p", tag("span", decoded.kind, class_="quiet"), " (a tombstone)" if raw and decoded.kind == "null" else None
        )
    return joined(
        tag("p", decoded.note, class_="note") if decoded.note else None,
        tag("pre", decoded.text, tabindex=0),
        tag("p", f"Cut: this is the beginning of {units.size(decoded.size)}.", class_="note")
        if decoded.is_cut
        else None,
    )


def _headers(row: Row) -> Markup | None:
    if not row.headers:
        return None
    items: list[Child] = [
        tag("tr", tag("th", one_line(name, 200), scope="row"), tag("td", tag("pre", decode(value).text[:4096])))
        for name, value in row.headers
    ]
    return joined(tag("h2", "Headers"), tag("table", tag("tbody", items)))


def as_json(row: Row, schema: SchemaDecoder | None) -> str:
    """As `penstock consume --json` prints it, as far as bytes are text."""
    return json.dumps(export_entry(row, schema), ensure_ascii=False)


def export_entry(row: Row, schema: SchemaDecoder | None) -> dict[str, object]:
    return {
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "timestamp": int(row.timestamp_ms),
        "key": _plain(row.key, schema),
        "value": _plain(row.value, schema),
        "headers": [[name, _plain(value, None)] for name, value in row.headers],
    }


def _plain(data: bytes | None, schema: SchemaDecoder | None) -> object:
    if data is None:
        return None
    if schema is not None and data[:1] == b"\0":
        found = schema(data)
        if found is not None:
            return json.dumps(found[1], ensure_ascii=False, default=str)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def as_command(row: Row) -> str:
    return shlex.join(
        [
            "penstock",
            "consume",
            row.topic,
            "--partition",
            str(row.partition),
            "--offset",
            str(row.offset),
            "-n",
            "1",
            "--json",
        ]
    )
