"""`penstock pipeline replay-dead-letters`: sends dead letters back to their topics."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import Json, print_json, print_table, quiet_librdkafka
from penstock.cli.pipeline_cluster import DeadLetterTarget, Environment, PipelineBootstrap, Settings, dead_letters_of

if TYPE_CHECKING:
    from penstock.pipelines.operate.replay import ReplayResult


def replay_dead_letters(
    target: DeadLetterTarget,
    env: Environment = None,
    settings: Settings = None,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Only letters whose reason contains this text.", show_default=False)
    ] = "",
    pipeline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Only letters of this pipeline; default: the pipeline of the file.", show_default=False
        ),
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            metavar="TOPIC", help="Topic to send to; default: the topic each record was read from.", show_default=False
        ),
    ] = "",
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Send at most this many letters.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the letters that would be sent.")] = False,
    bootstrap_server: PipelineBootstrap = None,
    json: Json = False,
) -> None:
    """Send dead letters back to the topics they were read from, each once. Use it after you have fixed the cause.

    A record is sent with its original key, value, headers, timestamp and partition, plus the headers `replayed.*`. Each
    letter is sent once, no matter how often you run the command, and even if it is killed halfway. A record that fails
    again becomes a new letter.

    Examples:

        penstock pipeline replay-dead-letters orders.yaml --dry-run
        penstock pipeline replay-dead-letters orders.dead-letters --reason "not JSON"
    """
    from penstock.pipelines.operate.dead_letters import Selection
    from penstock.pipelines.operate.replay import DeadLetterTopic

    topic, owner, bootstrap = dead_letters_of(target, env, settings, bootstrap_server)
    quiet_librdkafka()
    selection = Selection(reason=reason, pipeline=owner if pipeline is None else pipeline)
    letters = DeadLetterTopic(bootstrap, topic)
    if dry_run:
        outcome = letters.count(selection, to, limit=limit)
    else:
        with _bar(letters.size) as progress:
            outcome = letters.replay(selection, to, limit=limit, progress=progress)
    sent = sum(outcome.chosen.values())
    if json:
        kinds = [{**kind._asdict(), "letters": count} for kind, count in sorted(outcome.chosen.items(), key=str)]
        left = {"replayed_before": outcome.before, "passed_over": outcome.others, "without_topic": outcome.homeless}
        print_json({"topic": topic, "executed": not dry_run, "letters": sent, **left, "kinds": kinds})
        return
    print_table(
        ["LETTERS", "PIPELINE", "TOPIC", "REASON"],
        [[count, *kind] for kind, count in sorted(outcome.chosen.items(), key=lambda each: -each[1])],
    )
    print(f"{topic}: {sent} {'would be sent' if dry_run else 'sent'}{_others(outcome)}")


def _others(outcome: ReplayResult) -> str:
    counts = {
        "sent before": outcome.before,
        "not asked for": outcome.others,
        "no records of a topic (--to sends them)": outcome.homeless,
    }
    return "".join(f", {count} {what}" for what, count in counts.items() if count)


@contextmanager
def _bar(size: Callable[[], int]) -> Iterator[Callable[[int], None]]:
    if not sys.stderr.isatty():
        yield lambda read: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("dead letters", total=size())
        yield lambda read: bar.advance(task, read)
        bar.update(task, completed=bar.tasks[0].total)
