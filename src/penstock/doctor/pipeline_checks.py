"""Findings about pipelines and other Spark queries: which do not run, fail, are behind, or have dead letters.

Their groups never have members: Spark assigns partitions by itself, and commits offsets only for others to see. So the
lag of such a group is a finding about its pipeline, not about the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.doctor.findings import Finding, Limits, count, minutes
from penstock.doctor.observations import Observations

if TYPE_CHECKING:
    from penstock.pipelines.operate.reports import PipelineReport, QueryReport
    from penstock.spark.progress.query_progress import QueryProgress


def spark_groups(seen: Observations) -> frozenset[str]:
    """The groups that Spark commits to."""
    return frozenset(
        [
            *(group for report in seen.pipelines for query in report.queries for group in query.groups),
            *(group for query in seen.spark_queries for group in _groups_of(query)),
        ]
    )


def pipelines(seen: Observations, limits: Limits) -> Iterator[Finding]:
    for report in seen.pipelines:
        if report.state == "failed" and report.backfill_of is None:
            yield _failed(report, seen)
        elif report.state == "lost":
            yield _lost(report, seen)
        elif not report.is_live:
            yield from _idle(report, seen, limits)
        else:
            yield from _live(report, seen, limits)


def spark_queries(seen: Observations, limits: Limits) -> Iterator[Finding]:
    """Of programs that are no pipelines."""
    owned = {group for report in seen.pipelines for query in report.queries for group in query.groups}
    for query in seen.spark_queries:
        groups = [group for group in _groups_of(query) if group not in owned]
        lag = _lag(groups, seen)
        name = query.name or query.query_id
        if not groups or lag <= limits.lag_max:
            continue
        runs = query.state in ("running", "idle")
        yield Finding(
            "spark-query-lagging",
            "warning",
            name,
            f"the Spark query {name!r} is {lag} records behind",
            f"it is slower than the producers: {query.processed_rows_per_second:.0f} rows a second"
            if runs
            else f"it does not run: {query.state}{f', {query.error}' if query.error else ''}",
            "see penstock spark status; give it more cores, or its topics more partitions"
            if runs
            else f"start it again; if it is not needed any more, penstock groups delete {groups[0]}",
        )


def _failed(report: PipelineReport, seen: Observations) -> Finding:
    waits = _waiting(report, seen)
    return Finding(
        "pipeline-failed",
        "error",
        report.name,
        f"pipeline {report.name!r} has failed, {_ago(report, seen)}{waits}",
        report.last_error or "it did not say why",
        f"mend the cause, then start it again: penstock pipeline run {report.file}; it goes on where it was",
    )


def _lost(report: PipelineReport, seen: Observations) -> Finding:
    waits = _waiting(report, seen)
    return Finding(
        "pipeline-lost",
        "error",
        report.name,
        f"pipeline {report.name!r} was last heard of {_ago(report, seen)}{waits}",
        f"its driver ({report.driver}) was killed, or cannot reach the cluster",
        f"see whether the driver lives; else start it again: penstock pipeline run {report.file}; it goes on where it "
        "was",
    )


def _idle(report: PipelineReport, seen: Observations, limits: Limits) -> Iterator[Finding]:
    """Stopped on purpose, or run with --once: wrong only if work has gathered."""
    lag = _lag(_groups(report), seen)
    if lag > limits.lag_max and report.backfill_of is None:
        yield Finding(
            "pipeline-not-running",
            "warning",
            report.name,
            f"pipeline {report.name!r} does not run, and {count(lag, 'record')} wait for it",
            f"it {'was stopped' if report.state == 'stopped' else 'ended'} {_ago(report, seen)}",
            f"start it: penstock pipeline run {report.file}; if it is not needed any more, "
            f"penstock groups delete {_groups(report)[0]}",
        )


def _live(report: PipelineReport, seen: Observations, limits: Limits) -> Iterator[Finding]:
    failing = [query for query in report.queries if query.state == "backing off"]
    for query in failing:
        yield Finding(
            "pipeline-failing",
            "error",
            report.name,
            f"query {query.name!r} of pipeline {report.name!r} fails again and again: {query.failures} times in a row",
            query.error or "it did not say why",
            f"mend the cause; the batch is repeated by itself, and nothing is lost (penstock pipeline status "
            f"{report.name})",
        )
    for query in report.queries:
        lag = _lag(query.groups, seen)
        if lag > limits.lag_max and query not in failing:
            yield _behind(report, query, lag, seen)
    dead = sum(query.dead_letters for query in report.queries)
    if dead > limits.dead_letters_max:
        yield Finding(
            "pipeline-dead-letters",
            "warning",
            report.name,
            f"pipeline {report.name!r} has put {count(dead, 'record')} aside as dead letters",
            "these records do not decode, or break an expectation; "
            f"they were counted since it started, {minutes(seen.now_ms - report.started_ms)} ago",
            f"see why: penstock pipeline dead-letters {report.file}",
        )


def _behind(report: PipelineReport, query: QueryReport, lag: int, seen: Observations) -> Finding:
    progress = [each for group in seen.groups if group.group_id in query.groups for each in group.progress]
    moves = any(each.committed != each.committed_before for each in progress)
    rate = f"{query.processed_rows_per_second:.0f} rows a second"
    since = minutes(seen.now_ms - query.batch_ended_ms) if query.batch_ended_ms is not None else None
    if moves:
        why = f"it is slower than the producers: {rate} in the last batch"
        todo = "give Spark more cores, or the topics more partitions"
    else:
        why = f"no batch ended in {seen.watched_ms / 1000:.0f} s; the last one ended {since} ago, with {rate}"
        why = why if since is not None else "it has not ended its first batch yet"
        todo = "see whether a sink hangs, and what the driver's log says; max_records makes batches smaller"
    return Finding(
        "pipeline-lagging",
        "warning",
        report.name,
        f"query {query.name!r} of pipeline {report.name!r} is {lag} records behind",
        why,
        f"{todo} (penstock pipeline status {report.name})",
    )


def _groups(report: PipelineReport) -> list[str]:
    return [group for query in report.queries for group in query.groups]


def _groups_of(query: QueryProgress) -> list[str]:
    return [source.group for source in query.sources if source.group is not None]


def _lag(groups: Iterable[str], seen: Observations) -> int:
    wanted = set(groups)
    return sum(each.lag for group in seen.groups if group.group_id in wanted for each in group.progress)


def _waiting(report: PipelineReport, seen: Observations) -> str:
    lag = _lag(_groups(report), seen)
    return f"; {count(lag, 'record')} wait for it" if lag else ""


def _ago(report: PipelineReport, seen: Observations) -> str:
    return f"{minutes(max(0, seen.now_ms - report.heartbeat_ms))} ago"
