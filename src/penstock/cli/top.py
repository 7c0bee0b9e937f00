"""`penstock top`: watches a cluster live."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.arguments import connect
from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, Json, print_json, size_text

if TYPE_CHECKING:
    from rich.console import Console, Group

    from penstock.cli.top_view import Look, View

PLAIN_WIDTH = 140
GAP = 2


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one page and exit.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time between two refreshes.")] = 2.0,
    rows: Annotated[int, typer.Option(min=1, metavar="N", help="Number of topics and groups to show.")] = 15,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Watch a cluster live: brokers, the busiest topics, the groups with the largest lag. Ctrl-C ends it.

    LEADS is the number of partitions that a broker leads. IN SYNC is the number of its replicas that are in sync, of
    all its replicas. Rates in bytes come from the brokers' metrics (penstock.metrics.listener); without metrics, only
    rates computed from offsets are shown. A narrow terminal shows fewer columns. In a pipe or a file, and with --once
    or --json, the command prints one page.

    Examples:

        penstock top
        penstock top --once --interval 5
        penstock top --json | jq '.groups[] | select(.lag > 1000)'
    """
    from penstock.cli.top_view import Looker, compare
    from penstock.client.access import open_access

    with connect(bootstrap_server) as admin:
        looker = Looker(admin, internal=internal, properties=open_access(bootstrap_server).properties)
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
    parts: list[Any] = [title, state, Text(), _brokers(view, width), Text(), _topics(view, rows, width)]
    if view.groups:
        parts += [Text(), _groups(view, rows, width)]
    parts += [Text(each, style="dim") for each in look.notes]
    return Group(*parts)


def _table(columns: Mapping[str, Sequence[str]], expendable: Sequence[str], width: int, more: int = 0) -> Any:
    """Columns by heading; omits as many `expendable` ones as do not fit, and cuts what is then still too wide."""
    from rich.table import Table
    from rich.text import Text

    widths = {
        heading: GAP + max(len(heading), *(Text.from_markup(cell).cell_len for cell in cells), 0)
        for heading, cells in columns.items()
    }
    shown = dict(columns)
    for heading in expendable:
        if sum(widths[each] for each in shown) - GAP <= width:
            break
        del shown[heading]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for heading in shown:
        is_text = heading in ("BROKER", "ADDRESS", "TOPIC", "GROUP", "TYPE", "STATE")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=True, overflow="ellipsis")
    for row in zip(*shown.values(), strict=True):
        table.add_row(*row)
    if more > 0:
        table.add_row(f"[dim]and {more} more[/dim]")
    return table


def _brokers(view: View, width: int) -> Any:
    looks = [row.look for row in view.brokers]
    in_sync = [f"{look.in_sync}/{look.replicas}" for look in looks]
    columns = {
        "BROKER": [str(look.broker_id) for look in looks],
        "ADDRESS": [look.address for look in looks],
        "STATE": ["[red]down[/red]" if look.fenced else "up" for look in looks],
        "LEADS": [str(look.leads) for look in looks],
        "IN SYNC": [
            f"[red]{text}[/red]" if row.lacks else text for row, text in zip(view.brokers, in_sync, strict=True)
        ],
        "IN/s": [_size(row.bytes_in) for row in view.brokers],
        "OUT/s": [_size(row.bytes_out) for row in view.brokers],
        "REQUESTS/s": [_number(row.requests) for row in view.brokers],
        "CONNECTIONS": [_number(look.connections) for look in looks],
        "MEMORY": [_size(look.memory_bytes) for look in looks],
    }
    return _table(columns, ("CONNECTIONS", "MEMORY", "REQUESTS/s", "ADDRESS", "LEADS"), width)


def _topics(view: View, rows: int, width: int) -> Any:
    from rich.markup import escape

    shown = view.topics[:rows]
    columns = {
        "TOPIC": [escape(row.name) for row in shown],
        "PARTITIONS": [str(row.look.partitions) for row in shown],
        "REPLICAS": [str(row.look.replicas) for row in shown],
        "RECORDS/s": [_number(row.messages) for row in shown],
        "IN/s": [_size(row.bytes_in) for row in shown],
        "OUT/s": [_size(row.bytes_out) for row in shown],
        "SIZE": [_size(row.look.size) for row in shown],
        "RECORDS": [str(row.look.messages) for row in shown],
    }
    return _table(columns, ("REPLICAS", "RECORDS", "PARTITIONS", "SIZE"), width, len(view.topics) - rows)


def _groups(view: View, rows: int, width: int) -> Any:
    from rich.markup import escape

    shown = view.groups[:rows]
    columns = {
        "GROUP": [escape(row.name) for row in shown],
        "TYPE": [row.look.type for row in shown],
        "STATE": [row.look.state for row in shown],
        "MEMBERS": [str(row.look.members) for row in shown],
        "LAG": [str(row.look.lag) for row in shown],
        "READ/s": [_number(row.read) for row in shown],
    }
    return _table(columns, ("TYPE", "MEMBERS", "STATE"), width, len(view.groups) - rows)


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
                "type": row.look.type,
                "state": row.look.state,
                "members": row.look.members,
                "lag": row.look.lag,
                "records_per_second": row.read,
            }
            for row in view.groups
        ],
        "notes": list(look.notes),
    }
