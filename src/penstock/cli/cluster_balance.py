"""`penstock cluster balance` and `penstock cluster drain`: show a plan of moves, and carry it out."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from penstock.cli.arguments import connect
from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, Json, fail, note, print_json, print_table, size_text

if TYPE_CHECKING:
    from penstock.cli.cluster_moves import Report
    from penstock.client.wire.admin import Admin
    from penstock.controller.balance import BrokerState, Move, PartitionState

SHOWN_MOVES = 20
CORDONED = "cordoned.log.dirs"
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Make the moves. Without it the plan is only shown.")]
Cancel = Annotated[
    bool, typer.Option("--cancel", help="Take back the moves that are under way, and remove throttles that are left.")
]
Throttle = Annotated[
    str,
    typer.Option(
        metavar="BYTES", help="The most that a broker copies in a second, such as 500k, 50m; none for no limit."
    ),
]
AtOnce = Annotated[int, typer.Option("--at-once", min=1, metavar="N", help="Partitions that move at the same time.")]


class Snapshot(NamedTuple):
    brokers: list[BrokerState]
    partitions: list[PartitionState]
    alive: list[int]
    unhealthy: list[str]
    """Partitions without all of their replicas."""


def balance(
    yes: Yes = False,
    cancel: Cancel = False,
    leaders_only: Annotated[
        bool,
        typer.Option("--leaders-only", help="Spread leaders among the replicas that are there; nothing is copied."),
    ] = False,
    throttle: Throttle = "50m",
    at_once: AtOnce = 5,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Plan moves so that brokers carry similar loads, and make them with --yes.

    A load is a number of replicas and their bytes, as a share of the disks. Replicas of a partition that share a host
    or a rack without need are set apart, new brokers are filled, and leaders are spread evenly; what is even already
    stays. Clients use the partitions meanwhile.

    Copying is throttled by Kafka's settings for it, which are removed at the end. Ctrl-C ends it: moves that are under
    way are taken back, those that are done stay, and the same command continues.

    Examples:

        penstock cluster balance
        penstock cluster balance --yes --throttle 100m
        penstock cluster balance --cancel
    """
    rate = _rate(throttle)
    with connect(bootstrap_server) as admin:
        if cancel:
            _cancel(admin, None, json)
            return
        snapshot = _snapshot(admin)
        if snapshot.unhealthy:
            first, others = snapshot.unhealthy[0], len(snapshot.unhealthy) - 1
            where = f"{first} and {others} others" if others else first
            fail(f"{where}: not all replicas are in sync; wait until they are (penstock doctor says what is wrong)")
        _do(admin, snapshot, (), leaders_only, rate, at_once, yes, json)


def drain(
    broker_id: Annotated[int, typer.Argument(metavar="ID", help="The broker to empty.", show_default=False)],
    yes: Yes = False,
    cancel: Cancel = False,
    throttle: Throttle = "50m",
    at_once: AtOnce = 5,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Plan to move all replicas off a broker, and do it with --yes.

    Its replicas go where the racks and hosts of their partitions are best spread, then where the load is least. While
    it is being emptied, and afterwards, it gets no new ones ([bold]cordoned.log.dirs=*[/bold]), until you run this with
    [bold]--cancel[/bold]. A broker that is down can be drained, too: its partitions are copied from other replicas.

    Examples:

        penstock cluster drain 3
        penstock cluster drain 3 --yes
        penstock cluster drain 3 --cancel
    """
    rate = _rate(throttle)
    with connect(bootstrap_server) as admin:
        if cancel:
            _cancel(admin, broker_id, json)
            return
        snapshot = _snapshot(admin)
        if broker_id not in {broker.broker_id for broker in snapshot.brokers}:
            fail(f"there is no broker {broker_id}; penstock cluster describe lists them")
        if yes and broker_id in snapshot.alive:
            _cordon(admin, broker_id)
        _do(admin, snapshot, [broker_id], False, rate, at_once, yes, json)


def _do(
    admin: Admin,
    snapshot: Snapshot,
    drained: Sequence[int],
    leaders_only: bool,
    throttle: int | None,
    at_once: int,
    yes: bool,
    json: bool,
) -> None:
    from penstock.controller.balance import CannotBalance, plan_balance

    under_way = admin.reassignments.list()
    if under_way:
        first = under_way[0]
        fail(
            f"{len(under_way)} partitions are being moved already, such as {first.topic}-{first.partition}; wait for "
            "them (penstock topics reassignments), or take them back with --cancel"
        )
    try:
        moves = plan_balance(snapshot.brokers, snapshot.partitions, drained=drained, leaders_only=leaders_only)
    except CannotBalance as error:
        fail(str(error))
    if json:
        print_json([{**move._asdict(), "copied_bytes": move.copied_bytes} for move in moves])
    else:
        _show(snapshot, moves)
    if not moves or not yes:
        if moves and not json:
            note("nothing has moved yet: --yes makes these moves")
        return
    from penstock.cli.cluster_moves import carry_out

    with _progress(moves) as report:
        carry_out(admin, moves, throttle=throttle, at_once=at_once, brokers=snapshot.alive, report=report)
    note(f"{len(moves)} moves are done")


def _show(snapshot: Snapshot, moves: Sequence[Move]) -> None:
    if not moves:
        print("balanced: there is nothing to move")
        return
    after = {(move.topic, move.partition): move.after for move in moves}
    states = [
        [(each.replicas, each.size) for each in snapshot.partitions],
        [(after.get((each.topic, each.partition), each.replicas), each.size) for each in snapshot.partitions],
    ]
    rows = []
    for broker in snapshot.brokers:
        cells: list[str] = []
        for count in (_leaders, _replicas, _bytes):
            before, later = (count(state)[broker.broker_id] for state in states)
            texts = [size_text(number) if count is _bytes else str(number) for number in (before, later)]
            cells.append(" -> ".join(dict.fromkeys(texts)))
        rows.append([broker.broker_id, broker.host, broker.rack, *cells])
    print_table(["BROKER", "HOST", "RACK", "LEADERS", "REPLICAS", "BYTES"], rows)
    print()
    print_table(
        ["TOPIC", "PARTITION", "REPLICAS", "TO", "COPIES"],
        [
            [move.topic, move.partition, move.before, move.after, size_text(move.copied_bytes) if move.adding else "-"]
            for move in moves[-SHOWN_MOVES:]
        ],
    )
    if len(moves) > SHOWN_MOVES:
        print(f"... and {len(moves) - SHOWN_MOVES} more (--json has all)")
    copying = [move for move in moves if move.adding]
    print()
    print(
        f"{len(copying)} partitions are copied, {size_text(sum(move.copied_bytes for move in copying))} in all; "
        f"{len(moves) - len(copying)} only change their preferred leader"
    )


State = Sequence[tuple[Sequence[int], int]]


def _leaders(state: State) -> Counter[int]:
    return Counter(replicas[0] for replicas, _ in state)


def _replicas(state: State) -> Counter[int]:
    return Counter(replica for replicas, _ in state for replica in replicas)


def _bytes(state: State) -> Counter[int]:
    found: Counter[int] = Counter()
    for replicas, size in state:
        for replica in replicas:
            found[replica] += size
    return found


def _snapshot(admin: Admin) -> Snapshot:
    from penstock.controller.balance import BrokerState, PartitionState

    described = admin.cluster.describe()
    alive = [broker.broker_id for broker in described.brokers if not broker.fenced]
    disks = admin.log_dirs.describe(alive)
    sizes: dict[tuple[str, int], int] = {}
    for directory in disks:
        for replica in directory.replicas:
            key = replica.topic, replica.partition
            sizes[key] = max(sizes.get(key, 0), replica.size)
    brokers = []
    for broker in described.brokers:
        own = [each for each in disks if each.broker_id == broker.broker_id and each.error is None]
        known = bool(own) and all(each.total_bytes is not None and each.usable_bytes is not None for each in own)
        brokers.append(
            BrokerState(
                broker.broker_id,
                broker.rack,
                broker.host.lower() or None,
                takes_replicas=not broker.fenced and any(not each.cordoned for each in own),
                disk_bytes=sum(each.total_bytes or 0 for each in own) if known else None,
                free_bytes=sum(each.usable_bytes or 0 for each in own if not each.cordoned) if known else None,
            )
        )
    topics = admin.topics.list(internal=True)
    partitions = [
        PartitionState(topic.name, each.partition, each.replicas, sizes.get((topic.name, each.partition), 0))
        for topic in topics
        for each in topic.partitions
    ]
    unhealthy = [
        f"{topic.name}-{each.partition}" for topic in topics for each in topic.partitions if each.under_replicated
    ]
    return Snapshot(brokers, partitions, alive, unhealthy)


def _cordon(admin: Admin, broker_id: int) -> None:
    from penstock.client.wire.admin.configs import ResourceType
    from penstock.model.errors import KafkaError

    try:
        admin.configs.alter(ResourceType.BROKER, str(broker_id), {CORDONED: "*"})
    except KafkaError as error:  # a cluster from before metadata.version 4.3
        note(f"broker {broker_id} may get new replicas meanwhile: {error.message}")


def _cancel(admin: Admin, drained: int | None, json: bool) -> None:
    from penstock.cli.cluster_moves import Throttles
    from penstock.client.wire.admin.configs import ResourceType
    from penstock.model.ids import TopicPartition

    moving = [TopicPartition(each.topic, each.partition) for each in admin.reassignments.list()]
    cancelled = admin.reassignments.cancel(moving) if moving else []
    alive = [broker.broker_id for broker in admin.cluster.describe().brokers if not broker.fenced]
    cleared = Throttles(admin, alive).remove(topic.name for topic in admin.topics.list(internal=True))
    if drained is not None and drained in alive:
        admin.configs.alter(ResourceType.BROKER, str(drained), delete=[CORDONED])
    if json:
        print_json({"cancelled": [{"topic": each.topic, "partition": each.partition} for each in cancelled]})
        return
    for partition in cancelled:
        print(f"cancelled {partition}")
    note(f"{len(cancelled)} moves were taken back, throttles of {cleared} topics and brokers removed")


def _rate(text: str) -> int | None:
    if text.strip().lower() == "none":
        return None
    match = re.fullmatch(r"(\d+)([kmg]?)", text.strip().lower())
    if match is None or not int(match.group(1)):
        fail(f"--throttle {text!r} is not a number of bytes such as 500k, 50m or 1g, nor none")
    return int(match.group(1)) * _UNITS[match.group(2)]


@contextmanager
def _progress(moves: Sequence[Move]) -> Iterator[Report]:
    """A bar for people; lines elsewhere, one when something has changed."""
    total = sum(move.copied_bytes for move in moves)
    if not sys.stderr.isatty():
        last = [-1]

        def line(count: int, copied: int) -> None:
            if count != last[0]:
                last[0] = count
                note(f"{count} of {len(moves)} moves, {size_text(copied)} of {size_text(total)}")

        yield line
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bars:
        task = bars.add_task(f"{len(moves)} moves", total=max(total, 1) + len(moves))

        def bar(count: int, copied: int) -> None:
            bars.update(task, completed=copied + count, description=f"{count} of {len(moves)} moves")

        yield bar
