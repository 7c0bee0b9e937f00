"""`penstock top`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, Json, print_json, size_text

if TYPE_CHECKING:
    from rich.console import Console, Group

    from penstock.cli.top_view import Look, View

PLAIN_WIDTH = 140


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one page and end.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Between two looks.")] = 2.0,
    rows: Annotated[int, typer.Option(min=1, metavar="N", help="How many topics and groups to show.")] = 15,
    internal: Annotated[bool, typer.Option("--internal", help="With internal topics.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Watch a cluster live: brokers, the busiest topics, the groups that are furthest behind. Ctrl-C ends it.

    LEADS are the partitions that a broker leads, IN SYNC its replicas that are, of all that it has. Rates in bytes come
    from the brokers' metrics (penstock.metrics.listener); without them there are those that follow from offsets.
    Into a pipe or a file, and with --once or --json, it is one page.

    Examples:

        penstock top
        penstock top --once --interval 5
        penstock top --json | jq '.groups[] | select(.lag > 1000)'
    """
    from penstock.cli.top_view import Looker, compare
    from penstock.client.admin import Admin

    with Admin(bootstrap_server) as admin:
        looker = Looker(admin, internal=internal)
        before = looker.look()
        if not (once or json) and sys.stdout.isatty():
            _watch(looker, before, interval, rows)
            return
        time.sleep(interval)
        view = compare(before, looker.look())
    if json:
        print_json(_as_json(view))
    else:
        console = _console()
        console.print(_page(view, rows, console.width))


def _watch(looker: Any, before: Look, interval: float, rows: int) -> None:
    from rich.live import Live

    from penstock.cli.top_view import compare
    from penstock.client.errors import ClientError
    from penstock.model.errors import KafkaError

    console = _console()
    page = _page(compare(None, before), rows, console.width)
    try:
        with Live(page, console=console, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                try:
                    now = looker.look()
                except (ClientError, KafkaError) as error:
                    live.update(_lost(page, str(error)), refresh=True)
                    continue
                page = _page(compare(before, now), rows, console.width)
                live.update(page, refresh=True)
                before = now
    except KeyboardInterrupt:
        return


def _console() -> Console:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def _lost(page: Group, error: str) -> Group:
    from rich.console import Group
    from rich.text import Text

    return Group(Text(f"no answer: {error}; these numbers are old", style="bold red"), page)


def _page(view: View, rows: int, width: int) -> Group:
    from rich.console import Group
    from rich.text import Text

    look = view.look
    partitions = sum(topic.partitions for topic in look.topics.values())
    facts = [
        f"cluster {look.cluster_id}",
        f"{sum(not broker.fenced for broker in look.brokers.values())} of {len(look.brokers)} brokers",
        f"{len(look.topics)} topics, {partitions} partitions",
        *([look.controller] if look.controller else []),
    ]
    title = Text("  ".join(facts), style="bold")
    trouble = [
        f"{count} {what}"
        for count, what in ((view.look.offline, "without a leader"), (view.look.under_replicated, "under-replicated"))
        if count
    ]
    state = Text(", ".join(trouble) if trouble else "all partitions in sync", style="red" if trouble else "green")
    parts: list[Any] = [title, state, Text(), _brokers(view), Text(), _topics(view, rows)]
    if view.groups:
        parts += [Text(), _groups(view, rows)]
    parts += [Text(each, style="dim") for each in look.notes]
    return Group(*parts)


def _table(*columns: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        is_text = column in ("BROKER", "ADDRESS", "TOPIC", "GROUP", "STATE")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=True, overflow="ellipsis")
    return table


def _brokers(view: View) -> Any:
    table = _table(
        "BROKER", "ADDRESS", "STATE", "LEADS", "IN SYNC", "IN/s", "OUT/s", "REQUESTS/s", "CONNECTIONS", "MEMORY"
    )
    for row in view.brokers:
        look = row.look
        table.add_row(
            str(look.broker_id),
            look.address,
            "[red]down[/red]" if look.fenced else "up",
            str(look.leads),
            f"{look.in_sync}/{look.replicas}" if not row.lacks else f"[red]{look.in_sync}/{look.replicas}[/red]",
            _size(row.bytes_in),
            _size(row.bytes_out),
            _number(row.requests),
            _number(look.connections),
            _size(look.memory_bytes),
        )
    return table


def _topics(view: View, rows: int) -> Any:
    table = _table("TOPIC", "PARTITIONS", "REPLICAS", "RECORDS/s", "IN/s", "OUT/s", "SIZE", "RECORDS")
    for row in view.topics[:rows]:
        table.add_row(
            row.name,
            str(row.look.partitions),
            str(row.look.replicas),
            _number(row.messages),
            _size(row.bytes_in),
            _size(row.bytes_out),
            _size(row.look.size),
            str(row.look.messages),
        )
    if len(view.topics) > rows:
        table.add_row(f"[dim]and {len(view.topics) - rows} more[/dim]")
    return table


def _groups(view: View, rows: int) -> Any:
    from rich.markup import escape

    table = _table("GROUP", "STATE", "MEMBERS", "LAG", "READ/s")
    for row in view.groups[:rows]:
        look = row.look
        table.add_row(escape(row.name), look.state, str(look.members), str(look.lag), _number(row.read))
    if len(view.groups) > rows:
        table.add_row(f"[dim]and {len(view.groups) - rows} more[/dim]")
    return table


def _size(value: float | None) -> str:
    return "-" if value is None else size_text(value)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _as_json(view: View) -> dict[str, Any]:
    look = view.look
    return {
        "cluster_id": look.cluster_id,
        "controller": look.controller,
        "under_replicated": view.look.under_replicated,
        "offline": view.look.offline,
        "brokers": [
            {
                "broker": row.look.broker_id,
                "address": row.look.address,
                "fenced": row.look.fenced,
                "leads": row.look.leads,
                "in_sync": row.look.in_sync,
                "replicas": row.look.replicas,
                "bytes_in_per_second": row.bytes_in,
                "bytes_out_per_second": row.bytes_out,
                "requests_per_second": row.requests,
                "connections": row.look.connections,
                "memory_bytes": row.look.memory_bytes,
            }
            for row in view.brokers
        ],
        "topics": [
            {
                "topic": row.name,
                "partitions": row.look.partitions,
                "replicas": row.look.replicas,
                "under_replicated": row.look.under_replicated,
                "records_per_second": row.messages,
                "bytes_in_per_second": row.bytes_in,
                "bytes_out_per_second": row.bytes_out,
                "size_bytes": row.look.size,
                "records": row.look.messages,
            }
            for row in view.topics
        ],
        "groups": [
            {
                "group": row.name,
                "state": row.look.state,
                "members": row.look.members,
                "lag": row.look.lag,
                "records_per_second": row.read,
            }
            for row in view.groups
        ],
        "notes": list(look.notes),
    }
