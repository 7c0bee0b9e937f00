"""`penstock demo`: a cluster, trucks, a web shop and pipelines on Spark, in one command."""

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

    from penstock.demo.script import Outcome
    from penstock.demo.show import Show

HEADLESS_SECONDS = 30.0
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
    what it installed.

    Exits with status 0 only if every acknowledged event came out of its topic and out of its pipeline exactly once,
    counted by key and sequence. If the reader of a headless demo's output goes away, the demo ends at once and counts
    nothing.

    Examples:

        penstock demo
        penstock demo --no-spark
        penstock demo --headless --duration 60
    """
    from penstock.demo.show import Show

    if not (headless or json) and not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail("the display needs a terminal; without one, add --headless")
    lines = _lines(json) if headless or json else None
    show = Show(rate=rate, spark=not no_spark, tell=lines or (lambda text: None))
    try:
        with _signals(show):
            if lines is not None:
                outcome = _headless(show, duration or HEADLESS_SECONDS, picture)
            else:
                outcome = _interactive(show, duration)
    finally:
        show.close()
    if show.interrupted:
        raise KeyboardInterrupt
    if show.is_unheard:
        fail("nobody reads what the demo says; it has ended, and nothing was counted")
    _conclude(outcome, json, spark=not no_spark)


def _headless(show: Show, duration: float, picture: str | None) -> Outcome | None:
    from penstock.demo.script import perform

    if picture is None:
        return perform(show, duration)
    from penstock.demo.picture import pictured

    return pictured(show, duration, picture)


def _interactive(show: Show, duration: float | None) -> Outcome | None:
    from penstock.demo.stage import play

    return play(show, duration, _console(wraps=True))


def _conclude(outcome: Outcome | None, json: bool, *, spark: bool) -> None:
    if outcome is None:
        fail("the demo failed before events flowed")
    if json:
        print_json(_machine(outcome))
    else:
        console = _console(wraps=False)  # a file has no width
        console.print()
        for verdict in outcome.verdicts:
            colour = "green" if verdict.is_good else "bold red"
            console.print(f"  {verdict.output:<16} [{colour}]{verdict.text}[/]")
        if spark and len(outcome.verdicts) == 1:
            console.print("  pipelines        [yellow]were not at work yet, and are not judged[/]")
        console.print(
            f"  meanwhile        brokers killed {outcome.kills}, poison records {outcome.poison}, "
            f"dead letters replayed {outcome.replayed}"
        )
        pipelines = "" if len(outcome.verdicts) == 1 else f", pipelines after {outcome.working_seconds:.0f} s"
        console.print(
            f"  time             cluster at work after {outcome.started_seconds:.1f} s{pipelines}, "
            f"{outcome.seconds:.0f} s in all"
        )
        console.print()
    if not outcome.is_good:
        bad = [f"{verdict.output}: {verdict.text}" for verdict in outcome.verdicts if not verdict.is_good]
        if not outcome.verdicts:
            fail("nothing was counted: the demo was ended before the last events had come out")
        fail(f"the demo failed: {'; '.join([*outcome.failures, *bad]) or 'nothing was acknowledged'}")
    if not json:
        _console(wraps=False).print("[bold green]Nothing was lost, and nothing came twice.[/]")


def _machine(outcome: Outcome) -> dict[str, Any]:
    return {
        "acknowledged": outcome.acknowledged,
        "outputs": {
            verdict.output: {
                "arrived": verdict.arrived,
                "missing": len(verdict.missing),
                "doubled": verdict.doubled,
                "dead_letters": verdict.letters,
            }
            for verdict in outcome.verdicts
        },
        "brokers_killed": outcome.kills,
        "poison": outcome.poison,
        "replayed": outcome.replayed,
        "failures": list(outcome.failures),
        "seconds_to_cluster": round(outcome.started_seconds, 1),
        "seconds_to_pipelines": round(outcome.working_seconds, 1),
        "seconds": round(outcome.seconds, 1),
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
def _signals(show: Show) -> Iterator[None]:
    """Ctrl-C, SIGTERM and the end of the terminal all end the demo, with cleanup."""

    def stop(number: int, frame: FrameType | None) -> None:
        show.interrupt()

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        if not show.interrupted:
            for number, handler in handlers.items():
                signal.signal(number, handler)
