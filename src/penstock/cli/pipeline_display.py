"""The display of a running pipeline: a live table of its queries or, without a terminal, a line now and then.

Commands that print a line or two use parts of it: rich is imported where it draws.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING

from penstock.cli.arguments import duration_text
from penstock.cli.output import note
from penstock.pipelines.operate.reports import PipelineReport, QueryReport

if TYPE_CHECKING:
    from rich.console import Group

    from penstock.pipelines.engine.together import Together

_LINE_S = 10.0
_COLOURS = {
    "running": "green",
    "ended": "dim",
    "stopped": "dim",
    "waiting": "dim",
    "stopping": "yellow",
    "backing off": "yellow",
    "failed": "red",
}
_NUMBERS = ("batch", "rows", "rows/s", "lag", "late", "dead", "restarts")


def watched(together: Together, *, once: bool) -> None:
    """Run until all have ended. The first Ctrl-C or SIGTERM lets running batches finish, the second cuts them off."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: FrameType | None) -> None:
        (together.cut if together.is_stopping else together.stop)()

    for number in handlers:
        signal.signal(number, stop)
    try:
        if sys.stderr.isatty():
            from rich.console import Console, Group
            from rich.live import Live

            def pictures() -> Group:
                return Group(*(picture(runner.report()) for runner in together.runners))

            with Live(pictures(), console=Console(stderr=True), refresh_per_second=4) as live:
                together.run(lambda: live.update(pictures()), once=once)
        else:
            together.run(_lines(together), once=once)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def picture(report: PipelineReport) -> Group:
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    now_ms = report.heartbeat_ms
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("query", "state", *_NUMBERS, "watermark"):
        table.add_column(name, justify="right" if name in _NUMBERS else "left")
    for query in report.queries:
        state = f"[{_COLOURS[query.state]}]{state_text(query, now_ms)}[/]"
        table.add_row(escape(query.name), state, *figures(query))
    ran = duration_text(now_ms - report.started_ms)
    head = Text.assemble((report.name, "bold"), f"  {report.state}  {ran}")
    errors = [
        Text(f"{query.name}: {duration_text(now_ms - (query.error_ms or now_ms))} ago: {query.error}", style="red")
        for query in report.queries
        if query.error is not None
    ]
    return Group(head, table, *errors)


def _lines(together: Together) -> Callable[[], None]:
    """Print progress at most every few seconds, every change of state, and how long a query's first batch took."""
    began = time.monotonic()
    said: dict[tuple[str, str], tuple[str, float, int]] = {}
    several = len(together.runners) > 1

    def tick() -> None:
        now = time.monotonic()
        for runner in together.runners:
            pipeline = runner.loaded.pipeline.name
            for name, status in runner.status.items():
                state, at, batches = said.get((pipeline, name), ("waiting", 0.0, 0))
                if not batches and status.batches:
                    note(f"{f'{pipeline}.' if several else ''}{name}: first batch after {now - began:.1f} s")
                due = (now - at >= _LINE_S or not batches) and status.batches != batches
                if status.state != state or due:
                    said[pipeline, name] = (status.state, now, status.batches)
                    text = line_of(status.report(), round(time.time() * 1000), failure=several)
                    note(f"{pipeline}.{text}" if several else text)

    return tick


def line_of(query: QueryReport, now_ms: int, *, failure: bool = True) -> str:
    """Without `failure`, the error that has ended the query is left to what follows."""
    batch, rows, rate, lag, late, dead, restarts, watermark = figures(query)
    shown = query.state == "backing off" or (query.state == "failed" and failure)
    error = f", error: {query.error}" if query.error and shown else ""
    if query.batch_id is None:
        return f"{query.name}: {state_text(query, now_ms)}{error}"
    return (
        f"{query.name}: {state_text(query, now_ms)}, batch {batch}, {rows} rows, {rate} rows/s, lag {lag}, "
        f"late {late}, dead letters {dead}, restarts {restarts}, watermark {watermark}{error}"
    )


def state_text(query: QueryReport, now_ms: int) -> str:
    """The state, with the time until the next attempt."""
    if query.state == "backing off" and query.retry_ms is not None:
        return f"backing off {max(0, query.retry_ms - now_ms) / 1000:.0f} s"
    return query.state


def figures(query: QueryReport) -> tuple[str, ...]:
    """As `_NUMBERS`, and the watermark."""
    return (
        "-" if query.batch_id is None else str(query.batch_id),
        str(query.rows_in),
        "-" if query.batch_id is None else f"{query.processed_rows_per_second:.0f}",
        "-" if query.lag is None else str(query.lag),
        str(query.late_rows),
        str(query.dead_letters),
        str(query.restarts),
        time_text(query.watermark_ms),
    )


def time_text(milliseconds: int | None) -> str:
    """In UTC, to the second."""
    if milliseconds is None:
        return "-"
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
