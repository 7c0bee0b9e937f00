"""`penstock transactions`: lists and describes transactions, finds hanging ones and aborts them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.arguments import (
    connect,
    duration_text,
    existing_partitions,
    parse_duration,
    parse_partitions,
    partitions_text,
)
from penstock.cli.output import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Json,
    command_group,
    fail,
    note,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from penstock.client.wire.admin.transactions import OpenTransaction, ProducerState, TransactionDescription
    from penstock.model.ids import TopicPartition

app = command_group("Show transactions, find hanging transactions, and abort them.")

TopicOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:PARTITION,...]",
        help="Search only this topic or these partitions; repeatable.",
        show_default="everywhere",
    ),
]


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE",
            help="Only transactions in this state (Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or "
            "CompleteAbort); repeatable.",
        ),
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option(help="Only transactions of this producer; repeatable.")
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Only transactions that are open for longer, such as 10m.", show_default=False
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only transactional ids that match completely.", show_default=False),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List the transactional ids of a cluster, and the states of their transactions.

    Example:

        penstock transactions list --state Ongoing --longer-than 1m
    """
    longer_than_ms = None if longer_than is None else _milliseconds("--longer-than", longer_than)
    with connect(bootstrap_server) as admin:
        found = admin.transactions.list(
            states=state or (), producer_ids=producer_id or (), longer_than_ms=longer_than_ms, pattern=pattern
        )
    if json:
        print_json(found)
    elif found:
        print_table(
            ["TRANSACTIONAL ID", "STATE", "PRODUCER", "COORDINATOR"],
            [[each.transactional_id, each.state, each.producer_id, each.coordinator] for each in found],
        )
    else:
        note("no transactions")


@app.command()
def describe(
    names: Annotated[list[str], typer.Argument(metavar="TRANSACTIONAL_ID...", show_default=False)],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show the state, the producer and the partitions of transactions.

    Example:

        penstock transactions describe payments-1
    """
    if "" in names:
        fail("a transactional id has at least one character")
    with connect(bootstrap_server) as admin:
        described = admin.transactions.describe(names)
    if json:
        print_json([_description_as_json(each) for each in described])
        return
    now_ms = time.time_ns() // 1_000_000
    print_table(
        ["TRANSACTIONAL ID", "STATE", "PRODUCER", "EPOCH", "COORDINATOR", "TIME-OUT", "OPEN FOR", "PARTITIONS"],
        [
            [
                each.transactional_id,
                each.state,
                each.producer_id,
                each.producer_epoch,
                each.coordinator,
                duration_text(each.timeout_ms),
                None if each.start_ms is None else duration_text(now_ms - each.start_ms),
                partitions_text(each.partitions) or None,
            ]
            for each in described
        ],
    )


@app.command()
def producers(
    topic: Annotated[list[str], typer.Argument(metavar="TOPIC[:PARTITION,...]...", show_default=False)],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show the idempotent and transactional producers that partitions keep state of.

    START is the first offset of the transaction that is open in the partition: read_committed consumers wait there.

    Example:

        penstock transactions producers orders:0
    """
    with connect(bootstrap_server) as admin:
        found = admin.transactions.producers(existing_partitions(admin, parse_partitions("TOPIC", topic)))
    rows = [(partition, producer) for partition in sorted(found) for producer in found[partition]]
    if json:
        print_json([_producer_as_json(*row) for row in rows])
    elif rows:
        _print_producers(rows)
    else:
        note("no producers")


@app.command()
def find_hanging(
    topic: TopicOptions = None,
    longer_than: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Only transactions without a record for longer; use at least transaction.max.timeout.ms.",
        ),
    ] = "15m",
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end.

    Such a transaction blocks read_committed consumers at its first record for good. An old client or lost state causes
    it. End it with [bold]abort[/bold].

    Examples:

        penstock transactions find-hanging
        penstock transactions find-hanging --topic orders --longer-than 1h
    """
    longer_than_ms = _milliseconds("--longer-than", longer_than)
    with connect(bootstrap_server) as admin:
        partitions = existing_partitions(admin, parse_partitions("--topic", topic)) if topic else None
        hanging = admin.transactions.find_hanging(partitions, longer_than_ms=longer_than_ms)
    if json:
        print_json([_open_as_json(each) for each in hanging])
        return
    _print_producers([(each.where, each.producer) for each in hanging])
    for each in hanging[:1]:
        where = f"{each.topic}:{each.partition} --start-offset {each.producer.transaction_start}"
        note(f"abort the first with: penstock transactions abort {where}")
    if not hanging:
        note("no transaction hangs")


@app.command()
def abort(
    where: Annotated[str, typer.Argument(metavar="TOPIC:PARTITION", show_default=False)],
    start_offset: Annotated[
        int | None, typer.Option(min=0, help="Abort the transaction that starts at this offset.", show_default=False)
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option(min=0, help="Abort the transaction of this producer.", show_default=False)
    ] = None,
    producer_epoch: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=32767,
            help="With --producer-id, on brokers before Kafka 3.0: the producer's epoch.",
            show_default=False,
        ),
    ] = None,
    coordinator_epoch: Annotated[int, typer.Option(min=0, help="With --producer-epoch: the coordinator's epoch.")] = 0,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Abort even if the coordinator could still end it. The transaction may then be half committed!",
        ),
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Abort a hanging transaction in one partition.

    read_committed consumers never see its records there, and continue after them. Other partitions of the transaction
    are not changed. So use this only for transactions that no coordinator will end: those that
    [bold]find-hanging[/bold] lists.

    Example:

        penstock transactions abort orders:0 --start-offset 1234
    """
    from penstock.client.wire.admin.transactions import NotHanging

    partition = _partition(where)
    if start_offset is None and producer_id is None:
        fail("say which: give --start-offset or --producer-id, as penstock transactions find-hanging shows them")
    if producer_epoch is not None and (producer_id is None or start_offset is not None):
        fail("--producer-epoch goes with --producer-id, and without --start-offset")
    with connect(bootstrap_server) as admin:
        if producer_id is not None and producer_epoch is not None:
            admin.transactions.write_abort_marker(partition, producer_id, producer_epoch, coordinator_epoch)
            aborted: dict[str, Any] = {**partition._asdict(), "producer_id": producer_id}
        else:
            try:
                found = admin.transactions.abort(partition, start=start_offset, producer_id=producer_id, force=force)
            except NotHanging as error:
                fail(f"{error} (--force aborts it here nevertheless)")
            aborted = _open_as_json(found)
    if json:
        print_json(aborted)
    else:
        print(f"aborted the transaction of producer {aborted['producer_id']} in {partition}")


def _partition(text: str) -> TopicPartition:
    from penstock.model.ids import TopicPartition

    topic, _, number = text.rpartition(":")
    if not topic or not number.isdecimal():
        fail(f"{text!r} is not TOPIC:PARTITION")
    return TopicPartition(topic, int(number))


def _milliseconds(option: str, text: str) -> int:
    return int(parse_duration(option, text).total_seconds() * 1000)


def _print_producers(rows: list[tuple[TopicPartition, ProducerState]]) -> None:
    now_ms = time.time_ns() // 1_000_000
    print_table(
        ["TOPIC", "PARTITION", "PRODUCER", "EPOCH", "SEQUENCE", "COORDINATOR EPOCH", "START", "LAST RECORD"],
        [
            [
                partition.topic,
                partition.partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                producer.coordinator_epoch,
                producer.transaction_start,
                f"{duration_text(now_ms - producer.last_timestamp)} ago",
            ]
            for partition, producer in rows
        ],
    )


def _producer_as_json(partition: TopicPartition, producer: ProducerState) -> dict[str, Any]:
    import dataclasses

    return {"topic": partition.topic, "partition": partition.partition, **dataclasses.asdict(producer)}


def _open_as_json(transaction: OpenTransaction) -> dict[str, Any]:
    producer = _producer_as_json(transaction.where, transaction.producer)
    return {**producer, "transactional_id": transaction.transactional_id}


def _description_as_json(description: TransactionDescription) -> dict[str, Any]:
    import dataclasses

    partitions = [{"topic": topic, "partition": partition} for topic, partition in description.partitions]
    return {**dataclasses.asdict(description), "partitions": partitions}
