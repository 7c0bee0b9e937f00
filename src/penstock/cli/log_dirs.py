"""`penstock log-dirs`: shows log directories, and moves replicas between them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.arguments import connect
from penstock.cli.output import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Json,
    command_group,
    fail,
    note,
    print_json,
    print_table,
    size_text,
)

if TYPE_CHECKING:
    from penstock.client.wire.admin import Admin
    from penstock.model.ids import TopicPartition

app = command_group("Describe the log directories of brokers, and move replicas between them.")

_POLL_S = 0.1


@app.callback()
def group() -> None:
    pass


@app.command()
def describe(
    broker: Annotated[
        list[int] | None, typer.Option(metavar="BROKER", help="Only this broker; repeatable.", show_default=False)
    ] = None,
    replicas: Annotated[bool, typer.Option("--replicas", help="List every replica, too.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show the log directories: their contents, the free space, and the replicas that are being moved.

    Examples:

        penstock log-dirs describe
        penstock log-dirs describe --broker 1 --replicas
    """
    with connect(bootstrap_server) as admin:
        described = admin.log_dirs.describe(broker)
        moves = admin.log_dirs.moves(broker)
    if json:
        print_json({"directories": described, "moves": moves})
        return
    print_table(
        ["BROKER", "DIRECTORY", "REPLICAS", "SIZE", "FREE", "STATE"],
        [
            [
                each.broker_id,
                each.path,
                sum(not replica.future for replica in each.replicas),
                size_text(sum(replica.size for replica in each.replicas)),
                None if each.usable_bytes is None else size_text(each.usable_bytes),
                "online" if each.error is None else "offline",
            ]
            for each in described
        ],
    )
    if replicas:
        print()
        print_table(
            ["BROKER", "TOPIC", "PARTITION", "DIRECTORY", "SIZE"],
            [
                [each.broker_id, replica.topic, replica.partition, each.path, size_text(replica.size)]
                for each in described
                for replica in each.replicas
                if not replica.future
            ],
        )
    if moves:
        print()
        print_table(
            ["BROKER", "TOPIC", "PARTITION", "FROM", "TO", "LAG"],
            [[each.broker_id, each.topic, each.partition, each.source, each.target, each.offset_lag] for each in moves],
        )


@app.command()
def move(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)],
    broker: Annotated[int, typer.Option(metavar="BROKER", help="Broker that has the replicas.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="DIRECTORY", help="Target directory, one of the broker's log.dirs.", show_default=False
        ),
    ] = None,
    partitions: Annotated[
        str | None, typer.Option(metavar="PARTITION,...", help="Move only these partitions.", show_default="all")
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel running moves; replicas stay where they are.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when all replicas are moved.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Move replicas of a broker to another of its log directories while clients use them.

    Examples:

        penstock log-dirs move orders --broker 1 --to /data/disk-2 --wait
        penstock log-dirs move orders --broker 1 --partitions 0,3 --to /data/disk-2
        penstock log-dirs move orders --broker 1 --cancel
    """
    if (to is None) != cancel:
        fail("say where to: give one of --to or --cancel")
    with connect(bootstrap_server) as admin:
        chosen = _replicas(admin, broker, names, partitions)
        if to is None:
            chosen = admin.log_dirs.cancel(broker, chosen)
        else:
            _begin(admin, broker, chosen, to, wait)
    if json:
        print_json([{"topic": each.topic, "partition": each.partition, "directory": to} for each in chosen])
    elif to is not None:
        print_table(["TOPIC", "PARTITION", "DIRECTORY"], [[each.topic, each.partition, to] for each in chosen])
    elif chosen:
        for each in chosen:
            print(f"cancelled {each}")
    else:
        note("no replica is on the move")


def _replicas(admin: Admin, broker: int, names: list[str], partitions: str | None) -> list[TopicPartition]:
    """The replicas of these topics on the broker."""
    from penstock.model.ids import TopicPartition

    if partitions is not None and not all(each.strip().isdecimal() for each in partitions.split(",")):
        fail(f"--partitions {partitions!r}: partitions are given by their numbers, as in 0,3")
    wanted = None if partitions is None else {int(each) for each in partitions.split(",")}
    found = {
        TopicPartition(replica.topic, replica.partition)
        for each in admin.log_dirs.describe([broker])
        for replica in each.replicas
        if replica.topic in names and (wanted is None or replica.partition in wanted)
    }
    missing = [name for name in names if name not in {each.topic for each in found}]
    if missing:
        fail(f"broker {broker} has no such partition of {missing[0]}")
    return sorted(found)


def _begin(admin: Admin, broker: int, chosen: list[TopicPartition], to: str, wait: bool) -> None:
    admin.log_dirs.move(broker, dict.fromkeys(chosen, to))
    if not wait:
        return
    while any((each.topic, each.partition) in chosen for each in admin.log_dirs.moves([broker])):
        time.sleep(_POLL_S)
    elsewhere = [
        f"{replica.topic}-{replica.partition}"
        for each in admin.log_dirs.describe([broker])
        for replica in each.replicas
        if (replica.topic, replica.partition) in chosen and each.path != to
    ]
    if elsewhere:
        fail(f"{elsewhere[0]} was not moved: the log of broker {broker} says why")
