"""Pipelines and their dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.console import units
from penstock.console.markup import NOTHING, Child, Markup, address, joined, tag
from penstock.console.pages.layout import (
    Column,
    Fact,
    Frame,
    check_box,
    empty,
    facts,
    form,
    hidden,
    labelled,
    table,
    time,
)
from penstock.console.views.decoding import decode
from penstock.console.views.graph import HEIGHT, WIDTH, Drawing, Edge
from penstock.console.views.text import one_line
from penstock.pipelines.operate.dead_letters import Cause, CauseSummary, Letter
from penstock.pipelines.operate.reports import PipelineReport, QueryReport
from penstock.spark.progress.query_progress import QueryProgress

DEAD_LETTERS = ".dead-letters"
_POINTS = "earliest, offset:1000, a time such as 2026-05-01T12:00:00Z"


def listing(reports: Mapping[str, PipelineReport], queries: Sequence[QueryProgress]) -> Markup:
    if not reports and not queries:
        return empty("No pipeline has reported to this cluster.", "Run one: penstock pipeline run orders.yaml")
    columns = [
        Column("Pipeline"),
        Column("State"),
        Column("Rows in", number=True),
        Column("Lag", number=True),
        Column("Latency", number=True, hint="Of the last batch, the slowest query."),
        Column("Dead letters", number=True),
        Column("Last error", minor=True),
    ]
    rows: list[list[Child]] = []
    for name, report in reports.items():
        latencies = [each.latency_ms for each in report.queries if each.latency_ms is not None]
        rows.append(
            [
                tag("a", name, href=address("/pipeline", name=name), class_="name"),
                state(report.state),
                units.rate(sum(each.input_rows_per_second for each in report.queries)),
                units.count(report.lag),
                units.duration(max(latencies) / 1000) if latencies else units.UNKNOWN,
                units.count(sum(each.dead_letters for each in report.queries)),
                one_line(report.last_error or "", 160),
            ]
        )
    return joined(table(columns, rows, caption="Pipelines") if rows else None, _queries(queries))


def state(name: str) -> Markup:
    kind = "good" if name in ("running", "idle") else "bad" if name in ("failed", "lost") else "warn"
    return tag("span", name, class_="quiet" if name in ("stopped", "terminated", "finished") else kind)


def _queries(queries: Sequence[QueryProgress]) -> Markup | None:
    if not queries:
        return None
    columns = [
        Column("Query"),
        Column("State"),
        Column("Reads"),
        Column("Rows in", number=True),
        Column("Lag", number=True),
    ]
    rows: list[list[Child]] = [
        [
            query.name or query.query_id,
            state(query.state),
            ", ".join(source.description for source in query.sources),
            units.rate(sum(source.input_rows_per_second for source in query.sources)),
            units.count(query.lag),
        ]
        for query in queries
    ]
    return joined(tag("h2", "Spark queries"), table(columns, rows, caption="Spark queries"))


def one(report: PipelineReport) -> Markup:
    letters = sum(each.dead_letters for each in report.queries)
    return joined(
        facts(
            [
                Fact("State", state(report.state)),
                Fact("Started", time(report.started_ms)),
                Fact("Driver", report.driver or units.UNKNOWN),
                Fact("File", report.file or units.UNKNOWN),
                Fact("Environment", report.environment or units.UNKNOWN),
                Fact("Lag", units.count(report.lag)),
                Fact("Dead letters", units.count(letters), "Since it started.", "bad" if letters else ""),
                Fact("Heard of", time(report.heartbeat_ms)),
            ]
        ),
        tag("p", tag("strong", "Last error: "), report.last_error, class_="flash error") if report.last_error else None,
        tag("h2", "Queries"),
        table(
            [
                Column("Query"),
                Column("State"),
                Column("In", number=True),
                Column("Processes", number=True, minor=True),
                Column("Rows out"),
                Column("Batch", number=True, minor=True),
                Column("Latency", number=True),
                Column("Lag", number=True),
                Column("State size", number=True, minor=True),
                Column("Dead letters"),
                Column("Group", minor=True),
            ],
            map(_query, report.queries),
            caption="Queries",
        ),
    )


def _query(query: QueryReport) -> list[Child]:
    reasons = ", ".join(f"{reason} {number:,}" for reason, number in query.dead_letters_by_reason.items())
    groups = [joined(tag("a", name, href=address("/group", name=name)), " ") for name in query.groups]
    return [
        query.name,
        joined(state(query.state), f" ({units.plural(query.failures, 'failure')})" if query.failures else None),
        units.rate(query.input_rows_per_second),
        units.rate(query.processed_rows_per_second),
        ", ".join(f"{sink} {number:,}" for sink, number in query.rows_out.items()) or units.UNKNOWN,
        units.duration(None if query.batch_ms is None else query.batch_ms / 1000),
        units.duration(None if query.latency_ms is None else query.latency_ms / 1000),
        units.count(query.lag),
        f"{units.size(query.state_bytes)}, {units.plural(query.state_rows, 'row')}"
        if query.state_rows
        else units.UNKNOWN,
        reasons or units.count(query.dead_letters),
        groups,
    ]


def graph(drawing: Drawing, rates: Mapping[Edge, float]) -> Markup:
    """Rates are written on the edges: into queries, and out to the sinks."""
    shapes: list[Child] = [
        tag("path", d=path, class_="flows" if rates.get(edge) else None) for edge, path in drawing.edges
    ]
    for placed in drawing.nodes:
        node = placed.node
        shapes += [
            tag("rect", x=placed.x, y=placed.y, width=WIDTH, height=HEIGHT, rx=6, class_=node.shape),
            tag("text", one_line(node.title, 24), x=placed.x + 10, y=placed.y + 19),
            tag("text", one_line(node.kind, 34), x=placed.x + 10, y=placed.y + 36, class_="kind"),
        ]
    shapes += [
        tag("text", f"{units.short(rates[edge])}/s", x=x, y=y, class_="rate")
        for (edge, _), (x, y) in zip(drawing.edges, drawing.middles, strict=True)
        if edge in rates
    ]
    flows = ", ".join(f"{edge.source} to {edge.target} {units.short(rate)}/s" for edge, rate in rates.items())
    return tag(
        "figure",
        tag("figcaption", "What it reads, computes and writes, in rows a second"),
        tag(
            "svg",
            shapes,
            viewBox=f"-2 -8 {drawing.width + 4} {drawing.height + 10}",
            width=drawing.width + 4,
            role="img",
            aria_label=f"graph: {flows}" if flows else "graph",
        ),
        class_="chart graph",
    )


def backfill_form(report: PipelineReport, command: str, states: Mapping[str, str], frame: Frame) -> Markup:
    """`command`: how it is run by hand; `states`: the backfills that were started here."""
    started = [tag("li", name, ": ", one_line(state, 300)) for name, state in states.items()]
    fields = [
        labelled(
            "Name", tag("input", name="as", required=True, placeholder=f"{report.name}-again", autocomplete="off")
        ),
        labelled("From", tag("input", name="from", required=True, value="earliest"), _POINTS),
        labelled("To", tag("input", name="to", placeholder="until it is stopped"), "The same; exclusive."),
        labelled(
            "Suffix of outputs",
            tag("input", name="suffix", placeholder="the same outputs", autocomplete="off"),
            "Topics and tables beside the original ones.",
        ),
    ]
    given = form(
        "/do/pipeline.backfill",
        frame.csrf,
        hidden("name", report.name),
        hidden("back", address("/pipeline", name=report.name)),
        fields,
        tag("button", "Start the backfill", class_="primary"),
        class_="stack",
    )
    return tag(
        "details",
        tag("summary", "Backfill"),
        tag("p", "Runs the same pipeline under another name, beside the original, over records from before."),
        NOTHING if frame.read_only else given,
        tag("p", "By hand: ", tag("code", command), class_="note"),
        tag("ul", started) if started else None,
        class_="box",
    )


def stop_form(report: PipelineReport, frame: Frame) -> Markup:
    if frame.read_only or not report.is_live:
        return NOTHING
    return form(
        "/do/pipeline.stop",
        frame.csrf,
        hidden("name", report.name),
        hidden("back", address("/pipeline", name=report.name)),
        tag("button", "Stop after the running batch", class_="danger"),
    )


def letter_topics(topics: Sequence[tuple[str, int | None]]) -> Markup:
    if not topics:
        return empty("There are no dead letters.", f"A topic whose name ends in {DEAD_LETTERS} appears here.")
    rows: list[list[Child]] = [
        [tag("a", name, href=address("/dead-letters", topic=name), class_="name"), units.count(number)]
        for name, number in topics
    ]
    return table([Column("Topic"), Column("Records", number=True)], rows, caption="Topics of dead letters")


def letters(topic: str, found: Mapping[Cause, CauseSummary], chosen: str, frame: Frame) -> Markup:
    if not found:
        return empty("No letter matches." if chosen else "The topic has no letters.")
    total = sum(each.letters - each.replayed for each in found.values())
    columns = [
        Column("Letters", number=True),
        Column("Redriven", number=True),
        Column("Reason"),
        Column("Pipeline"),
        Column("From"),
        Column("Last", minor=True),
        Column(""),
    ]
    rows = [_cause(topic, cause, each, frame) for cause, each in found.items()]
    return joined(
        tag(
            "p",
            units.plural(total, "letter"),
            " to redrive. Each is sent once, however often it is asked for.",
            class_="note",
        ),
        redrive_form(topic, "", "", "Redrive all", frame) if total and not chosen else None,
        table(columns, rows, caption="Dead letters by reason"),
        [_samples(topic, cause, each, frame) for cause, each in found.items()] if chosen else None,
    )


def _cause(topic: str, cause: Cause, each: CauseSummary, frame: Frame) -> list[Child]:
    left = each.letters - each.replayed
    return [
        units.count(each.letters),
        units.count(each.replayed),
        tag("a", one_line(cause.reason, 200), href=address("/dead-letters", topic=topic, reason=cause.reason)),
        cause.pipeline,
        joined(cause.source or units.UNKNOWN, f", field {cause.field}" if cause.field else None),
        time(each.last_ms),
        redrive_form(topic, cause.reason, cause.pipeline, f"Redrive {left:,}", frame) if left else "",
    ]


def redrive_form(topic: str, reason: str, pipeline: str, title: str, frame: Frame, place: str = "") -> Markup:
    if frame.read_only:
        return NOTHING
    back = address("/dead-letters", topic=topic, reason=reason if place else "")
    return form(
        "/do/letters.redrive",
        frame.csrf,
        hidden("name", topic),
        hidden("reason", reason),
        hidden("pipeline", "" if pipeline == "unknown" else pipeline),
        hidden("place", place),
        hidden("back", back),
        tag("button", title),
        class_="inline",
    )


def _samples(topic: str, cause: Cause, each: CauseSummary, frame: Frame) -> Markup:
    return joined(tag("h2", one_line(cause.reason, 200)), [_letter(topic, letter, frame) for letter in each.samples])


def _letter(topic: str, letter: Letter, frame: Frame) -> Markup:
    key, value = decode(letter.key), decode(letter.value, pretty=True)
    where = address("/topics/", topic) + f"/messages/{letter.partition}/{letter.offset}"
    place = f"{letter.partition}:{letter.offset}"
    return tag(
        "details",
        tag(
            "summary",
            tag("a", f"{letter.partition}:{letter.offset}", href=where),
            f" {letter.origin or ''} key {key.preview}",
        ),
        tag("pre", value.text, tabindex=0),
        tag(
            "div",
            redrive_form(topic, letter.reason, "", "Redrive this one", frame, place),
            tag("a", "Edit it first", href=address("/dead-letters/edit", topic=topic, place=place), class_="button")
            if not frame.read_only
            else None,
            class_="inline",
        ),
        class_="finding",
    )


def about_letter(letter: Letter) -> Markup:
    return facts(
        [
            Fact("Reason", one_line(letter.reason, 300)),
            Fact("Pipeline", letter.pipeline),
            Fact("From", letter.origin or units.UNKNOWN),
            Fact("Key", decode(letter.key).preview),
            Fact("Written", time(letter.timestamp_ms)),
        ]
    )


def edit_form(letter: Letter, text: str, frame: Frame) -> Markup:
    if frame.read_only:
        return empty("This console is read-only.")
    place = f"{letter.partition}:{letter.offset}"
    return form(
        "/do/letters.edit",
        frame.csrf,
        hidden("name", letter.topic),
        hidden("place", place),
        hidden("back", address("/dead-letters/edit", topic=letter.topic, place=place)),
        labelled(
            "Value",
            # A browser leaves out the first newline of the content.
            tag("textarea", "\n", text, name="value", rows=18, spellcheck="false", id="search"),
            "Key, headers, partition and timestamp stay those of the record.",
        ),
        check_box("text", "send it although it is not JSON"),
        tag("button", "Redrive the edited record", class_="primary"),
        tag("p", "The letter itself stays in its topic as it is. The record is sent once.", class_="note"),
        class_="stack box large",
    )


def filter_form(topic: str, reason: str) -> Markup:
    return tag(
        "form",
        hidden("topic", topic),
        labelled(
            "Reason",
            tag("input", type="search", name="reason", value=reason, id="search", placeholder="part of the reason"),
        ),
        tag("button", "Show"),
        method="get",
        action="/dead-letters",
        class_="bar",
    )
