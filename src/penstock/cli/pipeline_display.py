"""How a pipeline that runs looks on a terminal: a table of its queries; where there is none, a line now and then."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from penstock.cli.output import note
from penstock.pipelines.running import QueryStatus, Runner, lag_of

_LINE_SECONDS = 10.0
_COLOURS = {"running": "green", "ended": "dim", "backing off": "yellow", "failed": "red", "waiting": "dim"}


def watched(runner: Runner, *, once: bool) -> None:
    """Until it ends; signals end it between two batches."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: FrameType | None) -> None:
        runner.stop()

    for number in handlers:
        signal.signal(number, stop)
    try:
        run = runner.run_once if once else runner.run
        if sys.stderr.isatty():
            with Live(_table(runner), console=Console(stderr=True), refresh_per_second=4) as live:
                run(lambda: live.update(_table(runner)))
        else:
            run(_lines(runner))
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _table(runner: Runner) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("query", "state", "batch", "rows", "rows/s", "lag", "watermark", "last error"):
        table.add_column(name, justify="right" if name in ("batch", "rows", "rows/s", "lag") else "left")
    for status in runner.status.values():
        state = f"[{_COLOURS[status.state]}]{status.state}[/]"
        table.add_row(status.name, state, *_numbers(status), status.error)
    return table


def _lines(runner: Runner) -> Callable[[], None]:
    """What has changed, at most every few seconds, and every change of state."""
    said: dict[str, tuple[str, float, int]] = {}

    def tick() -> None:
        now = time.monotonic()
        for status in runner.status.values():
            state, at, batches = said.get(status.name, ("waiting", 0.0, 0))
            due = now - at >= _LINE_SECONDS and status.batches != batches
            if status.state != state or due:
                said[status.name] = (status.state, now, status.batches)
                batch, rows, rate, lag, watermark = _numbers(status)
                error = f" error: {status.error}" if status.error and status.state in ("backing off", "failed") else ""
                note(
                    f"{status.name}: {status.state}, batch {batch}, {rows} rows, {rate} rows/s, lag {lag}, "
                    f"watermark {watermark}{error}"
                )

    return tick


def _numbers(status: QueryStatus) -> tuple[str, str, str, str, str]:
    progress = status.progress
    rate = progress.get("processedRowsPerSecond")
    event_time = progress.get("eventTime") or {}
    return (
        str(progress.get("batchId", "-")),
        str(status.rows),
        f"{rate:.0f}" if isinstance(rate, float) and rate == rate else "-",
        _lag(progress.get("sources") or []),
        str(event_time.get("watermark", "-")),
    )


def _lag(sources: list[Any]) -> str:
    """Records of topics that are there and not read yet."""
    lags = [lag for lag in map(lag_of, sources) if lag is not None]
    return str(sum(lags)) if lags else "-"
