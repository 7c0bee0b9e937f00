"""`penstock features`: shows feature levels, and raises them to those of a release."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.arguments import connect
from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, Json, command_group, print_json, print_table

app = command_group("Show feature levels, and raise them after an upgrade of all nodes.")


@app.callback()
def group() -> None:
    pass


@app.command()
def describe(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """Show which levels the brokers support, and which the cluster uses.

    Example:

        penstock features describe
    """
    with connect(bootstrap_server) as admin:
        found = admin.features.describe()
    if json:
        print_json(found)
        return
    print_table(
        ["FEATURE", "LEVEL", "SUPPORTED"],
        [[each.name, each.level, f"{each.minimum}-{each.maximum}"] for each in found],
    )


@app.command()
def upgrade(
    release_version: Annotated[
        str | None, typer.Option(metavar="RELEASE", help="Of Kafka, such as 4.3.", show_default="the newest")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check that it is possible.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Raise all features to the levels of a release, when all nodes run it. There is mostly no way back.

    Example:

        penstock features upgrade --release-version 4.4 --dry-run
    """
    from penstock.client.wire.admin.features import RELEASES

    with connect(bootstrap_server) as admin:
        levels = admin.features.upgrade(release_version or RELEASES[-1], dry_run=dry_run)
    shown = ", ".join(f"{name} {level}" for name, level in sorted(levels.items()))
    print(f"{'possible' if dry_run else 'done'}: {shown}")
