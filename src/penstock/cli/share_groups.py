"""`penstock share-groups`: lists, describes, moves and deletes share groups."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.arguments import connect, delete_each, partitions_text
from penstock.cli.groups_reset import (
    ByDuration,
    Execute,
    GroupName,
    ToEarliest,
    ToLatest,
    ToOffset,
    Topics,
    ToTime,
    check_partitions,
    chosen_partitions,
    given_targets,
    only_target,
    print_resets,
)
from penstock.cli.output import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Json,
    command_group,
    note,
    print_groups,
    print_json,
    print_table,
)

if TYPE_CHECKING:
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
    print_groups(
        groups,
        ["GROUP", "STATE", "COORDINATOR"],
        lambda group: [group.group_id, group.state, group.coordinator],
        kind="share groups",
        names_only=names_only,
        json=json,
    )


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
    name: GroupName,
    topic: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Reset all partitions that the group has read.")
    ] = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_offset: ToOffset = None,
    to_time: ToTime = None,
    by_duration: ByDuration = None,
    execute: Execute = False,
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
    targets = given_targets(to_earliest, to_latest, to_offset, to_time, by_duration)
    target = only_target(name, targets, "--to-time or --by-duration")
    check_partitions(topic, all_topics)
    with connect(bootstrap_server) as admin:
        partitions = chosen_partitions(admin, topic)
        resets = admin.share_groups.reset(name, target, partitions=partitions, dry_run=not execute)
    if json:
        print_json({"group_id": name, "executed": execute, "offsets": resets})
    else:
        print_resets(resets, executed=execute)


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
