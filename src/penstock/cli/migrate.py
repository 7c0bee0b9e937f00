"""`penstock migrate`: moves a running cluster between Apache Kafka and Penstock."""

from __future__ import annotations

import os
import sys
import time
from typing import Annotated

import typer

from penstock.cli.arguments import connect
from penstock.cli.migrate_parts import (
    change_quorum,
    check_unused,
    move_partitions,
    node_ids,
    retire_broker,
    sizes_of,
    undo_copies,
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
    size_text,
)

app = command_group(
    "Move a running cluster from Apache Kafka to Penstock, or back. "
    "Commands that change something have --dry-run; each step can be undone."
)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")]


@app.command()
def check(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> int:
    """Say whether this cluster can be moved to Penstock, and what stands in the way.

    Looks at metadata and feature versions, settings, the authorizer, listeners, log directories, tiered topics, groups,
    quotas, and the state of partitions. Only reads. Exits with 1 if something must be mended first.

    Example:

        penstock migrate check --bootstrap-server kafka-1:9092
    """
    from penstock.migrate.check import can_move
    from penstock.migrate.check import check as judge
    from penstock.migrate.surveying import survey

    with connect(bootstrap_server) as admin:
        findings = judge(survey(admin))
    if json:
        print_json(findings)
    else:
        for finding in findings:
            print(f"{finding.severity:7}  {finding.subject}: {finding.words}")
            if finding.remedy:
                print(f"         {finding.remedy}")
        print()
        print("the cluster can be moved" if can_move(findings) else "the cluster cannot be moved yet")
    return 0 if can_move(findings) else 1


@app.command()
def join(
    node_id: Annotated[int, typer.Option(min=0, help="The id of the new node; never used in this cluster.")],
    host: Annotated[str, typer.Option(help="The name of its machine, for the other nodes and for clients.")],
    directory: Annotated[str, typer.Option(help="Its log directory.")] = "/var/lib/penstock",
    listener: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:PORT", help="The port of a listener; default: that of the present brokers. Repeatable."
        ),
    ] = None,
    controller_port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Makes it a controller, too, with this port.", show_default="a broker only"
        ),
    ] = None,
    rack: Annotated[str | None, typer.Option(help="Its rack.", show_default=False)] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to write; - for stdout.")
    ] = "server.properties",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="The same as --output -.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write the server.properties of a new Penstock node, with the settings of the running cluster.

    Start it with `penstock server FILE`. It joins as a broker without replicas, and as a controller without a vote; to
    undo, stop it and run `penstock migrate retire`.

    Example:

        penstock migrate join --node-id 11 --host alpha --controller-port 9093 --bootstrap-server kafka-1:9092
    """
    from penstock.migrate.observe import observe, quorum_of
    from penstock.migrate.properties import FILL_IN, NewNode, properties, text_of
    from penstock.migrate.state import Kind
    from penstock.migrate.surveying import settings_of

    with connect(bootstrap_server) as admin:
        state, quorum = observe(admin), quorum_of(admin)
        if node_id in state.brokers or node_id in {each.node_id for each in (*quorum.voters, *quorum.observers)}:
            fail(f"node {node_id} is in the cluster already: choose an id that was never used")
        settings = settings_of(admin, state.ids(Kind.KAFKA) or state.ids(Kind.PENSTOCK))
    addresses = [address for voter in quorum.voters for address in list(voter.endpoints.values())[:1]]
    if not addresses:
        fail("the quorum does not say where its voters are: kraft.version must be 1 ('penstock migrate check')")
    controllers_listener = next(name for voter in quorum.voters for name in voter.endpoints)
    node = NewNode(node_id, host, controller_port, directory, rack, _ports(listener or []))
    lines = properties(node, state.cluster_id, settings, addresses, controllers_listener)
    if dry_run or output == "-":
        sys.stdout.write(text_of(lines))
    else:
        if os.path.exists(output):
            fail(f"{output} exists already")
        with open(output, "x", encoding="utf-8") as file:
            file.write(text_of(lines))
        note(f"{output} is written: read it, then start the node with 'penstock server {output}'")
    missing = sorted(name for name, value in lines.items() if value == FILL_IN)
    if missing:
        note(f"fill in what cannot be read over the wire: {', '.join(missing)}")


def _ports(listeners: list[str]) -> dict[str, int]:
    ports: dict[str, int] = {}
    for entry in listeners:
        name, _, port = entry.rpartition(":")
        if not name or not port.isdecimal():
            fail(f"--listener {entry!r} is not NAME:PORT")
        ports[name] = int(port)
    return ports


@app.command()
def move(
    brokers: Annotated[
        str | None,
        typer.Option("--to", metavar="ID,...", help="The brokers to move to.", show_default="all of Penstock"),
    ] = None,
    leaving: Annotated[
        str | None,
        typer.Option("--from", metavar="ID,...", help="The brokers to move from.", show_default="all others"),
    ] = None,
    throttle: Annotated[
        int | None,
        typer.Option(min=1024, metavar="BYTES", help="Copy no faster than this, per broker and second."),
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, help="Partitions that are copied at once.")] = 10,
    undo: Annotated[bool, typer.Option("--undo", help="Take back the copies that are not released yet.")] = False,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Move all partitions to the brokers of Penstock, while clients use them; also those of coordinators.

    Each partition is copied beside its present replicas, its copies are compared with a replica that shall leave, batch
    by batch (compacted topics: by their content), and only then do these leave. Stop it with Ctrl-C and run it
    again at any time: copies under way are completed, and nothing is released meanwhile.

    Examples:

        penstock migrate move --dry-run
        penstock migrate move --throttle 50000000
        penstock migrate move --undo
    """
    from penstock.migrate.state import Kind

    if undo:
        undo_copies(bootstrap_server, dry_run)
        return
    move_partitions(bootstrap_server, Kind.PENSTOCK, brokers, leaving, throttle, parallel, dry_run, json)


@app.command()
def back(
    brokers: Annotated[
        str | None,
        typer.Option("--to", metavar="ID,...", help="The brokers to move to.", show_default="all of Apache Kafka"),
    ] = None,
    leaving: Annotated[
        str | None,
        typer.Option("--from", metavar="ID,...", help="The brokers to move from.", show_default="all others"),
    ] = None,
    throttle: Annotated[
        int | None,
        typer.Option(min=1024, metavar="BYTES", help="Copy no faster than this, per broker and second."),
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, help="Partitions that are copied at once.")] = 10,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Move all partitions to the brokers of Apache Kafka: as `move`, the other way.

    Example:

        penstock migrate back --dry-run
    """
    from penstock.migrate.state import Kind

    move_partitions(bootstrap_server, Kind.KAFKA, brokers, leaving, throttle, parallel, dry_run, json)


@app.command()
def controllers(
    arriving: Annotated[
        str, typer.Option("--to", metavar="ID[@HOST:PORT],...", help="The controllers that shall vote.")
    ],
    leaving: Annotated[
        str | None,
        typer.Option("--from", metavar="ID,...", help="The voters that shall leave.", show_default="all others"),
    ] = None,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change the voters of the metadata quorum one by one: add a new one, remove an old one, and so on.

    The new controllers must be running; give the address of one that is not a broker, too. To undo, name the old ones.

    Examples:

        penstock migrate controllers --to 11,12,13 --dry-run
        penstock migrate controllers --to 11@alpha:9093 --from 1
    """
    from penstock.migrate.plan import CannotMove

    wanted = [entry.partition("@") for entry in arriving.split(",")]
    to = node_ids("--to", ",".join(node_id for node_id, _, _ in wanted))
    addresses = {int(node_id): address for node_id, _, address in wanted if address}
    with connect(bootstrap_server) as admin:
        try:
            voters = change_quorum(admin, to, node_ids("--from", leaving) if leaving else None, addresses, dry_run)
        except CannotMove as error:
            fail(str(error))
    print(f"voters: {', '.join(map(str, voters))}")


@app.command()
def retire(
    broker_ids: Annotated[str, typer.Argument(metavar="ID,...", help="The nodes.", show_default=False)],
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait until you have stopped them.")
    ] = 600.0,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Unregister nodes that hold no replica and do not vote, once you have stopped them.

    Their directories stay as they are. To undo, start the node again: it registers again.

    Example:

        penstock migrate retire 1,2,3
    """
    ids = node_ids("ID", broker_ids)
    with connect(bootstrap_server) as admin:
        check_unused(admin, ids)
        if dry_run:
            for broker_id in ids:
                print(f"would unregister {broker_id}, once it is stopped")
            return
        deadline = time.monotonic() + wait
        for broker_id in ids:
            retire_broker(admin, broker_id, deadline)


@app.command()
def status(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """Show the brokers of both kinds, their replicas, the voters, and how far a move is.

    Example:

        penstock migrate status
    """
    from penstock.migrate.observe import observe, quorum_of

    with connect(bootstrap_server) as admin:
        state, quorum = observe(admin), quorum_of(admin)
        sizes = sizes_of(admin)
    rows = [
        {
            "broker": broker.broker_id,
            "kind": str(broker.kind),
            "state": "fenced" if broker.fenced else "active",
            "replicas": sum(broker.broker_id in held.replicas for held in state.partitions.values()),
            "leaders": sum(broker.broker_id == held.leader for held in state.partitions.values()),
            "size": sizes.get(broker.broker_id, 0),
        }
        for broker in state.brokers.values()
    ]
    copied = [held for held in state.partitions.values() if held.originals is not None]
    moving = {
        "partitions": len(state.partitions),
        "being copied": sum(1 for held in copied if held.reassigning),
        "copied, not released": sum(1 for held in copied if not held.reassigning),
    }
    voters = [voter.node_id for voter in quorum.voters]
    if json:
        print_json({"brokers": rows, "voters": voters, "leader": quorum.leader_id, "moving": moving})
        return
    print_table(
        ["BROKER", "KIND", "STATE", "REPLICAS", "LEADERS", "SIZE"],
        [[*list(row.values())[:-1], size_text(int(str(row["size"])))] for row in rows],
    )
    print()
    observers = [str(observer.node_id) for observer in quorum.observers]
    print(
        f"voters: {', '.join(map(str, voters))}; leader: {quorum.leader_id}; observers: {', '.join(observers) or '-'}"
    )
    print("; ".join(f"{name}: {count}" for name, count in moving.items()))
