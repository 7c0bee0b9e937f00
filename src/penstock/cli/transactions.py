"""`penstock transactions`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.arguments import duration_text, existing_partitions, parse_duration, parse_partitions, partitions_text
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

app = command_group("See transactions, find those that hang, and abort them.")

TopicOptions = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC[:PARTITION,...]", help="Only there; repeatable.", show_default="everywhere"),
]


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE",
            help="Only those in this state (Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or "
            "CompleteAbort); repeatable.",
        ),
    ] = None,
    producer_id: Annotated[list[int] | None, typer.Option(help="Only of this producer; repeatable.")] = None,
    longer_than: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Only those open for longer, as 10m.", show_default=False)
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only transactional ids that match it as a whole.", show_default=False),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List the transactional ids of a cluster, and what their transactions are doing.

    Example:

        penstock transactions list --state Ongoing --longer-than 1m
    """
    from penstock.client.wire.admin import Admin

    longer_than_ms = None if longer_than is None else _milliseconds("--longer-than", longer_than)
    with Admin(bootstrap_server) as admin:
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
    """Show transactions: their state, their producer, and the partitions that take part.

    Example:

        penstock transactions describe payments-1
    """
    from penstock.client.wire.admin import Admin

    if "" in names:
        fail("a transactional id has at least one character")
    with Admin(bootstrap_server) as admin:
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
    """Show the idempotent and transactional producers that partitions remember.

    START is where the transaction begins that is open in the partition: readers of committed records wait there.

    Example:

        penstock transactions producers orders:0
    """
    from penstock.client.wire.admin import Admin

    with Admin(bootstrap_server) as admin:
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
        typer.Option(metavar="DURATION", help="Only without a record for longer: at least transaction.max.timeout.ms."),
    ] = "15m",
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Find transactions that are open in a partition, and that no coordinator will end.

    Readers of committed records stop where such a transaction begins, for good. It is the trace of an old client or of
    lost state, and [bold]abort[/bold] ends it.

    Examples:

        penstock transactions find-hanging
        penstock transactions find-hanging --topic orders --longer-than 1h
    """
    from penstock.client.wire.admin import Admin

    longer_than_ms = _milliseconds("--longer-than", longer_than)
    with Admin(bootstrap_server) as admin:
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
        int | None, typer.Option(min=0, help="The transaction that begins there.", show_default=False)
    ] = None,
    producer_id: Annotated[int | None, typer.Option(min=0, help="That of this producer.", show_default=False)] = None,
    producer_epoch: Annotated[
        int | None,
        typer.Option(
            min=0, max=32767, help="With --producer-id, on brokers before Kafka 3.0: its epoch.", show_default=False
        ),
    ] = None,
    coordinator_epoch: Annotated[int, typer.Option(min=0, help="With --producer-epoch: that of the coordinator.")] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Also if its coordinator could still end it. Half of it may be committed!")
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Abort a transaction that hangs, in one partition.

    Its records there are never seen by readers of committed records, who go on after it. The rest of the transaction is
    not touched, so this is only for transactions that nobody else will end: those that [bold]find-hanging[/bold] lists.

    Example:

        penstock transactions abort orders:0 --start-offset 1234
    """
    from penstock.client.wire.admin import Admin
    from penstock.client.wire.admin.transactions import NotHanging
    from penstock.model.ids import TopicPartition

    topic, _, number = where.rpartition(":")
    if not topic or not number.isdecimal():
        fail(f"{where!r} is not TOPIC:PARTITION")
    if start_offset is None and producer_id is None:
        fail("say which: give --start-offset or --producer-id, as penstock transactions find-hanging shows them")
    if producer_epoch is not None and (producer_id is None or start_offset is not None):
        fail("--producer-epoch goes with --producer-id, and without --start-offset")
    partition = TopicPartition(topic, int(number))
    with Admin(bootstrap_server) as admin:
        if producer_id is not None and producer_epoch is not None:
            admin.transactions.write_abort_marker(partition, producer_id, producer_epoch, coordinator_epoch)
            aborted: dict[str, Any] = {"topic": topic, "partition": int(number), "producer_id": producer_id}
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
