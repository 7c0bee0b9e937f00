"""`penstock groups reset-offsets`: changes the committed offsets of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.arguments import connect, existing_partitions, parse_duration, parse_partitions, parse_time
from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, Json, fail, note, print_json, print_table

if TYPE_CHECKING:
    from penstock.client.wire.admin.groups import GroupDescription, ResetTarget


def reset_offsets(
    name: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC[:PARTITION,...]", help="Reset this topic, or these partitions of it; repeatable."),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Reset all partitions in which the group has committed offsets.")
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
    shift_by: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Forward from the committed offset by N records, or back if N is negative.",
            show_default=False,
        ),
    ] = None,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To the committed offset, or the end if there is none.")
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Reset the offsets. Without this option, only show the result.")
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Reset the offsets of a group, to read records again or to skip some.

    Shows the new offset of each partition. With --execute, the offsets are reset if the group has no members: stop the
    members first, because they would continue from their own positions. An offset that a partition does not have is
    replaced by the nearest one.

    Examples:

        penstock groups reset-offsets billing --all-topics --to-earliest
        penstock groups reset-offsets billing --topic orders:0,1 --to-time 2026-05-01T12:00:00Z --execute
        penstock groups reset-offsets billing --topic orders --shift-by -100 --execute
    """
    from penstock.client.wire.admin.groups import ShiftBy

    if not name:
        fail("a group has a name of at least one character")
    targets: list[ResetTarget] = []
    targets += ["earliest"] if to_earliest else []
    targets += ["latest"] if to_latest else []
    targets += ["current"] if to_current else []
    targets += [to_offset] if to_offset is not None else []
    targets += [parse_time("--to-time", to_time)] if to_time is not None else []
    targets += [parse_duration("--by-duration", by_duration)] if by_duration is not None else []
    targets += [ShiftBy(shift_by)] if shift_by is not None else []
    if len(targets) != 1:
        fail(
            "say where to: give one of --to-earliest, --to-latest, --to-offset, --to-time, --by-duration, --shift-by "
            "or --to-current"
        )
    if bool(topic) == all_topics:
        fail("say in which partitions: give --topic TOPIC[:PARTITION,...], or else --all-topics")
    with connect(bootstrap_server) as admin:
        partitions = existing_partitions(admin, parse_partitions("--topic", topic)) if topic else None
        group = admin.groups.find(name)
        resets = admin.groups.reset(name, targets[0], partitions=partitions, dry_run=not execute)
    if json:
        members = [] if group is None else [member.client_id for member in group.members]
        print_json({"group_id": name, "executed": execute, "members": members, "offsets": resets})
        return
    print_table(
        ["TOPIC", "PARTITION", "OLD", "NEW", "REMARK"],
        [[each.topic, each.partition, each.old, each.new, each.remark or ""] for each in resets],
    )
    if not execute:
        note(f"dry run, nothing is changed: repeat it with --execute{_obstacle(name, group)}")


def _obstacle(name: str, group: GroupDescription | None) -> str:
    if group is None:
        return f", which makes the group {name!r}"
    return f", when its members have stopped: {group.who()}" if group.members else ""
