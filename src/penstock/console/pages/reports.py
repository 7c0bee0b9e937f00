"""Tables and charts of any topic with JSON values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from penstock.console import units
from penstock.console.markup import Child, Markup, address, joined, tag
from penstock.console.pages.layout import ChartText, Column, chart, empty, labelled, select, table, time
from penstock.console.views.charts import Chart
from penstock.console.views.json_path import MISSING
from penstock.console.views.reports import COLUMNS_MAX, HOW, Reading, Report
from penstock.console.views.text import one_line

_ROWS = 30


def report_form(report: Report, topics: Sequence[str], fields: Sequence[str], numeric: Sequence[str]) -> Markup:
    choices = {"": "choose a topic", **{name: name for name in topics}}
    return tag(
        "form",
        labelled("Topic", select("topic", choices, report.topic, id="search")),
        labelled("Draw", select("value", {"": "how many records", **{each: each for each in numeric}}, report.value)),
        labelled("As", select("how", HOW, report.how)),
        labelled("One line for each", select("by", {"": "(one line)", **{each: each for each in fields}}, report.by)),
        labelled("Time", select("at", {"": "of the record", **{each: each for each in fields}}, report.at)),
        tag("button", "Show", class_="primary"),
        method="get",
        action="/reports",
        class_="bar",
    )


def content(
    report: Report,
    drawn: Chart,
    fields: Sequence[str],
    newest: Sequence[Reading],
    cells: Sequence[Sequence[Any]],
    read: int,
) -> Markup:
    if not newest:
        return empty(
            "The topic has no records with JSON objects.", "Reports are drawn from topics whose values are JSON."
        )
    what = f"{report.how} of {report.value}" if report.value else "number of records"
    title = f"{what} by {report.by}" if report.by else what
    columns = [Column("Time"), *(Column(each) for each in fields[:COLUMNS_MAX])]
    rows: list[list[Child]] = [
        [time(reading.timestamp_ms), *map(_cell, row)] for reading, row in list(zip(newest, cells, strict=True))[:_ROWS]
    ]
    return joined(
        chart(drawn, ChartText(title)),
        tag(
            "p",
            f"From the newest {units.plural(read, 'record')}. ",
            tag("a", "Messages", href=address("/topics/", report.topic) + "/messages"),
            class_="note",
        ),
        table(columns, rows, caption="The newest records"),
    )


def _cell(value: Any) -> str:
    if value is MISSING:
        return ""
    if isinstance(value, str):
        return one_line(value, 120)
    return one_line(json.dumps(value, ensure_ascii=False), 120)
