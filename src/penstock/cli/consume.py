"""`penstock consume`: print records from a given offset, or from a group's position."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.arguments import connect
from penstock.cli.consume_share import consume_share
from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, Json, fail, patiently
from penstock.cli.reading import GroupReading, Reading, Span
from penstock.cli.records import LibrdkafkaPairs, formatter, librdkafka_settings
from penstock.model.ids import TopicPartition

_PROTOCOLS = ("classic", "consumer")
_COMMIT_MS = 1000


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start at the first record.")] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            metavar="OFFSET",
            help="Where to start: earliest, latest, an offset, -N for the last N, @MILLISECONDS for a time.",
            show_default="latest",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Read only this partition; repeatable.")
    ] = None,
    max_messages: Annotated[
        int | None,
        typer.Option("--max-messages", "-n", min=1, help="Exit after this many records.", show_default=False),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Exit when no record arrives for this long.", show_default=False),
    ] = None,
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="Exit at the current end of the topic.")] = False,
    format_: Annotated[
        str,
        typer.Option(
            "--format", "-f", metavar="FORMAT", help="Output format: value, key, json, or a template such as '%k %v'."
        ),
    ] = "value",
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="Print the key, this text, and the value."),
    ] = None,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Read only records of committed transactions.")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", metavar="GROUP", help="Read as a member of this group, and commit.", show_default=False
        ),
    ] = None,
    group_protocol: Annotated[
        str | None,
        typer.Option(metavar="PROTOCOL", help="With --group: classic or consumer (KIP-848).", show_default="classic"),
    ] = None,
    share: Annotated[
        bool, typer.Option("--share", help="With --group: take records as from a queue, in a share group.")
    ] = False,
    progress: Annotated[bool, typer.Option("--progress", help="Print counts and rates to stderr.")] = False,
    properties: LibrdkafkaPairs = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Print the records of all partitions of a topic, from now on or from where you say.

    With [bold]--group[/bold], several instances of this command share the partitions, and each record goes to one of
    them. Printed records are committed, and the next instance continues after them. --from-beginning then applies only
    to partitions in which the group has committed nothing.

    With [bold]--share[/bold], the group is a share group: any number of instances take records from the same partition,
    and a record that is printed is done. A new share group starts at the end of the topic; `penstock share-groups
    reset-offsets` moves it.

    A template for [bold]--format[/bold] may contain %v value, %k key, %h headers, %t topic, %p partition, %o offset,
    %T timestamp, and \\n \\t.

    Examples:

        penstock consume orders --from-beginning -e
        penstock consume orders --offset -10 --format '%p:%o %k %v'
        penstock consume orders -n 1 --json | jq .headers
        penstock consume orders --group billing --from-beginning
        penstock consume jobs --group workers --share
    """
    if from_beginning and offset not in (None, "earliest"):
        fail("--from-beginning and --offset contradict each other")
    template = "json" if json else format_
    if key_separator is not None:
        template = "%k" + key_separator.replace("%", "%%") + "%v"
    render = formatter(template)
    if share:
        if not group:
            fail("--share needs the name of a share group: give --group")
        if from_beginning or offset or partition or exit_at_end or group_protocol or read_committed or properties:
            fail(
                "--share goes with --group, --max-messages, --timeout and --format: where a share group reads is set "
                "by penstock share-groups reset-offsets, and how by the settings of the group"
            )
        consume_share(bootstrap_server, topic, group, render, max_messages=max_messages, timeout=timeout)
        return
    start = _starting_point("earliest" if from_beginning else offset or "latest")
    settings: dict[str, Any] = {
        "enable.partition.eof": True,
        "isolation.level": "read_committed" if read_committed else "read_uncommitted",
        "fetch.queue.backoff.ms": 0,
        "topic.metadata.refresh.interval.ms": 60_000,
    }
    if group is None:
        if group_protocol is not None:
            fail("--group-protocol says how to join a group: give --group, too")
        settings |= {
            "group.id": "penstock-cli",  # librdkafka requires one; it is not used with an assignment
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
        kind = Reading
    else:
        settings |= _group_settings(group, group_protocol, offset, partition, from_beginning)
        kind = GroupReading
    spans = _spans(bootstrap_server, topic, partition, start)
    reading = kind(topic, render, max_messages, timeout, exit_at_end, progress, spans)
    reading.run(librdkafka_settings(bootstrap_server, properties, **settings))


def _group_settings(
    group: str, protocol: str | None, offset: str | None, partition: list[int] | None, from_beginning: bool
) -> dict[str, Any]:
    if not group:
        fail("--group: a group has a name of at least one character")
    if partition:
        fail("--partition and --group contradict each other: a group shares out the partitions by itself")
    if offset is not None:
        fail(
            "--offset and --group contradict each other: a group goes on from where it was "
            "(penstock groups reset-offsets moves it)"
        )
    if protocol not in (None, *_PROTOCOLS):
        fail(f"--group-protocol {protocol!r} is neither classic nor consumer")
    return {
        "group.id": group,
        "group.protocol": protocol or "classic",
        "enable.auto.commit": True,
        "enable.auto.offset.store": False,
        "auto.commit.interval.ms": _COMMIT_MS,
        "auto.offset.reset": "earliest" if from_beginning else "latest",
    }


def _starting_point(text: str) -> tuple[str, int]:
    """The parsed `--offset`: ("earliest", 0), ("latest", 0), ("offset", n), ("last", n) or ("time", ms)."""
    if text in ("earliest", "latest"):
        return text, 0
    kind = {"-": "last", "@": "time"}.get(text[:1], "offset")
    number = text if kind == "offset" else text[1:]
    if not number.isdecimal():
        fail(f"--offset {text!r} is none of earliest, latest, OFFSET, -N, @MILLISECONDS")
    return kind, int(number)


def _spans(bootstrap_server: str, topic: str, wanted: list[int] | None, start: tuple[str, int]) -> dict[int, Span]:
    """Start and end offset of each partition. Uses our own client, which fails at once with a reason."""
    from penstock.client.wire.admin.topics import EARLIEST, LATEST

    with connect(bootstrap_server) as admin:
        (description,) = patiently(lambda: admin.topics.describe([topic]))
        existing = [partition.partition for partition in description.partitions]
        for partition in wanted or ():
            if partition not in existing:
                fail(f"topic {topic!r} has no partition {partition}, only {len(existing)} in all")
        chosen = [TopicPartition(topic, partition) for partition in sorted(set(wanted or existing))]
        kind, number = start
        first = admin.topics.offsets(chosen, EARLIEST)
        end = admin.topics.offsets(chosen, LATEST)
        by_time = admin.topics.offsets(chosen, number) if kind == "time" else {}
    spans: dict[int, Span] = {}
    for each in chosen:
        match kind:
            case "earliest":
                begin = first[each]
            case "latest":
                begin = end[each]
            case "last":
                begin = max(first[each], end[each] - number)
            case "time":
                begin = by_time[each] if by_time[each] >= 0 else end[each]
            case _:
                if not first[each] <= number <= end[each]:
                    fail(f"{each} has offsets {first[each]} to {end[each]}; {number} is not among them")
                begin = number
        spans[each.partition] = Span(begin, end[each])
    return spans
