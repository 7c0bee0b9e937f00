"""The pages about what runs on the cluster: pipelines, dead letters, reports, transactions."""

from __future__ import annotations

import asyncio
import shlex
import time

from penstock.client.errors import ClientError
from penstock.client.wire.admin.transactions import OpenTransaction, TransactionDescription
from penstock.console.markup import Markup, address, joined, tag
from penstock.console.observe import pipelines as observed
from penstock.console.observe.access import ClusterAccess
from penstock.console.pages import pipelines as pipelines_page
from penstock.console.pages import reports as reports_page
from penstock.console.pages import security as security_page
from penstock.console.pages.layout import Page, Part, empty
from penstock.console.server.cluster_pages import waiting
from penstock.console.server.visit import NotFound, Visit
from penstock.console.views.backfills import WantedBackfill
from penstock.console.views.boards import Panel
from penstock.console.views.decoding import document_of
from penstock.console.views.flows import edge_rates
from penstock.console.views.graph import Drawing, lay_out
from penstock.console.views.letters import BadLetter, editable, parse_place, seen_letter
from penstock.console.views.query import Query
from penstock.console.views.records import Found, Row
from penstock.console.views.reports import Reading, fields_of, located, numeric_fields, parse_report, rows
from penstock.console.views.sample import record_totals
from penstock.model.errors import KafkaError
from penstock.pipelines.operate.reports import PipelineReport

PIPELINES = ("Pipelines", "/pipelines")
REPORTS = ("Reports", "/reports")
_SAMPLES = 50


async def pipelines(visit: Visit) -> Page:
    now = visit.seen.now
    if now is None:
        return Page("Pipelines", "pipelines", [Part("list", waiting(visit), live=True)])
    records = record_totals(now)
    topics = [(name, records.get(name)) for name in sorted(now.topics) if name.endswith(pipelines_page.DEAD_LETTERS)]
    letters = joined(tag("h2", "Dead letters"), pipelines_page.letter_topics(topics))
    parts = [
        Part("list", pipelines_page.listing(now.pipelines, now.queries), live=True),
        Part("letters", letters, live=True),
    ]
    return Page("Pipelines", "pipelines", parts)


async def pipeline(visit: Visit) -> Page:
    name = visit.parameters.get("name", "")
    report = None if visit.seen.now is None else visit.seen.now.pipelines.get(name)
    if report is None:
        raise NotFound(f"No pipeline {name!r} has reported to this cluster.")
    known = report.backfill_of or name
    drawn = await asyncio.to_thread(_graph, visit.settings.pipelines, known)
    parts = [Part("state", pipelines_page.one(report), live=True)]
    if drawn is not None:
        nodes, edges = [each.node for each in drawn.nodes], [edge for edge, _ in drawn.edges]
        rates = edge_rates(nodes, edges, report, visit.seen.now.earlier_pipelines.get(name)) if visit.seen.now else {}
        parts.append(Part("graph", pipelines_page.graph(drawn, rates), live=True))
    elif not visit.live:
        hint = f"The console draws the graph of a pipeline whose file it knows: --pipeline {report.file or 'FILE'}"
        parts.append(Part("graph", tag("p", hint, class_="note")))
    if not visit.live:
        parts.append(Part("stop", pipelines_page.stop_form(report, visit.frame)))
        if drawn is not None and report.backfill_of is None:
            parts.append(Part("backfill", _backfill(visit, report)))
    return Page(name, "pipelines", parts, [PIPELINES])


def _backfill(visit: Visit, report: PipelineReport) -> Markup:
    example = WantedBackfill(f"{report.name}-again", "earliest")
    file = report.file or "FILE"
    command = shlex.join(["penstock", *example.arguments(file, visit.settings.bootstrap, report.environment)])
    return pipelines_page.backfill_form(report, command, visit.backfills.states(), visit.frame)


def file_of(files: tuple[str, ...], name: str) -> str | None:
    """The file of a pipeline, of those that the console knows."""
    for path in files:
        try:
            if observed.graph_of(path)[0] == name:
                return path
        except (OSError, ValueError, ImportError):
            continue
    return None


def _graph(files: tuple[str, ...], name: str) -> Drawing | None:
    for path in files:
        try:
            found, nodes, edges = observed.graph_of(path)
        except (OSError, ValueError, ImportError):  # a file that is gone or wrong, or an extra that is missing
            continue
        if found == name:
            return lay_out(nodes, edges)
    return None


async def dead_letters(visit: Visit) -> Page:
    topic, reason = visit.parameters.get("topic", ""), visit.parameters.get("reason", "")
    found = await visit.workspace.ask(lambda access: observed.summary(access, topic, reason, _SAMPLES if reason else 0))
    for each in found.values():
        each.samples = [seen_letter(letter, visit.rules) for letter in each.samples]
    parts = [
        Part("find", pipelines_page.filter_form(topic, reason)),
        Part("letters", pipelines_page.letters(topic, found, reason, visit.frame)),
    ]
    return Page(topic, "pipelines", parts, [PIPELINES])


async def edit_letter(visit: Visit) -> Page:
    topic, place = visit.parameters.get("topic", ""), visit.parameters.get("place", "")
    try:
        partition, offset = parse_place(place)
    except BadLetter as error:
        raise NotFound(str(error)) from error
    found = await visit.workspace.ask(lambda access: observed.letter_at(access, topic, partition, offset))
    if found is None:
        raise NotFound(f"There is no letter {place} in {topic}.")
    letter, is_redriven = found
    try:
        text = editable(letter, visit.rules)
        problem = "It was redriven before." if is_redriven else ""
    except BadLetter as error:
        text, problem = "", str(error)
    parts = [
        Part("about", pipelines_page.about_letter(letter)),
        Part(
            "edit",
            empty(problem)
            if problem
            else pipelines_page.edit_form(letter, text if visit.draft is None else visit.draft, visit.frame),
        ),
    ]
    crumbs = [PIPELINES, (topic, address("/dead-letters", topic=topic, reason=letter.reason))]
    return Page(place, "pipelines", parts, crumbs)


async def reports(visit: Visit) -> Page:
    report = parse_report(visit.parameters)
    topics = await _topics(visit, report.topic)
    fields: list[str] = []
    numeric: list[str] = []
    content: Markup = empty(
        "Choose a topic.", "A report draws fields of its JSON values over time, and shows the newest records."
    )
    if report.topic and report.topic in topics:
        readings = await _read_newest(visit, report.topic, report.records)
        fields = fields_of(readings[:200])
        numeric = numeric_fields(readings, fields)
        report = located(report, numeric)
        newest = readings[:100]
        if report.problems:
            content = tag("p", report.problems[0], class_="flash error")
        else:
            picture = reports_page.picture(report, readings, reports_page.title_of(report))
            content = reports_page.content(report, picture, fields, newest, rows(newest, fields), len(readings))
    elif report.topic:
        content = empty(f"There is no topic {report.topic!r}.")
    parts = [Part("report", content, live=bool(report.topic))]
    if not visit.live:
        parts.insert(0, Part("choose", reports_page.report_form(report, topics, fields, numeric)))
        if not report.topic:
            parts.append(Part("boards", reports_page.boards_list(visit.boards)))
    return Page(report.topic or "Reports", "reports", parts, [REPORTS] if report.topic else [])


async def board(visit: Visit) -> Page:
    """Each topic is read once, however many panels show it."""
    name = visit.path["board"]
    found = next((each for each in visit.boards if each.name == name), None)
    if found is None:
        raise NotFound(f"There is no board {name!r}: start the console with --board {name}.toml")
    wanted: dict[str, int] = {}
    for panel in found.panels:
        wanted[panel.report.topic] = max(wanted.get(panel.report.topic, 0), panel.report.records)
    topics = await _topics(visit, next(iter(wanted)))
    read = {topic: await _read_newest(visit, topic, records) for topic, records in wanted.items() if topic in topics}
    pictures = [_picture(panel, read.get(panel.report.topic)) for panel in found.panels]
    return Page(found.title, "reports", [Part("board", reports_page.board(found, pictures), live=True)], [REPORTS])


def _picture(panel: Panel, readings: list[Reading] | None) -> Markup:
    if readings is None:
        return reports_page.no_topic(panel.title, panel.report.topic)
    newest = readings[: panel.report.records]
    report = panel.report
    if report.kind == "map":
        report = located(report, numeric_fields(newest, fields_of(newest[:50])))
    return reports_page.picture(report, newest, panel.title)


async def _topics(visit: Visit, wanted: str) -> list[str]:
    now = visit.seen.now
    if wanted and not visit.live and (now is None or wanted not in now.topics):
        now = (await visit.workspace.fresh()).now  # it may be newer than the last sample
    return [] if now is None else [name for name, topic in sorted(now.topics.items()) if not topic.internal]


async def _read_newest(visit: Visit, topic: str, records: int) -> list[Reading]:
    return await visit.workspace.ask(lambda _: _read(visit, topic, records))


def _read(visit: Visit, topic: str, records: int) -> list[Reading]:
    """The newest records whose values are JSON objects, the newest first."""
    found: list[Row] = []
    for each in visit.reader(topic).search(Query(), records):
        if isinstance(each, Found):
            found += each.rows
    documents = ((document_of(row.value, visit.schema), row.timestamp_ms) for row in found)
    return [Reading(document, at_ms) for document, at_ms in documents if isinstance(document, dict)]


async def transactions(visit: Visit) -> Page:
    now_ms = time.time_ns() // 1_000_000

    def listed(access: ClusterAccess) -> list[TransactionDescription]:
        with access.admin() as admin:
            known = admin.transactions.list()
            return admin.transactions.describe([each.transactional_id for each in known[:1000]]) if known else []

    def hanging(access: ClusterAccess) -> list[OpenTransaction]:
        with access.admin() as admin:
            return admin.transactions.find_hanging()

    described = await visit.workspace.ask(listed)
    described.sort(key=lambda each: (each.start_ms is None, each.start_ms or 0))
    try:
        found = security_page.hanging(await visit.workspace.ask(hanging), visit.frame)
    except (ClientError, KafkaError) as error:
        found = tag("p", str(error), class_="note")
    parts = [
        Part("list", security_page.transactions(described, now_ms)),
        Part("hanging", joined(tag("h2", "Hanging transactions"), found)),
    ]
    return Page("Transactions", "transactions", parts)
