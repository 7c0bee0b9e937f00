"""`penstock consume`: records to stdout.

Partitions are assigned, not subscribed to: no group is formed and no offset is committed.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, Json, fail, note
from penstock.cli.records import LibrdkafkaPairs, formatter, librdkafka_settings
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Consumer, KafkaError, Message

_POLL_SECONDS = 0.05
_BATCH = 1000
_PROGRESS_SECONDS = 0.5


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="From the first record there is.")] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            metavar="OFFSET",
            help="Where to begin: earliest, latest, an offset, -N for the last N, @MILLISECONDS for a time.",
            show_default="latest",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; repeatable.")
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="End after so many.", show_default=False)
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="End when none came for so long.", show_default=False)
    ] = None,
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="End at what is the end of the topic now.")] = False,
    format_: Annotated[
        str, typer.Option("--format", "-f", metavar="FORMAT", help="value, key, json, or a template such as '%k %v'.")
    ] = "value",
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="Print key, this, and value.")
    ] = None,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Only records of committed transactions.")
    ] = False,
    progress: Annotated[bool, typer.Option("--progress", help="Counts and rates on stderr.")] = False,
    properties: LibrdkafkaPairs = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Print the records of a topic, all partitions, from now on or from where you say.

    A template of [bold]--format[/bold] knows %v value, %k key, %h headers, %t topic, %p partition, %o offset,
    %T timestamp, and \\n \\t.

    Examples:

        penstock consume orders --from-beginning -e
        penstock consume orders --offset -10 --format '%p:%o %k %v'
        penstock consume orders -n 1 --json | jq .headers
    """
    if from_beginning and offset not in (None, "earliest"):
        fail("--from-beginning and --offset contradict each other")
    template = "json" if json else format_
    if key_separator is not None:
        template = "%k" + key_separator.replace("%", "%%") + "%v"
    render = formatter(template)
    start = _starting_point("earliest" if from_beginning else offset or "latest")
    spans = _spans(bootstrap_server, topic, partition, start)
    settings = librdkafka_settings(
        bootstrap_server,
        properties,
        group_id="penstock-cli",  # librdkafka wants one; with an assignment it is not used
        enable_auto_commit=False,
        enable_partition_eof=True,
        auto_offset_reset="error",
        isolation_level="read_committed" if read_committed else "read_uncommitted",
        fetch_queue_backoff_ms=0,
        **({"topic.metadata.refresh.interval.ms": 60_000}),
    )
    reading = _Reading(render, max_messages, timeout, exit_at_end, progress, spans)
    reading.run(settings, topic)


def _starting_point(text: str) -> tuple[str, int]:
    """What `--offset` says: ("earliest", 0), ("latest", 0), ("offset", n), ("last", n) or ("time", ms)."""
    if text in ("earliest", "latest"):
        return text, 0
    kind = {"-": "last", "@": "time"}.get(text[:1], "offset")
    number = text if kind == "offset" else text[1:]
    if not number.isdecimal():
        fail(f"--offset {text!r} is none of earliest, latest, OFFSET, -N, @MILLISECONDS")
    return kind, int(number)


class _Span(NamedTuple):
    begin: int
    end: int


def _spans(bootstrap_server: str, topic: str, wanted: list[int] | None, start: tuple[str, int]) -> dict[int, _Span]:
    """Where to begin and where the end is, by partition. Our own client asks: it fails at once, and says why."""
    from penstock.client.admin import Admin
    from penstock.client.admin.topics import EARLIEST, LATEST

    with Admin(bootstrap_server) as admin:
        (description,) = admin.topics.describe([topic])
        existing = [partition.partition for partition in description.partitions]
        for partition in wanted or ():
            if partition not in existing:
                fail(f"topic {topic!r} has no partition {partition}, only {len(existing)} in all")
        chosen = [TopicPartition(topic, partition) for partition in sorted(set(wanted or existing))]
        kind, number = start
        first = admin.topics.offsets(chosen, EARLIEST)
        end = admin.topics.offsets(chosen, LATEST)
        by_time = admin.topics.offsets(chosen, number) if kind == "time" else {}
    spans: dict[int, _Span] = {}
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
        spans[each.partition] = _Span(begin, end[each])
    return spans


@dataclass(slots=True)
class _Reading:
    render: Callable[[Message], bytes]
    max_messages: int | None
    timeout: float | None
    exit_at_end: bool
    progress: bool
    spans: dict[int, _Span]
    count: int = 0
    size: int = 0
    at_end: set[int] = field(default_factory=set)
    disconnected: bool = False

    def run(self, settings: dict[str, Any], topic: str) -> None:
        from confluent_kafka import Consumer, KafkaException
        from confluent_kafka import TopicPartition as Assigned

        settings["error_cb"] = self._note_error
        try:
            consumer = Consumer(settings)
        except KafkaException as error:
            fail(error.args[0].str())
        started = time.monotonic()
        try:
            consumer.assign([Assigned(topic, partition, span.begin) for partition, span in self.spans.items()])
            self._loop(consumer, started)
        finally:
            consumer.close()
        if self.progress:
            self._show(started, "\n")

    def _loop(self, consumer: Consumer, started: float) -> None:
        out = sys.stdout.buffer
        last_record = shown = started
        while True:
            room = _BATCH if self.max_messages is None else min(_BATCH, self.max_messages - self.count)
            messages = consumer.consume(
                room, _POLL_SECONDS if self.timeout is None else min(_POLL_SECONDS, self.timeout)
            )
            now = time.monotonic()
            before = self.count
            for message in messages:
                error = message.error()
                if error is not None:
                    self._handle(error, message)
                elif not self.exit_at_end or self._is_within(message):
                    line = self.render(message)
                    out.write(line)
                    self.count += 1
                    self.size += len(line)
            if self.count > before:
                out.flush()
                last_record = now
                self.disconnected = False
            if self.progress and now - shown > _PROGRESS_SECONDS:
                self._show(started, "\r")
                shown = now
            if self.max_messages is not None and self.count >= self.max_messages:
                return
            if self.exit_at_end and len(self.at_end) == len(self.spans):
                return
            if self.timeout is not None and now - last_record >= self.timeout:
                return

    def _is_within(self, message: Message) -> bool:
        """Whether a record lies before the end as it was at the start; notes when the end is reached."""
        partition, offset = message.partition() or 0, message.offset() or 0
        end = self.spans[partition].end
        if offset >= end - 1:
            self.at_end.add(partition)
        return offset < end

    def _handle(self, error: KafkaError, message: Message) -> None:
        from confluent_kafka import KafkaError as Codes

        if error.code() == Codes._PARTITION_EOF:
            self.at_end.add(message.partition() or 0)
        elif not error.retriable():
            fail(f"{message.topic()}-{message.partition()}: {error.str()}")

    def _note_error(self, error: KafkaError) -> None:
        """librdkafka connects again by itself; whoever waits is told why nothing comes."""
        from confluent_kafka import KafkaError as Codes

        if error.code() == Codes._ALL_BROKERS_DOWN and not self.disconnected:
            self.disconnected = True
            note("penstock consume: no broker can be reached, trying again")

    def _show(self, started: float, end: str) -> None:
        seconds = max(time.monotonic() - started, 1e-9)
        text = f"{self.count} records, {self.count / seconds:,.0f}/s, {self.size / seconds / 1e6:,.1f} MB/s"
        if end == "\n":
            note(text)
        else:
            print(f"\r{text}   ", end="", file=sys.stderr, flush=True)
