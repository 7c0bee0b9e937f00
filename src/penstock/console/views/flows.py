"""Rates on the edges of a pipeline's graph, from two of its reports: rows a second into queries, and out of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.console.views.graph import DEAD, SINK, Edge, Node
from penstock.pipelines.operate.reports import PipelineReport, QueryReport


def edge_rates(
    nodes: Sequence[Node], edges: Sequence[Edge], now: PipelineReport, before: PipelineReport | None
) -> dict[Edge, float]:
    """Of the edges whose rate is known.

    A query reports what it reads from all its sources together: an edge into it has a rate only if it is the only one.
    Rows between the steps of one query are not counted.
    """
    queries = {query.name: query for query in now.queries}
    earlier = {} if before is None or before.run_id != now.run_id else {query.name: query for query in before.queries}
    query_of = {node.identity: node.query for node in nodes}
    into = Counter(
        query_of.get(edge.target, "") for edge in edges if query_of.get(edge.source) != query_of.get(edge.target)
    )
    rates: dict[Edge, float] = {}
    for edge in edges:
        reader, writer = query_of.get(edge.target, ""), query_of.get(edge.source, "")
        if edge.target == DEAD and not writer:
            # Records that a source cannot decode: the query that reads it counts them.
            readers = {query_of.get(each.target, "") for each in edges if each.source == edge.source} - {""}
            writer = readers.pop() if len(readers) == 1 else ""
        if reader in queries and reader != writer and into[reader] == 1:
            rates[edge] = queries[reader].input_rows_per_second if queries[reader].state == "running" else 0.0
        elif writer in queries and writer in earlier:
            rate = _out(edge, queries[writer], earlier[writer])
            if rate is not None:
                rates[edge] = rate
    return rates


def _out(edge: Edge, now: QueryReport, before: QueryReport) -> float | None:
    if edge.target.startswith(SINK):
        sink = edge.target.removeprefix(SINK)
        counts = (before.rows_out.get(sink), now.rows_out.get(sink))
    elif edge.target == DEAD:
        counts = (before.dead_letters, now.dead_letters)
    else:
        return None
    earlier, later = counts
    if later is None or before.batch_ended_ms is None or now.batch_ended_ms is None:
        return None
    seconds = (now.batch_ended_ms - before.batch_ended_ms) / 1000
    return max(0, later - (earlier or 0)) / seconds if seconds > 0 else 0.0
