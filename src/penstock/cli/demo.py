"""`penstock demo`: runs a cluster, trucks, a web shop and pipelines on Spark, in one command."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.output import Json, fail, print_json, silence

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.demo.demo import Demo, DemoResult

HEADLESS_S = 30.0
RATE = 400.0


def demo(
    duration: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="Duration, from when everything is running.",
            show_default="until q is pressed; 30 with --headless",
        ),
    ] = None,
    headless: Annotated[
        bool,
        typer.Option("--headless", help="Run without display and keys; incidents happen automatically."),
    ] = False,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Run only the cluster and the events; install nothing.")
    ] = False,
    rate: Annotated[float, typer.Option(min=1.0, metavar="N", help="Events per second.")] = RATE,
    picture: Annotated[str | None, typer.Option(hidden=True, metavar="FILE", help="Write the display as SVG.")] = None,
    json: Json = False,
) -> None:
    """Run three brokers, a fleet of trucks and a web shop that write events, and Spark pipelines that read them.

    Kill a broker and restart it, send undecodable records, replay them: the display shows what happens. The cluster
    runs within seconds. If Spark is missing, the demo installs it into this Python environment in the meantime (a
    download of 550 to 700 MB), together with Java. When the demo ends, it leaves no process and no file behind, except
    what it installed, and what makes Spark's next start faster, in ~/.cache/penstock.

    Exits with status 0 only if every acknowledged event came out of its topic and out of its pipeline exactly once,
    counted by key and sequence. If the reader of a headless demo's output goes away, the demo ends at once and counts
    nothing.

    Examples:

        penstock demo
        penstock demo --no-spark
        penstock demo --headless --duration 60
    """
    from penstock.demo.demo import Demo

    if not (headless or json) and not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail("the display needs a terminal; without one, add --headless")
    lines = _lines(json) if headless or json else None
    running = Demo(rate=rate, spark=not no_spark, report=lines or (lambda text: None))
    try:
        with _signals(running):
            if lines is not None:
                result = _headless(running, duration or HEADLESS_S, picture)
            else:
                result = _interactive(running, duration)
    finally:
        running.close()
    if running.interrupted:
        raise KeyboardInterrupt
    if running.output_closed:
        fail("the demo's output was closed; the demo has ended and checked nothing")
    _conclude(result, json, spark=not no_spark)


def _headless(running: Demo, duration: float, picture: str | None) -> DemoResult | None:
    from penstock.demo.headless import run_headless, run_with_picture

    if picture is None:
        return run_headless(running, duration)
    return run_with_picture(running, duration, picture)


def _interactive(running: Demo, duration: float | None) -> DemoResult | None:
    from penstock.demo.interactive import run_interactive

    return run_interactive(running, duration, _console(wraps=True))


def _conclude(result: DemoResult | None, json: bool, *, spark: bool) -> None:
    if result is None:
        fail("the demo failed before events flowed")
    if json:
        print_json(_machine(result))
    else:
        console = _console(wraps=False)  # a file has no width
        console.print()
        for verdict in result.verdicts:
            colour = "green" if verdict.is_good else "bold red"
            console.print(f"  {verdict.output:<16} [{colour}]{verdict.text}[/]")
        if spark and len(result.verdicts) == 1:
            console.print("  pipelines        [yellow]were not running yet, and are not checked[/]")
        console.print(
            f"  incidents        brokers killed {result.kills}, poison records {result.poison}, "
            f"dead letters replayed {result.replayed}"
        )
        pipelines = "" if len(result.verdicts) == 1 else f", pipelines running after {result.running_seconds:.0f} s"
        console.print(
            f"  time             cluster running after {result.started_seconds:.1f} s{pipelines}, "
            f"{result.seconds:.0f} s in total"
        )
        console.print()
    if not result.is_good:
        bad = [f"{verdict.output}: {verdict.text}" for verdict in result.verdicts if not verdict.is_good]
        if not result.verdicts:
            fail("nothing was checked: the demo ended before the last events had come out")
        fail(f"the demo failed: {'; '.join([*result.failures, *bad]) or 'nothing was acknowledged'}")
    if not json:
        _console(wraps=False).print("[bold green]Nothing was lost, and nothing came twice.[/]")


def _machine(result: DemoResult) -> dict[str, Any]:
    return {
        "acknowledged": result.acknowledged,
        "outputs": {
            verdict.output: {
                "arrived": verdict.arrived,
                "missing": len(verdict.missing),
                "doubled": verdict.doubled,
                "dead_letters": verdict.dead_letters,
            }
            for verdict in result.verdicts
        },
        "brokers_killed": result.kills,
        "poison": result.poison,
        "replayed": result.replayed,
        "failures": list(result.failures),
        "seconds_to_cluster": round(result.started_seconds, 1),
        "seconds_to_pipelines": round(result.running_seconds, 1),
        "seconds": round(result.seconds, 1),
    }


def _console(*, wraps: bool) -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not wraps)


def _lines(json: bool) -> Any:
    import time

    began = time.monotonic()
    stream = sys.stderr if json else sys.stdout

    def say(text: str) -> None:
        try:
            print(f"{time.monotonic() - began:6.1f} s  {text}", file=stream, flush=True)
        except BrokenPipeError:
            silence(stream)
            raise

    return say


@contextlib.contextmanager
def _signals(running: Demo) -> Iterator[None]:
    """Ctrl-C, SIGTERM and the end of the terminal all end the demo, with cleanup."""

    def stop(number: int, frame: FrameType | None) -> None:
        running.interrupt()

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        if not running.interrupted:
            for number, handler in handlers.items():
                signal.signal(number, handler)
