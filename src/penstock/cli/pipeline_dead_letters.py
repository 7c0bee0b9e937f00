"""`penstock pipeline dead-letters`: shows why records became dead letters, with counts and samples."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.output import Json, note, print_json, print_table, quiet_librdkafka
from penstock.cli.pipeline_cluster import DeadLetterTarget, Environment, PipelineBootstrap, Settings, dead_letters_of

if TYPE_CHECKING:
    from penstock.pipelines.operate.dead_letters import Cause, CauseSummary, Letter

_CAUSES_MAX = 20
_VALUE_MAX = 500


def dead_letters(
    target: DeadLetterTarget,
    env: Environment = None,
    settings: Settings = None,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Only letters whose reason contains this text.", show_default=False)
    ] = "",
    sample: Annotated[int, typer.Option(min=0, metavar="N", help="How many records to show for each reason.")] = 1,
    last: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Read only the newest N of each partition.", show_default="all"),
    ] = None,
    bootstrap_server: PipelineBootstrap = None,
    json: Json = False,
) -> None:
    """Show why records became dead letters: how many for each reason, and the newest of them. Needs no Spark.

    REPLAYED counts the letters that `replay-dead-letters` has sent back. Of a file, only the letters of its pipeline
    count.

    Examples:

        penstock pipeline dead-letters orders.yaml
        penstock pipeline dead-letters orders.dead-letters --reason amount --sample 5
    """
    from penstock.pipelines.operate.dead_letters import Selection
    from penstock.pipelines.operate.replay import DeadLetterTopic

    topic, owner, bootstrap = dead_letters_of(target, env, settings, bootstrap_server)
    quiet_librdkafka()
    selection = Selection(reason=reason, pipeline=owner)
    found = DeadLetterTopic(bootstrap, topic).summary(selection, last=last, samples=sample)
    if json:
        print_json({"topic": topic, "causes": [_machine(cause, each) for cause, each in found.items()]})
        return
    shown = list(found.items())[:_CAUSES_MAX]
    print_table(
        ["LETTERS", "REPLAYED", "PIPELINE", "TOPIC", "FIELD", "REASON", "LAST"],
        [
            [each.letters, each.replayed, cause.pipeline, cause.source, cause.field, cause.reason, _time(each.last_ms)]
            for cause, each in shown
        ],
    )
    for cause, each in shown:
        if each.samples:
            print(f"\n{cause.reason}:")
        for letter in each.samples:
            key = f", key {_text(letter.key)}" if letter.key is not None else ""
            print(f"  {letter.origin or 'a row of no topic'}{key}")
            print(f"    {_text(letter.value)}")
    if len(found) > len(shown):
        note(f"and {len(found) - len(shown)} more reasons: --json shows them all")
    total = sum(each.letters for each in found.values())
    print(f"{'' if not shown else chr(10)}{topic}: {total} dead letter{'' if total == 1 else 's'}")


def _machine(cause: Cause, summary: CauseSummary) -> dict[str, Any]:
    return {
        **cause._asdict(),
        "letters": summary.letters,
        "replayed": summary.replayed,
        "first_ms": summary.first_ms,
        "last_ms": summary.last_ms,
        "samples": [_sample(letter) for letter in summary.samples],
    }


def _sample(letter: Letter) -> dict[str, Any]:
    return {
        "partition": letter.partition,
        "offset": letter.offset,
        "origin": letter.origin,
        "timestamp_ms": letter.timestamp_ms,
        "key": None if letter.key is None else letter.key.decode(errors="replace"),
        "value": None if letter.value is None else letter.value.decode(errors="replace"),
    }


def _text(value: bytes | None) -> str:
    """One line, safe to print."""
    if value is None:
        return "null"
    text = value.decode(errors="replace")
    shown = text if text.isprintable() else repr(text)
    return shown if len(shown) <= _VALUE_MAX else f"{shown[:_VALUE_MAX]}... ({len(value)} bytes)"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
