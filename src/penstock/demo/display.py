"""The demo's page in the terminal: everything on it is read from `Demo`; only rates are kept here.

A large terminal shows all of it at once. In a small one there are two pages, the cluster and the pipelines' results,
and a key switches between them.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.demo.clients import Latencies
from penstock.demo.demo import Demo
from penstock.demo.spark import QueryStatus
from penstock.demo.workload import GROUPS

KEYS = (
    ("k", "kill a broker", "kill"),
    ("b", "bring it back", "bring back"),
    ("p", "send poison records", "poison"),
    ("r", "replay dead letters", "replay"),
    ("q", "quit", "quit"),
)
SWITCH_KEY = "v"
WIDE, TALL = 120, 33
LATENCY = "latency 50% / 99%"
_STEPS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_STATES = {"running": "green", "backing off": "yellow", "failed": "red", "waiting": "dim", "ended": "dim"}


class Display:
    def __init__(self, demo: Demo) -> None:
        self._demo = demo
        self._rates: dict[str, Rate] = {}
        self._command = _command()
        self._shows_results = False
        self.note = ""
        """What the demo waits for at its end."""

    def switch_page(self) -> None:
        """Shows the other page, if there are two."""
        self._shows_results = not self._shows_results

    def page(self, console: Console) -> RenderableType:
        self._sample()
        wide = console.width >= WIDE
        whole = wide and console.height >= TALL
        has_reports = self._demo.wants_spark
        body, other = Layout(), ""
        if whole:
            body.split_row(*self._columns(console.width // 2 - 4))
        elif self._shows_results and has_reports:
            body.split_column(*self._results_page(console.width - 4))
            other = "cluster"
        else:
            body.split_column(*self._cluster_page(console.width - 4))
            other = "reports" if has_reports else ""
        layout = Layout()
        layout.split_column(Layout(self._head(wide), size=2), body, Layout(_keys(wide, other), size=1))
        return layout

    # Pages.

    def _columns(self, width: int) -> tuple[Layout, Layout]:
        left, right = Layout(), Layout()
        events = _panel("events", self._events(width), "how many, and how long from send to read")
        log = Layout(_panel("what happened", self._log()))
        cluster, work = Layout(self._cluster_panel(width), size=8), self._work_panel(width, whole=True)
        if self._demo.wants_spark:
            left.split_column(cluster, Layout(work, size=14), log)
            right.split_column(Layout(events, size=8), *self._results_page(width))
        else:
            left.split_column(cluster, Layout(work))
            right.split_column(Layout(events, size=8), log)
        return left, right

    def _cluster_page(self, width: int) -> list[Layout]:
        log = _panel("what happened", self._log())
        cluster, work = self._cluster_panel(width), self._work_panel(width, whole=False)
        return [Layout(cluster, size=7), Layout(work, size=8), Layout(log)]

    def _results_page(self, width: int) -> list[Layout]:
        why = "the pipeline's results, in windows of 5 s"
        fleet, shop = _panel("the fleet", self._fleet(width), why), _panel("the shop", self._shop(width), why)
        return [Layout(fleet, size=9), Layout(shop)]

    def _cluster_panel(self, width: int) -> Panel:
        return _panel("cluster", self._cluster(width), "one broker may be down: acks=all waits for two copies")

    def _work_panel(self, width: int, *, whole: bool) -> Panel:
        why = "lag: written, but not yet read or processed"
        return _panel("groups and pipelines", self._work(width, whole=whole), why)

    # Parts of the page.

    def _head(self, wide: bool) -> RenderableType:
        demo = self._demo
        minutes, seconds = divmod(int(demo.elapsed), 60)
        title = Text.assemble(("Penstock demo ", "bold cyan"), (f"{minutes}:{seconds:02d}  ", "dim"))
        if demo.clients is None:
            title.append("the cluster starts ...")
            return Group(title, Text(self.note, style="yellow"))
        title.append(f"{len(demo.ledger.acknowledged):,}{' events' if wide else ''} acknowledged", "bold")
        title.append(f", {len(demo.ledger.topics.seen):,} read{' from topics' if wide else ''}")
        for name, output in demo.ledger.outputs.items():
            title.append(f", {'out of ' if wide else ''}{name} {len(output.seen):,}")
        bootstrap = demo.cluster.bootstrap.split(",")[0]
        urgent = self.note or self._error()
        hint = f"in another terminal: {self._command} top -b {bootstrap}"
        if demo.console is not None and demo.console.url is not None:
            hint = f"in a browser: {demo.console.url}" + (f"   {hint}" if wide else "")
        return Group(title, Text(urgent or hint, "yellow" if urgent else "dim"))

    def _error(self) -> str:
        """The error of a part that will try again."""
        demo = self._demo
        for pipeline, queries in demo.pipelines.queries.items() if demo.pipelines is not None else ():
            for query in queries:
                if query.error:
                    return f"pipeline {pipeline}, query {query.name}: {' '.join(query.error.split())}"
        error = demo.started_clients.observer.error
        return f"the cluster's state is out of date: {error}" if error else ""

    def _cluster(self, width: int) -> RenderableType:
        view = self._demo.clients.observer.view if self._demo.clients is not None else None
        table = _table("broker", "address", "state", "leads", "in sync")
        for node in self._demo.cluster.brokers:
            seen = view.brokers.get(node.node_id) if view is not None else None
            up = Text("up", "green") if node.running else Text("down", "bold red")
            if seen is None:
                table.add_row(str(node.node_id), node.address, up, "", "")
                continue
            whole = seen.in_sync == seen.replicas
            leads = bar(seen.leads, max(1, view.partitions if view else 1), max(5, width // 6))
            table.add_row(
                str(node.node_id),
                node.address,
                up,
                Text.assemble((leads, "cyan"), f" {seen.leads}"),
                Text(f"{seen.in_sync}/{seen.replicas}", "green" if whole else "bold yellow"),
            )
        if view is None or not view.partitions:
            return table
        state = Text(f"{view.partitions} partitions with 3 replicas each: ")
        if view.is_in_sync:
            state.append("all in sync", "green")
        else:
            state.append(f"{view.under_replicated} lack a replica", "bold yellow")
            if view.without_leader:
                state.append(f", {view.without_leader} have no leader", "bold red")
        return Group(table, state)

    def _events(self, width: int) -> RenderableType:
        demo, room = self._demo, max(8, width - 48)
        table = _table("", "events/s", LATENCY, "")
        written = self._rate("acknowledged")
        table.add_row("acknowledged", f"{written.now:,.0f}", "", Text(sparkline(written.history, room), "cyan"))
        if demo.clients is None:
            return table
        for name in GROUPS:
            rate = self._rate(name)
            latency = _latency(demo.clients.groups[name].latencies)
            table.add_row(f"read: {name}", f"{rate.now:,.0f}", latency, Text(sparkline(rate.history, room), "green"))
        for name in demo.ledger.outputs:
            rate = self._rate(f"pipeline {name}")
            latency = _latency(demo.clients.results.latencies[name])
            picture = Text(sparkline(rate.history, room), "magenta")
            table.add_row(f"pipeline {name}", f"{rate.now:,.0f}", latency, picture)
        return table

    def _work(self, width: int, *, whole: bool) -> RenderableType:
        """`whole` adds a row for each query; otherwise the table shows latencies, which have no panel then."""
        demo = self._demo
        table = _table("name", "state", "events/s", "lag", *([] if whole else [LATENCY]))
        for row in self._group_rows():
            table.add_row(*row[: 4 if whole else 5])
        parts: list[RenderableType] = [table]
        queries = demo.pipelines.queries if demo.pipelines is not None else {}
        for pipeline, found in queries.items():
            table.add_row(*self._pipeline_row(pipeline, found)[: 4 if whole else 5])
            for query in found if whole else ():
                rate = self._rate(f"query {pipeline} {query.name}").now
                table.add_row(f"  query {query.name}", _state(query.state), f"{rate:,.0f}", "")
        if not queries:
            parts.append(self._spark_state(width))
        if demo.clients is not None:
            letters = demo.clients.dead_letters
            reasons = ", ".join(f"{count} {reason}" for reason, count in letters.reasons.items())
            style = "bold yellow" if letters.waiting else "dim"
            text = f"dead letters: {letters.waiting} waiting, {letters.replayed} replayed"
            parts.append(Text(f"{text} ({reasons})" if reasons else text, style))
        return Group(*parts)

    def _group_rows(self) -> list[tuple[RenderableType, ...]]:
        traffic = self._demo.clients
        if traffic is None:
            return []
        lags = traffic.observer.view.groups
        return [
            (
                f"group {name}",
                Text("reads", "green") if name in lags else Text("joins", "dim"),
                f"{self._rate(name).now:,.0f}",
                f"{lags[name]:,}" if name in lags else "",
                _latency(group.latencies),
            )
            for name, group in traffic.groups.items()
        ]

    def _pipeline_row(self, pipeline: str, queries: tuple[QueryStatus, ...]) -> tuple[RenderableType, ...]:
        """The ledger counts the lag: what a query reports is as old as its last batch."""
        return (
            f"pipeline {pipeline}",
            _state(next((query.state for query in queries if query.state != "running"), "running")),
            f"{self._rate(f'pipeline {pipeline}').now:,.0f}",
            f"{self._demo.ledger.lag(pipeline):,}",
            _latency(self._demo.started_clients.results.latencies[pipeline]),
        )

    def _spark_state(self, width: int) -> RenderableType:
        """What happens before the pipelines run."""
        demo = self._demo
        if not demo.wants_spark:
            return Text("no pipelines: --no-spark", "dim")
        if demo.failures:
            return Text(demo.failures[0], "bold red")
        if demo.installation is not None:
            progress = demo.installation.progress
            room = max(10, width - 40)
            drawn = Text.assemble(
                "installing Spark ",
                (bar(progress.fraction, 1.0, room), "magenta"),
                f" {progress.fraction:.0%} of about {progress.total_mb:,.0f} MB",
            )
            return Group(drawn, Text(f"  {progress.step}; the cluster runs meanwhile", "dim"))
        return Text("Spark starts; the cluster runs meanwhile", "magenta")

    def _fleet(self, width: int) -> RenderableType:
        reports = self._demo.reports
        located, speeds = reports.located(), reports.speeds()
        if not located:
            return Text("no results yet: the pipelines are not running", "dim")
        table = _table("region", "reports in two minutes", "", "speed")
        for name, drawn, number in bars(located, max(8, width - 32)):
            table.add_row(name, Text(drawn, "cyan"), number, f"{speeds[name]:,.0f} km/h")
        low = reports.low_tanks()
        driving = Text.assemble("driving, by window  ", (sparkline(reports.driving(), width - 21), "cyan"))
        tanks = ", ".join(low[:4]) + (f" and {len(low) - 4} more" if len(low) > 4 else "") if low else "none"
        return Group(table, driving, Text(f"low on fuel: {tanks}", "yellow" if low else "dim"))

    def _shop(self, width: int) -> RenderableType:
        reports = self._demo.reports
        views = reports.views()
        if not views:
            return Text("no results yet: the pipelines are not running", "dim")
        table = _table("page", "views in two minutes", "")
        for name, drawn, number in bars(views, max(8, width - 30)):
            table.add_row(name, Text(drawn, "magenta"), number)
        errors = " ".join(f"{service} {rate:.0f}%" for service, rate in reports.error_rates().items())
        bought = Text.assemble("purchases, by window  ", (sparkline(reports.purchases(), width - 23), "magenta"))
        return Group(table, bought, Text(f"log errors: {errors}", "yellow"))

    def _log(self) -> RenderableType:
        """The latest first: there may be no space for older lines."""
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(justify="right", style="dim", no_wrap=True)
        table.add_column()
        for each in reversed(list(self._demo.log_lines)[-12:]):
            table.add_row(f"{each.seconds:.1f} s", each.text)
        return table

    # Rates.

    def _sample(self) -> None:
        demo, now = self._demo, self._demo.elapsed
        if demo.clients is None:
            return
        self._rate("acknowledged").sample(now, len(demo.ledger.acknowledged))
        for name, group in demo.clients.groups.items():
            self._rate(name).sample(now, group.read)
        for name in demo.ledger.outputs:
            self._rate(f"pipeline {name}").sample(now, demo.clients.results.read[name])
        for name, queries in demo.pipelines.queries.items() if demo.pipelines is not None else ():
            for query in queries:
                self._rate(f"query {name} {query.name}").sample(now, query.rows)

    def _rate(self, name: str) -> Rate:
        if name not in self._rates:
            in_batches = name.startswith(("pipeline ", "query "))
            self._rates[name] = Rate(over=10 if in_batches else 3)
        return self._rates[name]


def _panel(title: str, body: RenderableType, why: str = "") -> Panel:
    subtitle = f"[dim]{why}[/]" if why else None
    return Panel(body, title=title, title_align="left", subtitle=subtitle, subtitle_align="left", border_style="dim")


def _keys(wide: bool, other: str) -> RenderableType:
    """With the name of the other page, if there is one."""
    texts = [(key, what if wide else short) for key, what, short in KEYS] + ([(SWITCH_KEY, other)] if other else [])
    return Text.assemble(*(part for key, text in texts for part in ((f" {key} ", "reverse"), f" {text}   ")))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", expand=False)
    for index, column in enumerate(columns):
        numeric = column in ("events/s", "lag") or (not column and index == 2)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    return table


def _state(state: str) -> Text:
    return Text(state, _STATES.get(state, ""))


def _command() -> str:
    """How another terminal calls this Penstock: by its path, if it is not on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "penstock")
    if shutil.which("penstock") is not None or not os.path.exists(beside):
        return "penstock"
    relative = os.path.relpath(beside)
    return beside if relative.startswith(os.pardir) else relative


def _latency(latencies: Latencies) -> str:
    found = latencies.percentiles(0.5, 0.99)
    if found is None:
        return ""
    return " / ".join(f"{each:,.0f} ms" if each < 10_000 else f"{each / 1000:,.0f} s" for each in found)


def as_svg(display: Display, width: int, height: int, title: str) -> str:
    """The page as a picture, in the reader's own monospaced font: none is fetched from elsewhere."""
    console = Console(record=True, width=width, height=height, file=StringIO(), force_terminal=True)
    console.print(display.page(console), height=height)
    svg = console.export_svg(title=title)
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code", "monospace")


def sparkline(values: Sequence[float], width: int) -> str:
    """The last values, one per column; the highest is full."""
    last = list(values)[-width:]
    top = max(last, default=0.0)
    if top <= 0:
        return _STEPS[0] * len(last)
    return "".join(_STEPS[min(len(_STEPS) - 1, int(max(0.0, value) / top * len(_STEPS)))] for value in last)


def bar(value: float, top: float, width: int) -> str:
    """Exact to an eighth of a character."""
    eighths = round(max(0.0, min(1.0, value / top if top > 0 else 0.0)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def bars(values: Mapping[str, float], width: int, unit: str = "") -> list[tuple[str, str, str]]:
    """Name, bar and number of each, for a table."""
    top = max(values.values(), default=0.0)
    return [(name, bar(value, top, width), f"{value:,.0f}{unit}") for name, value in values.items()]


class Rate:
    """The rate of a growing count, from samples."""

    def __init__(self, over: int = 3, keep: int = 60) -> None:
        self._over = over
        self._last: tuple[float, float] | None = None
        self.history: deque[float] = deque(maxlen=keep)

    def sample(self, now: float, count: float) -> None:
        """At most once a second."""
        if self._last is None:
            self._last = (now, count)
        elif now - self._last[0] >= 1.0:
            self.history.append(max(0.0, count - self._last[1]) / (now - self._last[0]))
            self._last = (now, count)

    @property
    def now(self) -> float:
        """Over the last few seconds, so that it is readable; counts that grow in batches need more of them."""
        last = list(self.history)[-self._over :]
        return sum(last) / len(last) if last else 0.0
