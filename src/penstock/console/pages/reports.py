"""Tables, charts and maps of any topic with JSON values, and boards of several of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from penstock.console import units
from penstock.console.markup import NOTHING, Child, Markup, address, joined, tag
from penstock.console.pages.layout import ChartText, Column, chart, empty, labelled, select, table, time
from penstock.console.views import geography
from penstock.console.views.boards import Board
from penstock.console.views.charts import draw
from penstock.console.views.json_path import MISSING
from penstock.console.views.reports import (
    COLUMNS_MAX,
    HOW,
    KINDS,
    Bars,
    Reading,
    Report,
    bars,
    lines,
    places,
)
from penstock.console.views.text import one_line

_ROWS = 30
_BAR, _NAMES, _LONGEST = 22, 150, 420


def report_form(report: Report, topics: Sequence[str], fields: Sequence[str], numeric: Sequence[str]) -> Markup:
    choices = {"": "choose a topic", **{name: name for name in topics}}
    none = "(none)" if report.kind == "map" else "how many records"
    where = [
        labelled(title, select(name, {"": "choose a field", **{each: each for each in numeric}}, chosen))
        for title, name, chosen in (("North", "latitude", report.latitude), ("East", "longitude", report.longitude))
    ]
    return tag(
        "form",
        labelled("Topic", select("topic", choices, report.topic, id="search")),
        labelled("As", select("kind", KINDS, report.kind)),
        labelled("Draw", select("value", {"": none, **{each: each for each in numeric}}, report.value)),
        where if report.kind == "map" else labelled("By its", select("how", HOW, report.how)),
        labelled("One for each", select("by", {"": "(one for all)", **{each: each for each in fields}}, report.by)),
        labelled("Time", select("at", {"": "of the record", **{each: each for each in fields}}, report.at)),
        tag("button", "Show", class_="primary"),
        method="get",
        action="/reports",
        class_="bar",
    )


def boards_list(boards: Sequence[Board]) -> Markup:
    if not boards:
        return NOTHING
    rows: list[list[Child]] = [
        [
            tag("a", board.title, href=address("/reports/", board.name), class_="name"),
            ", ".join(panel.title for panel in board.panels),
        ]
        for board in boards
    ]
    return joined(tag("h2", "Boards"), table([Column("Board"), Column("Shows")], rows, caption="Boards"))


def content(
    report: Report,
    picture: Markup,
    fields: Sequence[str],
    newest: Sequence[Reading],
    cells: Sequence[Sequence[Any]],
    read: int,
) -> Markup:
    if not newest:
        return empty(
            "The topic has no records with JSON objects.", "Reports are drawn from topics whose values are JSON."
        )
    columns = [Column("Time"), *(Column(each) for each in fields[:COLUMNS_MAX])]
    rows: list[list[Child]] = [
        [time(reading.timestamp_ms), *map(_cell, row)] for reading, row in list(zip(newest, cells, strict=True))[:_ROWS]
    ]
    return joined(
        picture,
        tag(
            "p",
            f"From the newest {units.plural(read, 'record')}. ",
            tag("a", "Messages", href=address("/topics/", report.topic) + "/messages"),
            class_="note",
        ),
        table(columns, rows, caption="The newest records"),
    )


def title_of(report: Report) -> str:
    if report.kind == "map":
        return f"where each {report.by} was last" if report.by else "the last place"
    what = f"{HOW[report.how]} of {report.value}" if report.value else "number of records"
    return f"{what} by {report.by}" if report.by else what


def picture(report: Report, readings: Sequence[Reading], title: str) -> Markup:
    if report.kind == "map":
        return _map(report, readings, title)
    if report.kind == "bars":
        return _bars(bars(readings, report), title)
    series, begin, end = lines(readings, report)
    if not series:
        return _nothing(title)
    return chart(draw(series, begin, end), ChartText(title))


def board(board: Board, pictures: Sequence[Markup]) -> Markup:
    panels = [
        tag(
            "div",
            drawn,
            tag(
                "a",
                "Open",
                href=address("/reports", **panel.report.parameters()),
                title="Its records and fields",
                class_="more",
            ),
            class_="panel",
        )
        for panel, drawn in zip(board.panels, pictures, strict=True)
    ]
    return tag("div", panels, class_="board")


def no_topic(title: str, topic: str) -> Markup:
    return tag("figure", tag("figcaption", title), empty(f"There is no topic {topic!r}."), class_="chart")


def _nothing(title: str) -> Markup:
    nothing = empty("No records yet.", "The drawing appears with the first records that have these fields.")
    return tag("figure", tag("figcaption", title), nothing, class_="chart")


def _bars(drawn: Bars, title: str) -> Markup:
    if not drawn.bars:
        return _nothing(title)
    rows = []
    for index, bar in enumerate(drawn.bars):
        y = index * _BAR
        name = one_line(bar.name, 20)
        rows += [
            tag("text", name, tag("title", one_line(bar.name, 60)), x=_NAMES - 8, y=y + 15, class_="name"),
            tag("rect", x=_NAMES, y=y + 4, width=f"{max(1.0, bar.share * _LONGEST):.1f}", height=_BAR - 8, rx=2),
            tag("text", units.short(bar.value), x=f"{_NAMES + bar.share * _LONGEST + 6:.1f}", y=y + 15, class_="value"),
        ]
    return tag(
        "figure",
        tag("figcaption", title),
        tag(
            "svg",
            rows,
            viewBox=f"0 0 {geography.WIDTH} {len(drawn.bars) * _BAR}",
            role="img",
            aria_label=f"{title}: " + ", ".join(f"{bar.name} {units.short(bar.value)}" for bar in drawn.bars),
        ),
        tag("p", f"and {drawn.left_out} more", class_="note") if drawn.left_out else None,
        class_="chart bars",
    )


def _map(report: Report, readings: Sequence[Reading], title: str) -> Markup:
    if not (report.latitude and report.longitude):
        hint = empty("Choose the fields with latitude and longitude.", "In degrees, north and east are positive.")
        return tag("figure", tag("figcaption", title), hint, class_="chart")
    drawn = geography.draw_map(places(readings, report))
    if drawn is None:
        return _nothing(title)
    unit = report.value.rpartition(".")[2]
    count = units.plural(len(drawn.things), report.by or "place")
    return tag(
        "figure",
        tag("figcaption", title),
        tag(
            "svg",
            _grid(drawn),
            [
                tag(
                    "g",
                    tag("circle", cx=f"{town.x:.1f}", cy=f"{town.y:.1f}", r=1.6),
                    tag("text", town.name, x=f"{town.x + 5:.1f}", y=f"{town.y + 3.5:.1f}"),
                    class_="town",
                )
                for town in drawn.towns
            ],
            [tag("path", d=thing.trail, class_="trail") for thing in drawn.things if thing.trail],
            [_thing(thing, unit) for thing in drawn.things],
            viewBox=f"0 0 {geography.WIDTH} {drawn.height:.0f}",
            role="img",
            aria_label=f"{title}: a map with {count}",
        ),
        tag("p", count, f", and {drawn.left_out} more" if drawn.left_out else None, class_="note"),
        class_="chart map",
    )


def _grid(drawn: geography.Map) -> list[Child]:
    bottom, right = f"{drawn.height:.1f}", geography.WIDTH
    shapes: list[Child] = []
    for each in drawn.across:
        x = f"{each.position:.1f}"
        shapes += [
            tag("line", x1=x, x2=x, y1=0, y2=bottom, class_="grid"),
            tag("text", _degrees(each.degrees, "E", "W"), x=x, y=f"{drawn.height - 5:.1f}", class_="across"),
        ]
    for each in drawn.up:
        y = f"{each.position:.1f}"
        shapes += [
            tag("line", x1=0, x2=right, y1=y, y2=y, class_="grid"),
            tag("text", _degrees(each.degrees, "N", "S"), x=4, y=f"{each.position - 4:.1f}"),
        ]
    return shapes


def _thing(thing: geography.Thing, unit: str) -> Markup:
    place = thing.place
    said = f"{thing.name} " if thing.name else ""
    value = "" if place.value is None else f", {unit} {units.short(place.value)}"
    where = f"{said}{place.latitude:.4f}, {place.longitude:.4f}{value}, {units.utc(place.at_ms)}"
    still = place.value == 0
    return tag(
        "g",
        tag("title", one_line(where, 200)),
        tag("circle", cx=f"{thing.x:.1f}", cy=f"{thing.y:.1f}", r=f"{3.5 + 3 * thing.share:.1f}"),
        tag("text", one_line(thing.name, 24), x=f"{thing.x + 8:.1f}", y=f"{thing.y + 3.5:.1f}")
        if thing.is_named
        else None,
        class_="thing still" if still else "thing",
    )


def _degrees(value: float, positive: str, negative: str) -> str:
    return f"{abs(value):g}°{positive if value > 0 else negative if value < 0 else ''}"


def _cell(value: Any) -> str:
    if value is MISSING:
        return ""
    if isinstance(value, str):
        return one_line(value, 120)
    return one_line(json.dumps(value, ensure_ascii=False), 120)
