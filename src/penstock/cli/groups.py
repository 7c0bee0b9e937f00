"""`penstock groups`: lists, describes and deletes consumer groups and their offsets."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.arguments import connect, delete_each, parse_partitions, partitions_text
from penstock.cli.groups_reset import reset_offsets
from penstock.cli.output import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Json,
    command_group,
    fail,
    note,
    print_groups,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from penstock.client.wire.admin.group_members import GroupDescription, GroupMember
    from penstock.client.wire.admin.groups import PartitionLag

app = command_group("Show the progress of consumer groups, reset and delete them.")

_STATES = (
    "Empty", "PreparingRebalance", "CompletingRebalance", "NotReady", "Assigning", "Reconciling", "Stable", "Dead",
)  # fmt: skip
_TYPES = ("classic", "consumer", "share", "streams")

Names = Annotated[list[str], typer.Argument(metavar="GROUP...", show_default=False)]


@app.command("list")
def list_groups(
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help=f"Only groups in this state ({', '.join(_STATES)}); repeatable."),
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help=f"Only groups of this protocol ({', '.join(_TYPES)}); repeatable."),
    ] = None,
    names_only: Annotated[bool, typer.Option("--names", help="Print only the names, one per line.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List the groups of a cluster.

    Examples:

        penstock groups list --state Stable
        penstock groups list --names | grep ^billing
    """
    _check_among("--state", state or (), _STATES)
    _check_among("--type", type_ or (), _TYPES)
    with connect(bootstrap_server) as admin:
        groups = admin.groups.list(states=state or (), types=type_ or ())
    print_groups(
        groups,
        ["GROUP", "TYPE", "STATE", "PROTOCOL", "COORDINATOR"],
        lambda group: [group.group_id, group.type, group.state, group.protocol_type or None, group.coordinator],
        kind="groups",
        names_only=names_only,
        json=json,
    )


@app.command()
def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="[GROUP]...", help="Default: all groups.")] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show the progress of groups in each partition, and their members.

    COMMITTED is the offset at which the group would continue, END is the end of the partition, and LAG is the
    difference. A partition without a MEMBER is not being read. A member is idle if there are more members than
    partitions, joining during a rebalance, and moving while it takes over or gives up partitions.

    Example:

        penstock groups describe billing
    """
    from penstock.client.wire.admin.group_members import WITH_OFFSETS

    _check_names(names or ())
    with connect(bootstrap_server) as admin:
        wanted = names or [group.group_id for group in admin.groups.list(types=WITH_OFFSETS)]
        described = [(group, admin.groups.lag(group.group_id)) for group in admin.groups.describe(wanted)]
    if json:
        print_json([_as_json(group, lags) for group, lags in described])
        return
    for position, (group, lags) in enumerate(described):
        if position:
            print()
        _print_group(group, lags)
    if not described:
        note("no groups")


@app.command()
def delete(
    names: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail if a group does not exist.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Delete groups without members, and all their committed offsets.

    Example:

        penstock groups delete billing --if-exists
    """
    from penstock.model.errors import ErrorCode

    _check_names(names)
    missing = ErrorCode.GROUP_ID_NOT_FOUND if if_exists else None
    with connect(bootstrap_server) as admin:
        delete_each(names, lambda name: admin.groups.delete([name]), missing, json=json)


@app.command()
def delete_offsets(
    name: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    topic: Annotated[
        list[str],
        typer.Option(metavar="TOPIC[:PARTITION,...]", help="Topic or partitions; repeatable.", show_default=False),
    ],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Delete the committed offsets of a group in topics that no member reads.

    Example:

        penstock groups delete-offsets billing --topic orders --topic payments:0,1
    """
    _check_names([name])
    wanted = parse_partitions("--topic", topic)
    with connect(bootstrap_server) as admin:
        admin.groups.describe([name])
        committed = admin.groups.offsets(name)
        chosen = {
            partition: offset
            for partition, offset in committed.items()
            if partition.topic in wanted and partition.partition in (wanted[partition.topic] or [partition.partition])
        }
        for each in wanted:
            if not any(partition.topic == each for partition in chosen):
                there = partitions_text(committed) or "no topic"
                fail(f"group {name!r} has committed nothing there: --topic is about {each!r}, it has in {there}")
        admin.groups.delete_offsets(name, chosen)
    if json:
        rows = [
            {"topic": partition.topic, "partition": partition.partition, "committed": offset.offset}
            for partition, offset in chosen.items()
        ]
        print_json(rows)
    else:
        print_table(
            ["TOPIC", "PARTITION", "DELETED"],
            [[partition.topic, partition.partition, offset.offset] for partition, offset in chosen.items()],
        )


app.command()(reset_offsets)


def _check_among(option: str, given: list[str] | tuple[()], known: tuple[str, ...]) -> None:
    for each in given:
        if each.lower() not in map(str.lower, known):
            fail(f"{option} {each!r} is none of {', '.join(known)}")


def _check_names(names: list[str] | tuple[()]) -> None:
    if "" in names:
        fail("a group has a name of at least one character")


def _print_group(group: GroupDescription, lags: list[PartitionLag]) -> None:
    facts = [f"{group.type} group", group.state, _count(len(group.members), "member")]
    if group.assignor:
        facts.append(f"assignor {group.assignor}")
    if group.epoch is not None:
        facts.append(f"epoch {group.epoch}")
    print(f"{group.group_id}  {', '.join(facts)}, coordinator {group.coordinator}")
    print(f"  lag {_total(lags)} in {_count(len(lags), 'partition')}{_unknown(lags)}")
    print_table(
        ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"],
        [[each.topic, each.partition, each.committed, each.end, each.lag, each.member_id] for each in lags],
    )
    if group.members:
        print()
    print_table(
        ["MEMBER", "CLIENT", "HOST", "INSTANCE", "EPOCH", "STATE", "SUBSCRIBED", "PARTITIONS"],
        [
            [
                member.member_id,
                member.client_id,
                member.host,
                member.instance_id,
                member.epoch,
                _state(group, member),
                " ".join([*member.topics, *([member.topic_regex] if member.topic_regex else [])]) or None,
                partitions_text(member.assignment) or None,
            ]
            for member in group.members
        ],
    )


def _total(lags: list[PartitionLag]) -> int:
    return sum(each.lag for each in lags if each.lag is not None)


def _unknown(lags: list[PartitionLag]) -> str:
    unknown = sum(each.lag is None for each in lags)
    return f", not known in {unknown} of them" if unknown else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _state(group: GroupDescription, member: GroupMember) -> str:
    if group.state in ("PreparingRebalance", "CompletingRebalance"):
        return "joining"
    if member.target_assignment is not None and member.target_assignment != member.assignment:
        return "moving"
    return "reading" if member.assignment else "idle"


def _as_json(group: GroupDescription, lags: list[PartitionLag]) -> dict[str, Any]:
    def partitions(of: tuple[Any, ...] | None) -> list[dict[str, Any]] | None:
        return None if of is None else [{"topic": topic, "partition": partition} for topic, partition in of]

    return {
        **dataclasses.asdict(group),
        "lag": _total(lags),
        "partitions": lags,
        "members": [
            {
                **dataclasses.asdict(member),
                "state": _state(group, member),
                "assignment": partitions(member.assignment),
                "target_assignment": partitions(member.target_assignment),
            }
            for member in group.members
        ],
    }
