"""The page that the demo shows, and explains: everything on it is read from `Show`, nothing is kept here but rates."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.demo.clients import Latencies
from penstock.demo.drawing import Rate, bar, bars, sparkline
from penstock.demo.show import Show
from penstock.demo.streams import GROUPS, PIPELINES

KEYS = (
    ("k", "kill a broker", "kill"),
    ("b", "bring it back", "bring back"),
    ("p", "send poison records", "poison"),
    ("r", "replay dead letters", "replay"),
    ("q", "quit", "quit"),
)
WIDE = 110
_STATES = {"running": "green", "backing off": "yellow", "failed": "red", "waiting": "dim", "ended": "dim"}


class Display:
    def __init__(self, show: Show, clock: Callable[[], float] = time.monotonic) -> None:
        self._show = show
        self._clock = clock
        self._rates: dict[str, Rate] = {}
        self.note = ""
        """What is going on at the end."""

    def page(self, console: Console) -> RenderableType:
        self._sample()
        wide = console.width >= WIDE
        width = (console.width // 2 if wide else console.width) - 4
        cluster = _panel("cluster", self._cluster(width), "one broker may be away: acks=all waits for two copies")
        work = _panel("groups and pipelines", self._work(width, whole=wide), "lag: what is there and not yet read")
        log = _panel("what happened", self._happenings())
        layout = Layout()
        keys = Layout(_keys(console.width), size=1)
        layout.split_column(Layout(self._head(), size=2), Layout(name="body"), keys)
        if not wide:
            layout["body"].split_column(Layout(cluster, size=7), Layout(work, size=9), Layout(log))
            return layout
        found = "what the pipeline found out, in windows of 5 s"
        left, right = Layout(), Layout()
        left.split_column(Layout(cluster, size=9), Layout(work, size=12), Layout(log))
        right.split_column(
            Layout(_panel("events", self._events(width), "how many, and how long from send to read"), size=9),
            Layout(_panel("the fleet", self._fleet(width), found), size=10),
            Layout(_panel("the shop", self._shop(width), found)),
        )
        layout["body"].split_row(left, right)
        return layout

    # Parts of the page.

    def _head(self) -> RenderableType:
        show = self._show
        minutes, seconds = divmod(int(self._clock() - show.started), 60)
        title = Text.assemble(("Penstock demo ", "bold cyan"), (f"{minutes}:{seconds:02d}  ", "dim"))
        if show.traffic is None:
            title.append("the cluster starts ...")
            return Group(title, Text(self.note, style="yellow"))
        acknowledged = len(show.ledger.acknowledged)
        title.append(f"{acknowledged:,} events acknowledged", "bold")
        title.append(f", read from topics {len(show.ledger.topics.seen):,}")
        for name, outlet in show.ledger.outlets.items():
            title.append(f", out of {name} {len(outlet.seen):,}")
        bootstrap = show.cluster.bootstrap.split(",")[0]
        second = Text(
            self.note or f"in another terminal: penstock top -b {bootstrap}", "yellow" if self.note else "dim"
        )
        return Group(title, second)

    def _cluster(self, width: int) -> RenderableType:
        view = self._show.traffic.observer.view if self._show.traffic is not None else None
        table = _table("broker", "address", "", "leads", "in sync")
        for node in self._show.cluster.brokers:
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
        if view.is_whole:
            state.append("all in sync", "green")
        else:
            state.append(f"{view.under_replicated} lack a replica", "bold yellow")
            if view.without_leader:
                state.append(f", {view.without_leader} have no leader", "bold red")
        return Group(table, state)

    def _events(self, width: int) -> RenderableType:
        show, room = self._show, max(8, width - 48)
        table = _table("", "a second", "half / 99% within", "")
        written = self._rate("acknowledged")
        table.add_row("acknowledged", f"{written.now:,.0f}", "", Text(sparkline(written.history, room), "cyan"))
        if show.traffic is None:
            return table
        for name in GROUPS:
            rate = self._rate(name)
            latency = _latency(show.traffic.groups[name].latencies)
            table.add_row(f"read: {name}", f"{rate.now:,.0f}", latency, Text(sparkline(rate.history, room), "green"))
        for name in show.ledger.outlets:
            rate = self._rate(f"pipeline {name}")
            latency = _latency(show.traffic.results.latencies[name])
            picture = Text(sparkline(rate.history, room), "magenta")
            table.add_row(f"pipeline {name}", f"{rate.now:,.0f}", latency, picture)
        return table

    def _work(self, width: int, *, whole: bool) -> RenderableType:
        """The whole of it has a row for each query; else there is one for each pipeline, with its latency."""
        show = self._show
        table = _table("who", "state", "rows/s", "lag", *([] if whole else ["half / 99% within"]))
        for row in self._group_rows():
            table.add_row(*row[: 4 if whole else 5])
        parts: list[RenderableType] = [table]
        queries = show.pipelines.queries if show.pipelines is not None else {}
        for pipeline, found in queries.items():
            for query in found if whole else ():
                state = Text(query.state, _STATES.get(query.state, ""))
                lag = "" if query.lag is None else f"{query.lag:,}"
                table.add_row(f"pipeline {pipeline}: {query.name}", state, f"{query.rate:,.0f}", lag)
            if not whole and show.traffic is not None:
                worst = next((query.state for query in found if query.state != "running"), "running")
                total = sum(query.lag or 0 for query in found)
                rate = self._rate(f"pipeline {pipeline}").now
                latency = _latency(show.traffic.results.latencies[pipeline])
                state = Text(worst, _STATES.get(worst, ""))
                table.add_row(f"pipeline {pipeline}", state, f"{rate:,.0f}", f"{total:,}", latency)
        if not queries:
            parts.append(self._stage(width))
        if show.traffic is not None:
            letters = show.traffic.letters
            reasons = ", ".join(f"{count} {reason}" for reason, count in letters.reasons.items())
            style = "bold yellow" if letters.waiting else "dim"
            text = f"dead letters: {letters.waiting} waiting, {letters.replayed} replayed"
            parts.append(Text(f"{text} ({reasons})" if reasons else text, style))
        return Group(*parts)

    def _group_rows(self) -> list[tuple[RenderableType, ...]]:
        traffic = self._show.traffic
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

    def _stage(self, width: int) -> RenderableType:
        """What there is before there are pipelines."""
        show = self._show
        if not show.wants_spark:
            return Text("no pipelines: --no-spark", "dim")
        if show.failures:
            return Text(show.failures[0], "bold red")
        if show.installation is not None:
            progress = show.installation.progress
            room = max(10, width - 40)
            drawn = Text.assemble(
                "installing Spark ",
                (bar(progress.part, 1.0, room), "magenta"),
                f" {progress.part:.0%} of about {progress.total_mb:,.0f} MB",
            )
            return Group(drawn, Text(f"  {progress.step}; the cluster goes on meanwhile", "dim"))
        return Text("Spark starts; the cluster goes on meanwhile", "magenta")

    def _fleet(self, width: int) -> RenderableType:
        reports = self._show.reports
        speeds = reports.speeds()
        if not speeds:
            return Text("comes with the pipelines", "dim")
        table = _table("region", "speed of trucks that drive", "")
        for name, drawn, number in bars(speeds, max(8, width - 30), " km/h"):
            table.add_row(name, Text(drawn, "cyan"), number)
        low = reports.low_tanks()
        driving = Text.assemble("reports of driving trucks  ", (sparkline(reports.driving(), width - 28), "cyan"))
        tanks = ", ".join(low[:6]) + (f" and {len(low) - 6} more" if len(low) > 6 else "") if low else "none"
        return Group(table, driving, Text(f"low on fuel: {tanks}", "yellow" if low else "dim"))

    def _shop(self, width: int) -> RenderableType:
        reports = self._show.reports
        views = reports.views()
        if not views:
            return Text("comes with the pipelines", "dim")
        table = _table("page", "views in two minutes", "")
        for name, drawn, number in bars(views, max(8, width - 30)):
            table.add_row(name, Text(drawn, "magenta"), number)
        errors = "  ".join(f"{service} {rate:.0f}%" for service, rate in reports.error_rates().items())
        bought = Text.assemble("purchases  ", (sparkline(reports.purchases(), width - 12), "magenta"))
        return Group(table, bought, Text(f"lines that are errors: {errors}", "yellow"))

    def _happenings(self) -> RenderableType:
        lines = [
            Text.assemble((f"{each.seconds:6.1f} s  ", "dim"), each.text) for each in list(self._show.happenings)[-12:]
        ]
        return Group(*reversed(lines))

    # Rates.

    def _sample(self) -> None:
        show, now = self._show, self._clock()
        if show.traffic is None:
            return
        self._rate("acknowledged").sample(now, len(show.ledger.acknowledged))
        for name, group in show.traffic.groups.items():
            self._rate(name).sample(now, group.read)
        for name in PIPELINES:
            self._rate(f"pipeline {name}").sample(now, show.traffic.results.read.get(name, 0))

    def _rate(self, name: str) -> Rate:
        return self._rates.setdefault(name, Rate())


def _panel(title: str, body: RenderableType, why: str = "") -> Panel:
    subtitle = f"[dim]{why}[/]" if why else None
    return Panel(body, title=title, title_align="left", subtitle=subtitle, subtitle_align="left", border_style="dim")


def _keys(width: int) -> RenderableType:
    texts = [(key, what if width >= WIDE else short) for key, what, short in KEYS]
    return Text.assemble(*(part for key, text in texts for part in ((f" {key} ", "reverse"), f" {text}   ")))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", expand=False)
    for index, column in enumerate(columns):
        numeric = column in ("a second", "rows/s", "lag") or (not column and index == 2)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    return table


def _latency(latencies: Latencies) -> str:
    found = latencies.percentiles(0.5, 0.99)
    if found is None:
        return ""
    return " / ".join(f"{each:,.0f} ms" if each < 10_000 else f"{each / 1000:,.0f} s" for each in found)


def recorded(display: Display, width: int, height: int, title: str) -> str:
    """The page as a picture, in SVG, in whatever font of fixed width a reader has: none is fetched from elsewhere."""
    console = Console(record=True, width=width, height=height, file=StringIO(), force_terminal=True)
    console.print(display.page(console), height=height)
    svg = console.export_svg(title=title)
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code", "monospace")
