"""`penstock demo`: a broker at work, in one command.

It starts a real node in a temporary directory, writes a stream of events with an idempotent producer while a consumer
reads them; it succeeds only if every acknowledged event was read back, once and in order. At the end it shows the files
this left on disk.
"""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import Json, fail, print_json, size_text

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.cli.demo_stream import EventStream
    from penstock.local.node import LocalNode

TOPIC = "events"
PARTITIONS = 3
# Small enough for a short demo to roll segments.
PROPERTIES = {"log.segment.bytes": str(8 * 1024 * 1024), "log.index.interval.bytes": "4096"}
_REFRESH_SECONDS = 0.1
_DUMP_LINES = 4


def demo(
    duration: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How long to write events.")] = 10.0,
    headless: Annotated[bool, typer.Option("--headless", help="No live display; plain lines.")] = False,
    json: Json = False,
) -> None:
    """Start a broker, stream events through it, and show what is on disk.

    Ends with status 0 only if everything that was acknowledged was read back.

    Example:

        penstock demo --duration 5
    """
    from rich.console import Console

    from penstock.local.node import LocalNode
    from penstock.local.ports import free_ports

    console = Console(stderr=json, highlight=False)
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        node = LocalNode(
            1, os.path.join(directory, "node-1"), host="127.0.0.1", port=free_ports(1)[0], properties=PROPERTIES
        )
        try:
            stream = _run(node, duration, headless or json, console)
        finally:
            node.stop()
    result = {
        "acknowledged": stream.acknowledged,
        "read": stream.read,
        "seconds": round(stream.write_seconds, 3),
        "records_per_second": round(stream.acknowledged / stream.write_seconds),
    }
    if json:
        print_json(result)
    problem = stream.problem()
    if problem is not None:
        fail(f"the demo failed: {problem}")
    console.print(
        f"[bold green]All {stream.acknowledged:,} acknowledged events were read back,[/] each once and in order."
    )


def _run(node: LocalNode, duration: float, plain: bool, console: Console) -> EventStream:
    from penstock.cli.demo_stream import EventStream
    from penstock.client.admin import Admin

    console.print("starting a broker ...")
    node.start()
    node.wait_ready()
    console.print(f"[bold]ready {node.address}[/]  any Kafka client can connect")
    with Admin(node.address) as admin:
        admin.topics.create(TOPIC, partitions=PARTITIONS)
    console.print(f"topic [bold]{TOPIC}[/], {PARTITIONS} partitions; writing and reading for {duration:g} s")
    stream = EventStream(node.address, TOPIC, PARTITIONS)
    stream.start(duration)
    if plain:
        stream.wait()
    else:
        _display(stream, duration, console)
    console.print(
        f"wrote {stream.acknowledged:,} events ({size_text(stream.bytes_written)}) "
        f"at {stream.acknowledged / stream.write_seconds:,.0f}/s; read {stream.read:,}"
    )
    _show_files(node.data_path, console)
    return stream


def _display(stream: EventStream, duration: float, console: Console) -> None:
    from rich.live import Live
    from rich.table import Table

    previous = (0.0, 0, 0)
    rates = (0.0, 0.0)

    def frame(elapsed: float) -> Table:
        nonlocal previous, rates
        if elapsed - previous[0] >= 0.5:
            passed = elapsed - previous[0]
            rates = ((stream.acknowledged - previous[1]) / passed, (stream.read - previous[2]) / passed)
            previous = (elapsed, stream.acknowledged, stream.read)
        table = Table(box=None, pad_edge=False)
        for name in ("", "events", "events/s"):
            table.add_column(name, justify="right" if name else "left", min_width=12)
        table.add_row("acknowledged", f"{stream.acknowledged:,}", f"{rates[0]:,.0f}")
        table.add_row("read back", f"{stream.read:,}", f"{rates[1]:,.0f}")
        done = int(min(1.0, elapsed / duration) * 30)
        table.add_row("time", f"[green]{'━' * done}[/][dim]{'━' * (30 - done)}[/]", f"{min(elapsed, duration):.1f} s")
        return table

    with Live(frame(0), console=console, refresh_per_second=10) as live:
        while not stream.wait(_REFRESH_SECONDS):
            live.update(frame(stream.elapsed))
        live.update(frame(stream.elapsed))


def _show_files(data: str, console: Console) -> None:
    """The files of one partition, and the last batches of its last segment."""
    from penstock.cli.dump import dump
    from penstock.cli.log import text_of

    partition = os.path.join(data, f"{TOPIC}-0")
    names = sorted(os.listdir(partition))
    console.print(f"\non disk, {TOPIC}-0 (Kafka's own file formats):")
    for name in names:
        console.print(f"  {name:<32} {size_text(os.path.getsize(os.path.join(partition, name))):>10}", style="cyan")
    segment = [name for name in names if name.endswith(".log")][-1]
    console.print(f"\npenstock log dump --records {segment}   [dim](the first lines)[/]")
    entries = dump(os.path.join(partition, segment), records=True, limit=_DUMP_LINES)
    for entry in entries:
        console.print(f"  {text_of(entry)}", style="dim", markup=False, soft_wrap=True)
    console.print()
