"""`penstock pipeline list`, `status` and `stop`: monitor and stop running pipelines through their cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.arguments import duration_text
from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, Json, fail, note, print_json, print_table

if TYPE_CHECKING:
    from penstock.pipelines.operate.reports import PipelineReport, QueryReport

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Name of the pipeline.")]


def list_pipelines(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """List the pipelines of a cluster: the running ones, and those that ended within a week.

    A pipeline is lost if its reports are overdue: its driver was killed, or cannot reach the cluster.

    Example:

        penstock pipeline list
    """
    from penstock.cli.pipeline_display import time_text
    from penstock.pipelines.operate.remote import reports
    from penstock.pipelines.operate.reports import total

    found = list(reports(bootstrap_server).values())
    if json:
        print_json([_machine(report) for report in found])
        return
    if not found:
        note("no pipelines")
    print_table(
        ["PIPELINE", "STATE", "FOR", "QUERIES", "ROWS/S", "LAG", "LATE", "DEAD", "RESTARTS", "WATERMARK", "DRIVER"],
        [
            [
                report.name,
                report.state,
                _since(report),
                len(report.queries),
                round(sum(query.processed_rows_per_second for query in report.queries)),
                report.lag,
                total(query.late_rows for query in report.queries),
                total(query.dead_letters for query in report.queries),
                total(query.restarts for query in report.queries),
                time_text(report.watermark_ms),
                report.driver,
            ]
            for report in found
        ],
    )
    for report in found:
        if report.last_error is not None and report.state in ("backing off", "failed"):
            note(f"{report.name}: {report.last_error}")


def status(name: Name, bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """Show the state of a pipeline, by query: rates, lag, watermark, late rows, dead letters, restarts, last error.

    Exits with 0 if the pipeline is running, 3 if it has ended, failed or is lost, 1 if the cluster does not know it.

    Example:

        penstock pipeline status orders --json
    """
    from penstock.cli.pipeline_display import figures, state_text, time_text
    from penstock.pipelines.operate.remote import report_of

    report = report_of(bootstrap_server, name)
    if json:
        print_json(_machine(report))
    else:
        now_ms = _now_ms()
        print(f"{report.name}: {report.state} for {_since(report)}")
        print(f"  file      {report.file}{f' ({report.environment})' if report.environment else ''}")
        if report.backfill_of is not None:
            print(f"  backfill  of {report.backfill_of}")
        print(f"  driver    {report.driver}, {report.application}, since {time_text(report.started_ms)}")
        print(f"  heard of  {duration_text(now_ms - report.heartbeat_ms)} ago")
        if report.metrics is not None and report.is_live:
            print(f"  metrics   http://{report.metrics}/metrics")
        print()
        print_table(
            [
                *("QUERY", "STATE", "BATCH", "ROWS", "ROWS/S", "LAG", "LATE", "DEAD", "RESTARTS", "WATERMARK"),
                *("LATENCY", "WRITTEN"),
            ],
            [
                [query.name, state_text(query, now_ms), *figures(query), _latency(query), _written(query.rows_out)]
                for query in report.queries
            ],
        )
        for query in report.queries:
            if query.error is not None:
                ago = duration_text(now_ms - (query.error_ms or now_ms))
                over = "" if query.failures else ", and has recovered"
                note(f"{query.name}: failed {ago} ago{over}: {query.error}")
        if report.error is not None:
            note(f"ended with: {report.error}")
    if not report.is_live:
        raise typer.Exit(3)


def stop(
    name: Name,
    now: Annotated[bool, typer.Option("--now", help="Cut off running batches; the next run repeats them.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the end; 0: do not wait.")
    ] = 60.0,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Stop a running pipeline between two batches, on whatever machine it runs.

    The pipeline receives the command within two seconds and then finishes its running batches. Exits with 0 when the
    pipeline has ended, 1 if it is not running or did not end in time (the command stays valid, and it will still end).

    Examples:

        penstock pipeline stop orders
        penstock pipeline stop orders --now --timeout 10
    """
    from penstock.pipelines.operate.remote import report_of, request_stop

    report = report_of(bootstrap_server, name)
    if not report.is_live:
        ended = {"lost": "was last heard of", "failed": "has failed"}.get(report.state, report.state)
        fail(f"{name} does not run: it {ended} {_since(report)} ago, on {report.driver}")
    report = request_stop(bootstrap_server, report, now=now, timeout=timeout)
    if report.state == "lost":
        fail(f"{name} has not reported since it was asked to stop; its driver was {report.driver}")
    if not report.is_live:
        print(f"{name}: {report.state}")
    elif timeout:
        hurry = "" if now else "; --now cuts it off"
        fail(f"{name} was asked to stop, and a batch is still under way after {timeout:g} s{hurry}")
    else:
        print(f"{name}: stop requested")


def _machine(report: PipelineReport) -> dict[str, Any]:
    import dataclasses

    return {**dataclasses.asdict(report), "lag": report.lag, "last_error": report.last_error}


def _since(report: PipelineReport) -> str:
    """How long it has been running, or since when it has ended or sent no report."""
    return duration_text(_now_ms() - (report.started_ms if report.is_live else report.heartbeat_ms))


def _written(rows: Any) -> str | None:
    return ",".join(f"{sink}:{count}" for sink, count in sorted(rows.items())) or None


def _latency(query: QueryReport) -> str | None:
    return None if query.latency_ms is None else f"{query.latency_ms / 1000:.1f}s"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
