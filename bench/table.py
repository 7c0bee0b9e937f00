"""The table: load, result, floor, ratio, target, verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.results import Row, Target
from bench.subjects import FLOOR, PEER, PENSTOCK


def print_table(console: Console, rows: Sequence[Row], peer: str | None) -> None:
    table = Table(title="Penstock, one broker", title_justify="left", caption=_CAPTION, caption_justify="left")
    table.add_column("load", no_wrap=True)
    for heading in ("result", "floor", "ratio", "target", "", "spread", "CPU us", "floor/epoll"):
        table.add_column(heading, justify="right", no_wrap=True)
    if peer is not None:
        table.add_column(peer, justify="right", no_wrap=True)
        table.add_column("times better", justify="right", no_wrap=True)
    for row in rows:
        cells = [
            row.title,
            amount(row, row.result),
            amount(row, row.median(FLOOR)),
            _ratio(row),
            target_text(row.target),
            _verdict(row.met),
            _percent(row.spread),
            _cpu(row),
            _number(row.floor_to_epoll),
        ]
        if peer is not None:
            cells += [amount(row, row.median(PEER)), _number(row.peer_ratio)]
        table.add_row(*cells)
    console.print(table)


_CAPTION = (
    "Medians of alternating rounds; ratio: broker to floor, in brackets the rounds' lowest and highest; "
    "CPU us: of the server, a request, broker / floor."
)


def markdown(rows: Sequence[Row], peer: str | None) -> str:
    """The same table for a document."""
    headings = ["load", "result", "floor", "ratio", "target", "", "spread", "CPU us", "floor/epoll"]
    headings += [peer, "times better"] if peer is not None else []
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    for row in rows:
        cells = [
            row.title,
            amount(row, row.result),
            amount(row, row.median(FLOOR)),
            _ratio(row),
            target_text(row.target),
            {True: "yes", False: "no", None: ""}[row.met],
            _percent(row.spread),
            _cpu(row),
            _number(row.floor_to_epoll),
        ]
        cells += [amount(row, row.median(PEER)), _number(row.peer_ratio)] if peer is not None else []
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def amount(row: Row, value: float | None) -> str:
    if value is None:
        return ""
    if row.unit in ("requests/s", "messages/s"):
        text = (
            f"{value / 1e6:.2f}M/s" if value >= 1e6 else f"{value / 1e3:.1f}k/s" if value >= 1e4 else f"{value:.0f}/s"
        )
        bandwidth = value * row.bytes_a_unit / 1e6
        return f"{text}, {bandwidth / 1e3:.2f} GB/s" if bandwidth >= 1000 else f"{text}, {bandwidth:.0f} MB/s"
    if row.unit == "cores a client core":
        return f"{value:.2f} cores"
    if row.unit == "%":
        return f"{value:.1f}%"
    return f"{value:.3g} {row.unit}"


def target_text(target: Target | None) -> str:
    if target is None:
        return ""
    if target.kind == "below":
        return f"< {target.value:g}"
    return f"≥ {target.value / 1e6:g}M" if target.value >= 1e6 else f"≥ {target.value:.2f}"


def _ratio(row: Row) -> str:
    ratio, span = row.floor_ratio, row.floor_ratio_range
    if ratio is None or span is None:
        return ""
    return f"{ratio:.2f} ({span[0]:.2f}-{span[1]:.2f})"


def _verdict(met: bool | None) -> str:
    return {True: "[green]met[/green]", False: "[red]missed[/red]", None: ""}[met]


def _percent(value: float | None) -> str:
    return "" if value is None else f"±{value * 100:.0f}%"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _cpu(row: Row) -> str:
    ours, floor = row.median_cpu_us(PENSTOCK), row.median_cpu_us(FLOOR)
    return "" if ours is None or floor is None else f"{ours:.1f} / {floor:.1f}"
