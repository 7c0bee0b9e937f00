"""Boards: several reports on one page, as a file says.

    title = "Fleet and shop"

    [[panel]]
    title = "Where the trucks are"
    topic = "truck-locations"
    kind = "map"
    by = "truck"
    value = "speed"

A panel has the fields of a report (`views.reports`), with the names they have in its address.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

from penstock.console.views.reports import HOW, KINDS, RECORDS_MAX, Report, parse_report

PANELS_MAX = 24
_TEXTS = ("title", "topic", "kind", "value", "how", "by", "at", "latitude", "longitude")


class BadBoard(ValueError):
    """A file that is not a board; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    report: Report


@dataclass(frozen=True, slots=True)
class Board:
    name: str
    """Its address is /reports/NAME."""
    title: str
    panels: tuple[Panel, ...]


def parse_board(name: str, text: str) -> Board:
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadBoard(f"board {name}: {error}") from error
    unknown = given.keys() - {"title", "panel"}
    if unknown:
        raise BadBoard(f"board {name}: unknown field {sorted(unknown)[0]!r}; a board has a title and [[panel]]s")
    panels = given.get("panel")
    if not isinstance(panels, list) or not panels or not all(isinstance(each, dict) for each in panels):
        raise BadBoard(f"board {name}: it needs at least one [[panel]]")
    if len(panels) > PANELS_MAX:
        raise BadBoard(f"board {name}: it has {len(panels)} panels; {PANELS_MAX} are the most")
    return Board(
        name,
        str(given.get("title", name)),
        tuple(_panel(f"board {name}, panel {number}", each) for number, each in enumerate(panels, 1)),
    )


def _panel(where: str, given: dict[str, object]) -> Panel:
    unknown = given.keys() - {*_TEXTS, "records"}
    if unknown:
        raise BadBoard(f"{where}: unknown field {sorted(unknown)[0]!r}; known: {', '.join((*_TEXTS, 'records'))}")
    texts: dict[str, str] = {}
    for name in _TEXTS:
        value = given.get(name, "")
        if not isinstance(value, str):
            raise BadBoard(f"{where}: {name} must be a text")
        texts[name] = value
    if not texts["topic"]:
        raise BadBoard(f"{where}: topic is missing")
    for name, known in (("kind", KINDS), ("how", HOW)):
        if texts[name] and texts[name] not in known:
            raise BadBoard(f"{where}: {name} is one of {', '.join(known)}")
    records = given.get("records", 0)
    if not isinstance(records, int) or isinstance(records, bool) or not 0 <= records <= RECORDS_MAX:
        raise BadBoard(f"{where}: records must be a number up to {RECORDS_MAX}")
    report = parse_report({**texts, **({"records": str(records)} if records else {})})
    if report.problems:
        raise BadBoard(f"{where}: {report.problems[0]}")
    return Panel(texts["title"] or texts["topic"], report)
