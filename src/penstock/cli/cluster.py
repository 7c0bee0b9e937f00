"""`penstock cluster`: shows brokers, the controller quorum and under-replicated partitions; balances the load, empties
brokers, unregisters nodes."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from penstock.cli import cluster_balance
from penstock.cli.arguments import connect
from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, Json, command_group, print_json, print_table

app = command_group("Describe a cluster, balance it, and remove nodes.")
app.command()(cluster_balance.balance)
app.command()(cluster_balance.drain)


@app.callback()
def group() -> None:
    pass


@app.command()
def describe(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """Show brokers, the controller quorum and under-replicated partitions.

    Example:

        penstock cluster describe --json | jq .under_replicated
    """
    with connect(bootstrap_server) as admin:
        cluster = admin.cluster.describe()
    if json:
        described = dataclasses.asdict(cluster)
        for name in ("under_replicated", "offline"):
            described[name] = [{"topic": topic, "partition": partition} for topic, partition in getattr(cluster, name)]
        print_json(described)
        return
    print(f"cluster {cluster.cluster_id}: {cluster.topics} topics, {cluster.partitions} partitions")
    print()
    print_table(
        ["BROKER", "HOST", "PORT", "RACK", "STATE"],
        [
            [broker.broker_id, broker.host, broker.port, broker.rack, "fenced" if broker.fenced else "active"]
            for broker in cluster.brokers
        ],
    )
    if cluster.quorum is not None:
        quorum = cluster.quorum
        print()
        print(
            f"controller quorum: leader {quorum.leader_id}, epoch {quorum.leader_epoch}, "
            f"high watermark {quorum.high_watermark}"
        )
        print_table(
            ["NODE", "ROLE", "LOG END", "LAG"],
            [
                [replica.node_id, role, replica.log_end_offset, max(0, quorum.high_watermark - replica.log_end_offset)]
                for role, replicas in (("voter", quorum.voters), ("observer", quorum.observers))
                for replica in replicas
            ],
        )
    print()
    print(f"under-replicated partitions: {', '.join(map(str, cluster.under_replicated)) or 'none'}")
    print(f"partitions without a leader: {', '.join(map(str, cluster.offline)) or 'none'}")


@app.command("unregister-broker")
def unregister_broker(
    broker_id: Annotated[int, typer.Argument(metavar="ID", help="The broker.", show_default=False)],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove the registration of a broker that will not return.

    Move its replicas away first: `penstock cluster drain`.

    Example:

        penstock cluster unregister-broker 4
    """
    with connect(bootstrap_server) as admin:
        admin.cluster.unregister_broker(broker_id)


@app.command("unregister-controller")
def unregister_controller(
    controller_id: Annotated[int, typer.Argument(metavar="ID", help="The controller.", show_default=False)],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove the registration of a controller that has left the quorum and will not return (KIP-1312).

    Example:

        penstock cluster unregister-controller 103
    """
    with connect(bootstrap_server) as admin:
        admin.cluster.unregister_controller(controller_id)
