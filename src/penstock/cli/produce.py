"""`penstock produce`: lines from stdin become records."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.arguments import connect
from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, Json, fail, note, parse_pairs, patiently, print_json
from penstock.cli.records import Headers, LibrdkafkaPairs, bytes_of, librdkafka_settings

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message


@dataclass(slots=True)
class _Outgoing:
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int = -1
    timestamp: int = 0


@dataclass(slots=True)
class _Deliveries:
    written: int = 0
    by_partition: dict[int, int] = field(default_factory=dict)
    failure: str | None = None

    def report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failure = self.failure or error.str()
            return
        self.written += 1
        partition = message.partition() or 0
        self.by_partition[partition] = self.by_partition.get(partition, 0) + 1


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="Text between key and value in a line."),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="value|json", help="Format of a line: a value, or a JSON object.")
    ] = "value",
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="KEY=VALUE", help="Header of every record; repeatable."),
    ] = None,
    null_value: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Value that means null (a tombstone).", show_default=False)
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, help="Target partition; default: by key, or any.", show_default=False),
    ] = None,
    acks: Annotated[str, typer.Option(metavar="0|1|all", help="Replicas that must acknowledge a record.")] = "all",
    compression: Annotated[str, typer.Option(metavar="CODEC", help="Codec: none, gzip, snappy, lz4 or zstd.")] = "none",
    properties: LibrdkafkaPairs = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Write lines from stdin to a topic, one record per line.

    With [bold]--format json[/bold], a line is what [bold]consume --format json[/bold] prints: an object with any of
    key, value, headers, partition and timestamp. Exits with status 1 if a record was not acknowledged.

    Examples:

        echo hello | penstock produce greetings
        printf 'alice:1\\nbob:2\\n' | penstock produce scores -K :
        penstock consume old -e --from-beginning --json | penstock produce new --format json
    """
    if format_ not in ("value", "json"):
        fail(f"--format {format_!r} is neither value nor json")
    if acks not in ("0", "1", "-1", "all"):
        fail(f"--acks {acks!r} is none of 0, 1, all")
    headers = [(name, text.encode()) for name, text in parse_pairs("--header", header or ()).items()]
    with connect(bootstrap_server) as admin:
        patiently(lambda: admin.topics.ensure(topic))  # librdkafka would retry for minutes
    deliveries = _Deliveries()
    settings = librdkafka_settings(
        bootstrap_server,
        properties,
        acks=acks,
        enable_idempotence=acks in ("all", "-1"),
        compression_type=compression,
        linger_ms=5,
        partitioner="murmur2_random",  # Java's, so that a key maps to the same partition for every client
    )
    records = _read_json() if format_ == "json" else _read_lines(key_separator, null_value)
    _write(topic, records, settings, headers, partition, deliveries)
    _report(topic, deliveries, json)


def _report(topic: str, deliveries: _Deliveries, json: bool) -> None:
    if deliveries.failure is not None:
        fail(f"{deliveries.written} records written to {topic}, then: {deliveries.failure}")
    if json:
        partitions = {str(number): count for number, count in sorted(deliveries.by_partition.items())}
        print_json({"topic": topic, "records": deliveries.written, "partitions": partitions})
    elif sys.stderr.isatty():
        note(f"{deliveries.written} records written to {topic}")


def _write(
    topic: str,
    records: Iterator[_Outgoing],
    settings: dict[str, Any],
    headers: Headers,
    partition: int | None,
    deliveries: _Deliveries,
) -> None:
    from confluent_kafka import KafkaException, Producer

    try:
        producer = Producer(settings)
    except KafkaException as error:
        fail(error.args[0].str())
    try:
        for record in records:
            arguments: dict[str, Any] = {
                "value": record.value,
                "key": record.key,
                "headers": [*headers, *record.headers],
                "partition": record.partition if partition is None else partition,
                "timestamp": record.timestamp,
                "on_delivery": deliveries.report,
            }
            while deliveries.failure is None:
                try:
                    producer.produce(topic, **arguments)
                    break
                except BufferError:
                    producer.poll(0.1)  # the queue is full: let some of it drain
                except KafkaException as error:
                    deliveries.failure = error.args[0].str()
            producer.poll(0)
            if deliveries.failure is not None:
                break
    finally:
        if deliveries.failure is not None:
            producer.purge()
        producer.flush()


def _read_lines(key_separator: str | None, null_value: str | None) -> Iterator[_Outgoing]:
    separator = key_separator.encode() if key_separator is not None else None
    null = null_value.encode() if null_value is not None else None
    for number, raw in enumerate(sys.stdin.buffer, 1):
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        key = None
        if separator is not None:
            key, found, line = line.partition(separator)
            if not found:
                fail(f"line {number} has no key: there is no {key_separator!r} in it")
        yield _Outgoing(None if null is not None and line == null else line, key)


def _read_json() -> Iterator[_Outgoing]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        where = f"line {number}"
        try:
            record = json_module.loads(line)
        except ValueError as error:
            fail(f"{where} is not JSON: {error}")
        if not isinstance(record, dict):
            fail(f"{where} is not a JSON object")
        try:
            yield _from_json(record, where)
        except (TypeError, ValueError):
            fail(f"{where}: partition and timestamp are numbers, headers a list of [name, value]")


def _from_json(record: dict[str, Any], where: str) -> _Outgoing:
    headers = record.get("headers") or []
    return _Outgoing(
        bytes_of(record.get("value"), where),
        bytes_of(record.get("key"), where),
        [
            (str(name), bytes_of(value, where))
            for name, value in (headers.items() if isinstance(headers, dict) else headers)
        ],
        int(record.get("partition", -1)),
        int(record.get("timestamp", 0)),
    )
