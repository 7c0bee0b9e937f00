"""Pipelines: what they report to the topic `__pipelines`, their files, and their dead letters."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from penstock.client.errors import UnknownTopic
from penstock.client.wire.partition_log import PartitionLog
from penstock.console.views.graph import DEAD, SINK, Edge, Node
from penstock.model.ids import TopicPartition
from penstock.pipelines.operate.dead_letters import Cause, CauseSummary, Letter, Selection
from penstock.pipelines.operate.reports import REPORT_KEY, PipelineReport, UnreadableReport
from penstock.spark.progress.query_progress import QueryProgress, UnreadableProgress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.console.observe.access import ClusterAccess
    from penstock.pipelines.operate.replay import ReplayResult

logger = logging.getLogger("penstock.console")

PIPELINES = "__pipelines"
_TIMEOUT_S = 5.0
_RATES_MS = 20_000
_PAST_MAX = 64


class PipelineWords:
    """The last report of each pipeline and query. Only what is new since the last time is read."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._next = 0
        self._last: dict[str, str] = {}
        self._past: dict[str, deque[tuple[int, PipelineReport]]] = {}

    def read(self, now_ms: int) -> tuple[dict[str, PipelineReport], tuple[QueryProgress, ...]]:
        with PartitionLog(
            self._access.bootstrap,
            TopicPartition(PIPELINES, 0),
            timeout=_TIMEOUT_S,
            request_timeout=_TIMEOUT_S,
            options=self._access.options or None,
        ) as log:
            try:
                for record in log.read(self._next):
                    self._next = record.offset + 1
                    if record.key is not None:
                        key = record.key.decode(errors="replace")
                        self._last.pop(key, None)
                        if record.value is not None:
                            self._last[key] = record.value.decode(errors="replace")
            except UnknownTopic:
                self._next, self._last = 0, {}
        return self._reports(now_ms), self._queries(now_ms)

    def _reports(self, now_ms: int) -> dict[str, PipelineReport]:
        found = {}
        for key, text in sorted(self._last.items()):
            if key.startswith(REPORT_KEY):
                try:
                    found[key.removeprefix(REPORT_KEY)] = PipelineReport.from_json(text).as_of(now_ms)
                except UnreadableReport as error:
                    logger.debug("%s: %s", PIPELINES, error)
        return found

    def earlier(self, now_ms: int, reports: Mapping[str, PipelineReport]) -> dict[str, PipelineReport]:
        """A report of each pipeline from some time ago, to compute rates with."""
        self._past = {name: past for name, past in self._past.items() if name in reports}
        for name, report in reports.items():
            past = self._past.setdefault(name, deque(maxlen=_PAST_MAX))
            past.append((now_ms, report))
            while len(past) > 2 and now_ms - past[1][0] >= _RATES_MS:
                past.popleft()
        return {name: past[0][1] for name, past in self._past.items()}

    def _queries(self, now_ms: int) -> tuple[QueryProgress, ...]:
        found = []
        for key, text in self._last.items():
            if "/" not in key:
                try:
                    found.append(QueryProgress.from_json(text).as_of(now_ms))
                except UnreadableProgress as error:
                    logger.debug("%s: %s", PIPELINES, error)
        return tuple(sorted(found, key=lambda query: (query.name or "", query.query_id)))


def summary(access: ClusterAccess, topic: str, reason: str, samples: int) -> dict[Cause, CauseSummary]:
    from penstock.pipelines.operate.replay import DeadLetterTopic

    letters = DeadLetterTopic(access.bootstrap, topic, access.options or None)
    return letters.summary(Selection(reason=reason), samples=samples)


def letter_at(access: ClusterAccess, topic: str, partition: int, offset: int) -> tuple[Letter, bool] | None:
    """A letter, and whether it was redriven."""
    from penstock.pipelines.operate.replay import DeadLetterTopic

    return DeadLetterTopic(access.bootstrap, topic, access.options or None).one(partition, offset)


def redrive(
    access: ClusterAccess, topic: str, selection: Selection, edited: Mapping[tuple[int, int], bytes] | None = None
) -> ReplayResult:
    from penstock.pipelines.operate.replay import DeadLetterTopic

    return DeadLetterTopic(access.bootstrap, topic, access.options or None).replay(selection, edited=edited)


def graph_of(path: str) -> tuple[str, tuple[Node, ...], tuple[Edge, ...]]:
    """The name of the pipeline in a file, and what it consists of. ValueError if the file is not one."""
    from penstock.pipelines.check.analysis import analyse
    from penstock.pipelines.check.query_plan import has_dead_letters
    from penstock.pipelines.check.validate import load_checked
    from penstock.pipelines.operate.graph import described_sink, described_source
    from penstock.pipelines.spec.problems import PipelineInvalid

    try:
        loaded, _ = load_checked(path, None, {})
    except PipelineInvalid as invalid:
        raise ValueError(f"{path}: {invalid.problems[0]}") from invalid
    pipeline = loaded.pipeline
    analysis = analyse(pipeline, loaded.directory)
    nodes = [Node(name, name, described_source(source), "topic") for name, source in pipeline.sources.items()]
    nodes += [
        Node(name, name, f"query {analysis.tables[name].query}", "step", analysis.tables[name].query)
        for name in pipeline.steps
    ]
    edges = [
        Edge(each, name) for name, table in analysis.tables.items() for each in table.inputs if name in pipeline.steps
    ]
    for name, sink in pipeline.sinks.items():
        nodes.append(Node(f"{SINK}{name}", name, described_sink(sink), "topic"))
        table = analysis.find(sink.source)
        if table is not None:
            edges.append(Edge(table.name, f"{SINK}{name}"))
    letters = [name for name, table in analysis.tables.items() if has_dead_letters(pipeline, table)]
    if letters:
        nodes.append(Node(DEAD, "dead letters", f"topic {pipeline.dead_letter_topic}", "dead"))
        edges += [Edge(name, DEAD) for name in letters]
    return pipeline.name, tuple(nodes), tuple(edges)
