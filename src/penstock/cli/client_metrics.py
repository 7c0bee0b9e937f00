"""`penstock client-metrics`: lists, sets and removes subscriptions to the metrics of clients."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.arguments import connect
from penstock.cli.output import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Json,
    command_group,
    note,
    parse_pairs,
    print_json,
    print_table,
)

app = command_group("List, set and remove subscriptions to the metrics of clients (KIP-714).")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The subscription.", show_default=False)]


@app.callback()
def group() -> None:
    pass


@app.command("list")
def list_subscriptions(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """List the subscriptions.

    Example:

        penstock client-metrics list
    """
    with connect(bootstrap_server) as admin:
        found = admin.client_metrics.list()
    if json:
        print_json(found)
        return
    print_table(
        ["NAME", "METRICS", "INTERVAL MS", "MATCH"],
        [
            [each.name, each.metrics, each.interval_ms, [f"{key}={value}" for key, value in each.match.items()] or None]
            for each in found
        ],
    )
    if not found:
        note("there is no subscription: clients send no metrics")


@app.command("set")
def set_subscription(
    name: Name,
    metrics: Annotated[
        list[str] | None,
        typer.Option(metavar="PREFIX", help="Metrics whose names begin with this; * for all.", show_default=False),
    ] = None,
    interval_ms: Annotated[
        int | None, typer.Option(metavar="MS", help="How often clients send them.", show_default=False)
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SELECTOR=REGEX",
            help="Only clients that match: client_id, client_instance_id, client_software_name, "
            "client_software_version, client_source_address, client_source_port.",
            show_default=False,
        ),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Create or change a subscription. Clients notice within their present interval: five minutes without one.

    Examples:

        penstock client-metrics set everything --metrics "*" --interval-ms 60000
        penstock client-metrics set billing --metrics org.apache.kafka.consumer. --match "client_id=billing-.*"
    """
    with connect(bootstrap_server) as admin:
        admin.client_metrics.set(
            name, metrics or (), interval_ms=interval_ms, match=parse_pairs("--match", match or ())
        )


@app.command()
def remove(name: Name, bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Remove a subscription.

    Example:

        penstock client-metrics remove billing
    """
    with connect(bootstrap_server) as admin:
        admin.client_metrics.remove(name)
