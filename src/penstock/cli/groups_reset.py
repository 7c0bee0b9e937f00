"""`penstock groups reset-offsets`: changes the committed offsets of a group.

`penstock share-groups reset-offsets` has most of its options, and the same table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.arguments import connect, existing_partitions, parse_duration, parse_partitions, parse_time
from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, Json, fail, note, print_json, print_table

if TYPE_CHECKING:
    from penstock.client.wire.admin import Admin
    from penstock.client.wire.admin.group_reset import OffsetReset, ResetTarget
    from penstock.client.wire.admin.groups import GroupDescription
    from penstock.model.ids import TopicPartition


GroupName = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]
Topics = Annotated[
    list[str] | None,
    typer.Option(metavar="TOPIC[:PARTITION,...]", help="Reset this topic, or these partitions of it; repeatable."),
]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="To the first record.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="To the end: read only new records.")]
ToOffset = Annotated[int | None, typer.Option(min=0, metavar="OFFSET", help="To this offset.", show_default=False)]
ToTime = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="To the first record from this time on: ISO 8601 (UTC if it has no zone), or milliseconds since 1970.",
        show_default=False,
    ),
]
ByDuration = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION", help="To the first record of the last 90m, 2h, 1d12h or PT1H30M.", show_default=False
    ),
]
Execute = Annotated[
    bool, typer.Option("--execute", help="Reset the offsets. Without this option, only show the result.")
]


def reset_offsets(
    name: GroupName,
    topic: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Reset all partitions in which the group has committed offsets.")
    ] = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_offset: ToOffset = None,
    to_time: ToTime = None,
    by_duration: ByDuration = None,
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
    execute: Execute = False,
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

    targets = given_targets(to_earliest, to_latest, to_offset, to_time, by_duration)
    targets += ["current"] if to_current else []
    targets += [ShiftBy(shift_by)] if shift_by is not None else []
    target = only_target(name, targets, "--to-time, --by-duration, --shift-by or --to-current")
    check_partitions(topic, all_topics)
    with connect(bootstrap_server) as admin:
        partitions = chosen_partitions(admin, topic)
        group = admin.groups.find(name)
        resets = admin.groups.reset(name, target, partitions=partitions, dry_run=not execute)
    if json:
        members = [] if group is None else [member.client_id for member in group.members]
        print_json({"group_id": name, "executed": execute, "members": members, "offsets": resets})
    else:
        print_resets(resets, executed=execute, obstacle=_obstacle(name, group))


def given_targets(
    to_earliest: bool, to_latest: bool, to_offset: int | None, to_time: str | None, by_duration: str | None
) -> list[ResetTarget]:
    """The targets that the options name, which resets of all kinds of groups have."""
    targets: list[ResetTarget] = []
    targets += ["earliest"] if to_earliest else []
    targets += ["latest"] if to_latest else []
    targets += [to_offset] if to_offset is not None else []
    targets += [parse_time("--to-time", to_time)] if to_time is not None else []
    targets += [parse_duration("--by-duration", by_duration)] if by_duration is not None else []
    return targets


def only_target(name: str, targets: list[ResetTarget], last_options: str) -> ResetTarget:
    """The target if there is exactly one; fails otherwise, and if the group has no name."""
    if not name:
        fail("a group has a name of at least one character")
    if len(targets) != 1:
        fail(f"say where to: give one of --to-earliest, --to-latest, --to-offset, {last_options}")
    return targets[0]


def check_partitions(topic: list[str] | None, all_topics: bool) -> None:
    if bool(topic) == all_topics:
        fail("say in which partitions: give --topic TOPIC[:PARTITION,...], or else --all-topics")


def chosen_partitions(admin: Admin, topic: list[str] | None) -> list[TopicPartition] | None:
    """None for all."""
    return existing_partitions(admin, parse_partitions("--topic", topic)) if topic else None


def print_resets(resets: Sequence[OffsetReset], *, executed: bool, obstacle: str = "") -> None:
    """`obstacle`: what must happen before --execute works."""
    print_table(
        ["TOPIC", "PARTITION", "OLD", "NEW", "REMARK"],
        [[each.topic, each.partition, each.old, each.new, each.remark or ""] for each in resets],
    )
    if not executed:
        note(f"dry run, nothing is changed: repeat it with --execute{obstacle}")


def _obstacle(name: str, group: GroupDescription | None) -> str:
    if group is None:
        return f", which makes the group {name!r}"
    return f", when its members have stopped: {group.who()}" if group.members else ""
