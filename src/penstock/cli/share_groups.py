"""`penstock share-groups`: lists, describes, moves and deletes share groups."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.arguments import (
    connect,
    delete_each,
    existing_partitions,
    parse_duration,
    parse_partitions,
    parse_time,
    partitions_text,
)
from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, Json, command_group, fail, note, print_json, print_table

if TYPE_CHECKING:
    from penstock.client.wire.admin.group_reset import ResetTarget
    from penstock.client.wire.admin.share_groups import ShareGroupDescription, ShareOffset

app = command_group("Show the progress of share groups (queues), reset and delete them.")

Names = Annotated[list[str], typer.Argument(metavar="GROUP...", show_default=False)]


@app.command("list")
def list_groups(
    names_only: Annotated[bool, typer.Option("--names", help="Print only the names, one per line.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List the share groups of a cluster.

    Example:

        penstock share-groups list
    """
    with connect(bootstrap_server) as admin:
        groups = admin.share_groups.list()
    if json:
        print_json(groups)
    elif names_only:
        for group in groups:
            print(group.group_id)
    elif groups:
        print_table(
            ["GROUP", "STATE", "COORDINATOR"], [[group.group_id, group.state, group.coordinator] for group in groups]
        )
    else:
        note("no share groups")


@app.command()
def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="[GROUP]...", help="Default: all share groups.")] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show how far share groups are in each partition, and their members.

    All records before START are done. LAG is the number of records that are not done: others after START may be done.

    Example:

        penstock share-groups describe workers
    """
    with connect(bootstrap_server) as admin:
        wanted = names or [group.group_id for group in admin.share_groups.list()]
        described = [
            (group, admin.share_groups.offsets(group.group_id)) for group in admin.share_groups.describe(wanted)
        ]
    if json:
        print_json([{**dataclasses.asdict(group), "partitions": offsets} for group, offsets in described])
        return
    for position, (group, offsets) in enumerate(described):
        if position:
            print()
        _print_group(group, offsets)
    if not described:
        note("no share groups")


@app.command()
def reset_offsets(
    name: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC[:PARTITION,...]", help="Reset this topic, or these partitions of it; repeatable."),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Reset all partitions that the group has read.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end: read only new records.")] = False,
    to_offset: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="To this offset.", show_default=False)
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="To the first record from this time on: ISO 8601 (UTC if it has no zone), or milliseconds since 1970.",
            show_default=False,
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="To the first record of the last 90m, 2h, 1d12h or PT1H30M.", show_default=False
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Reset the offsets. Without this option, only show the result.")
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Reset the offsets of a share group without members, to deliver records again or to skip some.

    Records from the new offset on are delivered again, even if they were done. A group that does not exist is created:
    so a new queue can begin with records that are there already.

    Examples:

        penstock share-groups reset-offsets workers --topic jobs --to-earliest --execute
        penstock share-groups reset-offsets workers --all-topics --by-duration 2h
    """
    targets: list[ResetTarget] = []
    targets += ["earliest"] if to_earliest else []
    targets += ["latest"] if to_latest else []
    targets += [to_offset] if to_offset is not None else []
    targets += [parse_time("--to-time", to_time)] if to_time is not None else []
    targets += [parse_duration("--by-duration", by_duration)] if by_duration is not None else []
    if not name:
        fail("a group has a name of at least one character")
    if len(targets) != 1:
        fail("say where to: give one of --to-earliest, --to-latest, --to-offset, --to-time or --by-duration")
    if bool(topic) == all_topics:
        fail("say in which partitions: give --topic TOPIC[:PARTITION,...], or else --all-topics")
    with connect(bootstrap_server) as admin:
        partitions = existing_partitions(admin, parse_partitions("--topic", topic)) if topic else None
        resets = admin.share_groups.reset(name, targets[0], partitions=partitions, dry_run=not execute)
    if json:
        print_json({"group_id": name, "executed": execute, "offsets": resets})
        return
    print_table(
        ["TOPIC", "PARTITION", "OLD", "NEW", "REMARK"],
        [[each.topic, each.partition, each.old, each.new, each.remark or ""] for each in resets],
    )
    if not execute:
        note("dry run, nothing is changed: repeat it with --execute")


@app.command()
def delete(
    names: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail if a group does not exist.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Delete share groups without members, and all that they know about records.

    Example:

        penstock share-groups delete workers
    """
    from penstock.model.errors import ErrorCode

    missing = ErrorCode.GROUP_ID_NOT_FOUND if if_exists else None
    with connect(bootstrap_server) as admin:
        delete_each(names, lambda name: admin.share_groups.delete([name]), missing, json=json)


def _print_group(group: ShareGroupDescription, offsets: list[ShareOffset]) -> None:
    count = len(group.members)
    total = sum(each.lag for each in offsets if each.lag is not None)
    members = f"{count} member" + ("" if count == 1 else "s")
    print(
        f"{group.group_id}  share group, {group.state}, {members}, epoch {group.epoch}, coordinator {group.coordinator}"
    )
    print(f"  lag {total}")
    print_table(
        ["TOPIC", "PARTITION", "START", "LAG"],
        [[each.topic, each.partition, each.start, each.lag] for each in offsets],
    )
    if group.members:
        print()
        print_table(
            ["MEMBER", "CLIENT", "HOST", "EPOCH", "SUBSCRIBED", "PARTITIONS"],
            [
                [
                    member.member_id,
                    member.client_id,
                    member.host,
                    member.epoch,
                    " ".join(member.topics),
                    partitions_text(member.assignment) or None,
                ]
                for member in group.members
            ],
        )
