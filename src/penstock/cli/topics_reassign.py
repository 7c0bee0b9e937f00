"""`penstock topics reassign` and `penstock topics reassignments`: move partitions to other brokers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.arguments import connect
from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, Json, fail, note, print_json, print_table

if TYPE_CHECKING:
    from penstock.client.wire.admin import Admin
    from penstock.model.ids import TopicPartition

_POLL_S = 0.1


def reassign(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)],
    brokers: Annotated[
        str | None,
        typer.Option(metavar="BROKER,...", help="Spread all partitions evenly over these brokers.", show_default=False),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            min=1,
            help="With --brokers: replicas of each partition.",
            show_default="unchanged",
        ),
    ] = None,
    replicas: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARTITION:BROKER,...",
            help="Move one partition to these brokers, the preferred leader first; repeatable.",
        ),
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel running moves; partitions return to their old brokers.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when all replicas are copied and in sync.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Move partitions to other brokers while clients use them.

    Examples:

        penstock topics reassign orders --brokers 1,2,3,4
        penstock topics reassign orders --replicas 0:2,3,4 --wait
        penstock topics reassign orders --cancel
    """
    if sum(map(bool, (brokers, replicas, cancel))) != 1:
        fail("say where to: give one of --brokers, --replicas or --cancel")
    if replicas and len(names) > 1:
        fail("--replicas is about one topic")
    with connect(bootstrap_server) as admin:
        if cancel:
            _cancel(admin, names, json)
            return
        if replicas:
            targets = dict(_target(names[0], text) for text in replicas)
        else:
            targets = _spread(admin, names, _broker_ids("--brokers", brokers or ""), replication_factor)
        admin.reassignments.begin(targets)
        while wait and any((each.topic, each.partition) in targets for each in admin.reassignments.list()):
            time.sleep(_POLL_S)
    _print_targets(targets, json)


def _print_targets(targets: Mapping[TopicPartition, Sequence[int]], json: bool) -> None:
    rows = [
        {"topic": partition.topic, "partition": partition.partition, "replicas": target}
        for partition, target in targets.items()
    ]
    if json:
        print_json(rows)
    else:
        print_table(["TOPIC", "PARTITION", "REPLICAS"], [list(row.values()) for row in rows])


def reassignments(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """List the partitions that are being moved.

    Example:

        penstock topics reassignments
    """
    with connect(bootstrap_server) as admin:
        found = admin.reassignments.list()
    if json:
        print_json(found)
    elif found:
        print_table(
            ["TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING"],
            [[each.topic, each.partition, each.replicas, each.adding, each.removing] for each in found],
        )
    else:
        note("no partition is on the move")


def _cancel(admin: Admin, names: list[str], json: bool) -> None:
    from penstock.model.ids import TopicPartition

    moving = [TopicPartition(each.topic, each.partition) for each in admin.reassignments.list() if each.topic in names]
    cancelled = admin.reassignments.cancel(moving) if moving else []
    if json:
        print_json([{"topic": each.topic, "partition": each.partition} for each in cancelled])
        return
    for partition in cancelled:
        print(f"cancelled {partition}")
    if not cancelled:
        note("no partition is on the move")


def _target(topic: str, text: str) -> tuple[TopicPartition, Sequence[int]]:
    from penstock.model.ids import TopicPartition

    partition, _, brokers = text.partition(":")
    if not partition.isdecimal() or not brokers:
        fail(f"--replicas {text!r} is not PARTITION:BROKER,...")
    return TopicPartition(topic, int(partition)), _broker_ids("--replicas", brokers)


def _broker_ids(option: str, text: str) -> list[int]:
    ids = text.split(",")
    if not all(each.strip().isdecimal() for each in ids):
        fail(f"{option} {text!r}: brokers are given by their numbers, as in 1,2,3")
    return [int(each) for each in ids]


def _spread(
    admin: Admin, names: list[str], broker_ids: list[int], replication_factor: int | None
) -> dict[TopicPartition, Sequence[int]]:
    """Place the partitions like those of a new topic on these brokers: spread over racks and hosts, and evenly."""
    from penstock.controller.placement import Placement, UsableBroker
    from penstock.model.ids import TopicPartition

    known = {broker.broker_id: broker for broker in admin.cluster.describe().brokers}
    missing = [each for each in broker_ids if each not in known]
    if missing:
        fail(f"there is no broker {missing[0]}: this cluster has {', '.join(map(str, sorted(known)))}")
    usable = [
        UsableBroker(each, known[each].rack, fenced=False, host=known[each].host) for each in sorted(set(broker_ids))
    ]
    placement = Placement()
    targets: dict[TopicPartition, Sequence[int]] = {}
    for topic in admin.topics.describe(names):
        placed = placement.place(usable, len(topic.partitions), replication_factor or topic.replication_factor)
        for partition, replicas in zip(topic.partitions, placed, strict=True):
            targets[TopicPartition(topic.name, partition.partition)] = replicas
    return targets
