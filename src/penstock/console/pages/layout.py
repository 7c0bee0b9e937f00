"""The frame of every page: navigation, messages, parts; and the pieces that pages share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock import __version__
from penstock.console import units
from penstock.console.markup import NOTHING, Child, Markup, address, joined, tag
from penstock.console.views import charts
from penstock.console.views.clusters import cluster_path

ALL_CLUSTERS = "/c/"
SECTIONS = (
    ("overview", "Overview", "/", "o"),
    ("topics", "Topics", "/topics", "t"),
    ("groups", "Groups", "/groups", "g"),
    ("pipelines", "Pipelines", "/pipelines", "p"),
    ("reports", "Reports", "/reports", "r"),
    ("transactions", "Transactions", "/transactions", "x"),
    ("security", "Security", "/security", "s"),
    ("schemas", "Schemas", "/schemas", "c"),
)


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a page. A live part is sent again when the sampler has new numbers."""

    identity: str
    content: Markup
    live: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    section: str
    parts: Sequence[Part]
    crumbs: Sequence[tuple[str, str]] = ()
    """Names and addresses of the pages above."""
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What surrounds a page, and every form on it."""

    csrf: str
    user: str | None = None
    cluster: str = ""
    """Its id."""
    here: str = ""
    """The name of this cluster, if the console has several."""
    others: tuple[str, ...] = ()
    """The names of all clusters of this console, this one too."""
    read_only: bool = False
    hidden: frozenset[str] = frozenset()
    """Sections that this console does not have."""
    live: str = ""
    """The address that streams the live parts of this page."""
    flash: tuple[str, str] | None = None
    """A message about what was just done: `ok` or `error`, and the text."""
    problem: str | None = None


def document(page: Page, frame: Frame) -> Markup:
    navigation = [
        tag(
            "a",
            name,
            href=where,
            data_key=key,
            aria_current="page" if identity == page.section else None,
            title=f"{name} (g {key})",
        )
        for identity, name, where, key in SECTIONS
        if identity not in frame.hidden
    ]
    crumbs = [joined(tag("a", name, href=where), tag("span", " / ", aria_hidden="true")) for name, where in page.crumbs]
    body = [
        tag("a", "Skip to the content", href="#main", class_="skip"),
        tag(
            "header",
            tag("a", tag("strong", "Penstock"), href="/", class_="brand"),
            tag("nav", navigation, aria_label="Sections"),
            tag(
                "div",
                _switch(frame),
                tag("span", "read-only", class_="badge") if frame.read_only else None,
                tag("span", frame.cluster, class_="cluster", title="cluster id") if frame.cluster else None,
                _signed_in(frame),
                tag("button", "◐", type="button", id="theme", title="Light or dark", aria_label="Light or dark"),
                tag("button", "?", type="button", id="keys", title="Keyboard", aria_label="Keyboard shortcuts"),
                class_="tools",
            ),
        ),
        tag("div", _trouble(frame.problem), id="trouble", aria_live="polite"),
        tag("p", frame.flash[1], class_=f"flash {frame.flash[0]}", role="status") if frame.flash else None,
        tag(
            "main",
            tag("h1", crumbs, page.title),
            [tag("div", part.content, id=part.identity, data_live=part.live) for part in page.parts],
            id="main",
        ),
        tag("footer", f"Penstock {__version__}", tag("span", "", id="age")),
    ]
    return joined(
        Markup("<!doctype html>"),
        tag(
            "html",
            tag(
                "head",
                tag("meta", charset="utf-8"),
                tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
                tag("meta", name="color-scheme", content="light dark"),
                tag("title", f"{page.title} · Penstock"),
                tag("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
                tag("link", rel="stylesheet", href=f"/static/console.css?{__version__}"),
                tag("script", src=f"/static/console.js?{__version__}", type="module"),
            ),
            tag("body", body, data_live=frame.live or None),
            lang="en",
        ),
    )


def _switch(frame: Frame) -> Markup | None:
    """To another cluster; a click on the name opens the list."""
    if not frame.here:
        return None
    links = [
        tag("a", name, href=f"{cluster_path(name)}/", aria_current="true" if name == frame.here else None)
        for name in frame.others
    ]
    return tag(
        "details",
        tag("summary", frame.here, title="Change the cluster"),
        tag("nav", links, tag("a", "All clusters", href=ALL_CLUSTERS, class_="all"), aria_label="Clusters"),
        class_="switch",
    )


def _trouble(problem: str | None) -> Markup:
    return NOTHING if problem is None else trouble(problem)


def trouble(problem: str) -> Markup:
    return tag(
        "p", tag("strong", "The cluster does not answer. "), problem, " These numbers are old.", class_="flash error"
    )


def _signed_in(frame: Frame) -> Markup | None:
    if frame.user is None:
        return None
    return form(
        "/sign-out", frame.csrf, tag("span", frame.user, class_="user"), tag("button", "Sign out"), class_="inline"
    )


# -- Pieces.


def form(action: str, csrf: str, *children: Child, **attributes: str | None) -> Markup:
    token = tag("input", type="hidden", name="csrf", value=csrf)
    return tag("form", token, *children, method="post", action=action, **attributes)


def hidden(name: str, value: str) -> Markup:
    return tag("input", type="hidden", name=name, value=value)


def labelled(label: str, control: Markup, hint: str = "") -> Markup:
    return tag("label", tag("span", label), control, tag("small", hint) if hint else None)


def check_box(name: str, text: str, *, checked: bool = False) -> Markup:
    return tag(
        "label",
        tag("input", type="checkbox", name=name, value="1", checked=checked),
        f" {text}",
        class_="check",
    )


def search_form(action: str, search: str, *more: Child) -> Markup:
    """A search for words in names; `more` controls stand before the button."""
    box = tag(
        "input",
        type="search",
        name="q",
        value=search,
        placeholder="part of a name  ( / )",
        id="search",
        autocomplete="off",
    )
    return tag(
        "form", labelled("Search", box), *more, tag("button", "Search"), method="get", action=action, class_="bar"
    )


def select(name: str, choices: Mapping[str, str] | Iterable[str], chosen: str, **attributes: str | None) -> Markup:
    pairs = choices.items() if isinstance(choices, Mapping) else [(each, each) for each in choices]
    return tag(
        "select",
        [tag("option", text, value=value, selected=value == chosen) for value, text in pairs],
        name=name,
        **attributes,
    )


def time(at_ms: float | None) -> Markup:
    """UTC here; the script turns it into local time, with UTC in the tooltip."""
    if at_ms is None or at_ms < 0:
        return tag("span", units.UNKNOWN)
    text = units.utc(at_ms)
    return tag("time", text, datetime=units.iso(at_ms), title=text)


def empty(what: str, todo: Child = None) -> Markup:
    return tag("div", tag("p", tag("strong", what)), tag("p", todo) if todo is not None else None, class_="empty")


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    key: str = ""
    """The name to sort by; empty if one cannot."""
    number: bool = False
    hint: str = ""
    minor: bool = False
    """Left out on a narrow screen."""


@dataclass(frozen=True, slots=True)
class Sorting:
    path: str
    parameters: Mapping[str, str]
    column: str
    descending: bool


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[Child]], *, sorting: Sorting | None = None, caption: str = ""
) -> Markup:
    heads = [
        tag(
            "th",
            _head(column, sorting),
            class_=_class(column),
            title=column.hint or None,
            scope="col",
            aria_sort=_sorted(column, sorting),
        )
        for column in columns
    ]
    body = [
        tag(
            "tr",
            [
                tag("td", cell, class_=_class(column), data_label=column.title)
                for column, cell in zip(columns, row, strict=True)
            ],
        )
        for row in rows
    ]
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption, class_="sr") if caption else None,
            tag("thead", tag("tr", heads)),
            tag("tbody", body),
        ),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=caption or "table",
    )


def _class(column: Column) -> str | None:
    return " ".join(filter(None, ("number" if column.number else "", "minor" if column.minor else ""))) or None


def _sorted(column: Column, sorting: Sorting | None) -> str | None:
    if sorting is None or not column.key or sorting.column != column.key:
        return None
    return "descending" if sorting.descending else "ascending"


def _head(column: Column, sorting: Sorting | None) -> Child:
    if sorting is None or not column.key:
        return column.title
    is_this = sorting.column == column.key
    # Numbers are sorted from the largest first.
    descending = not sorting.descending if is_this else column.number
    given = {name: value for name, value in sorting.parameters.items() if name not in ("sort", "page")}
    where = address(sorting.path, **{**given, "sort": f"{'-' if descending else ''}{column.key}"})
    return tag("a", column.title, (" ▾" if sorting.descending else " ▴") if is_this else None, href=where)


def pager(path: str, parameters: Mapping[str, str], page: int, pages: int) -> Markup:
    if pages <= 1:
        return NOTHING

    def to(number: int, text: str, rel: str) -> Markup:
        if not 1 <= number <= pages:
            return tag("span", text, class_="off")
        return tag("a", text, href=address(path, **{**parameters, "page": str(number)}), rel=rel)

    return tag(
        "nav",
        to(page - 1, "← Previous", "prev"),
        f" page {page} of {pages} ",
        to(page + 1, "Next →", "next"),
        class_="pager",
        aria_label="Pages",
    )


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    value: Child
    hint: str = ""
    state: str = ""
    """`bad` or `good`."""


def facts(given: Iterable[Fact]) -> Markup:
    return tag(
        "dl",
        [
            tag("div", tag("dt", each.name), tag("dd", each.value, class_=each.state or None), title=each.hint or None)
            for each in given
        ],
        class_="facts",
    )


def tabs(given: Iterable[tuple[str, str, bool]]) -> Markup:
    return tag(
        "nav",
        [tag("a", name, href=where, aria_current="page" if current else None) for name, where, current in given],
        class_="tabs",
        aria_label="Views",
    )


@dataclass(frozen=True, slots=True)
class ChartText:
    title: str
    unit: str = ""
    """Of the values: empty, `B/s`, `s`, `/s`."""
    lines: Mapping[str, str] = field(default_factory=dict)


def chart(drawn: charts.Chart, text: ChartText) -> Markup:
    """An SVG drawing with a legend, and its last values as text for those who do not see it."""
    if drawn.is_empty:
        return tag(
            "figure",
            tag("figcaption", text.title),
            empty("Nothing has been sampled yet.", "Numbers appear here after a minute."),
            class_="chart",
        )
    shapes: list[Child] = []
    for tick in drawn.up:
        y = f"{tick.position:.1f}"
        shapes += [
            tag("line", x1=charts.LEFT, x2=charts.WIDTH - charts.RIGHT, y1=y, y2=y, class_="grid"),
            tag("text", value_text(tick.value, text.unit), x=charts.LEFT - 6, y=y, class_="up"),
        ]
    for tick in drawn.across:
        shapes.append(
            tag(
                "text",
                units.utc(tick.value)[11 : 19 if drawn.has_seconds else 16],
                x=f"{tick.position:.1f}",
                y=charts.HEIGHT - 6,
                class_="across",
                data_at=int(tick.value),
                data_seconds=drawn.has_seconds,
            )
        )
    for index, line in enumerate(drawn.lines):
        shapes.append(tag("path", d=line.path, class_=f"line s{index}"))
    summary = ", ".join(f"{line.name} {value_text(line.last, text.unit)}" for line in drawn.lines)
    legend = [
        tag("li", tag("i", class_=f"s{index}"), line.name, " ", tag("b", value_text(line.last, text.unit)))
        for index, line in enumerate(drawn.lines)
    ]
    return tag(
        "figure",
        tag("figcaption", text.title),
        tag(
            "svg",
            shapes,
            viewBox=f"0 0 {charts.WIDTH} {charts.HEIGHT}",
            role="img",
            aria_label=f"{text.title}: now {summary}",
        ),
        tag("ul", legend, tag("li", f"and {drawn.left_out} more") if drawn.left_out else None, class_="legend"),
        class_="chart",
    )


def value_text(value: float | None, unit: str) -> str:
    if unit == "B/s":
        return units.size_rate(value)
    if unit == "s":
        return units.duration(value)
    return units.UNKNOWN if value is None else f"{units.short(value)}{unit}"
