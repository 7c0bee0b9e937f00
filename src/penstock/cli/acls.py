"""`penstock acls`: lists, adds and removes ACLs, with the options of Kafka's own tool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.arguments import connect
from penstock.cli.output import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Json,
    command_group,
    fail,
    note,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from penstock.client.wire.admin.acls import Acl

app = command_group("Show and change ACLs: who may do what to topics, groups and the cluster.")

CLUSTER = "kafka-cluster"

Names = list[str] | None
Topic = Annotated[Names, typer.Option(metavar="TOPIC", help="A topic; repeatable. * for all.", show_default=False)]
Group = Annotated[Names, typer.Option(metavar="GROUP", help="A group; repeatable. * for all.", show_default=False)]
TransactionalId = Annotated[
    Names, typer.Option(metavar="ID", help="A transactional id; repeatable. * for all.", show_default=False)
]
DelegationToken = Annotated[
    Names, typer.Option(metavar="TOKEN", help="A delegation token; repeatable.", show_default=False)
]
UserPrincipal = Annotated[
    Names, typer.Option(metavar="USER", help="A user, for tokens in their name; repeatable.", show_default=False)
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
AllowPrincipal = Annotated[
    Names,
    typer.Option(metavar="PRINCIPAL", help="Who may, such as User:alice, or User:*; repeatable.", show_default=False),
]
DenyPrincipal = Annotated[
    Names, typer.Option(metavar="PRINCIPAL", help="Who may not; repeatable. Denials win.", show_default=False)
]
Host = Annotated[
    Names,
    typer.Option(metavar="HOST", help="From an address, or a range such as 10.0.0.0/8; repeatable.", show_default="*"),
]
Operations = Annotated[
    Names,
    typer.Option(
        "--operation",
        metavar="OPERATION",
        help="All, Read, Write, Create, Delete, Alter, Describe, ClusterAction, DescribeConfigs, AlterConfigs, "
        "IdempotentWrite, CreateTokens, DescribeTokens or TwoPhaseCommit; repeatable.",
        show_default="All",
    ),
]
Producer = Annotated[
    bool, typer.Option("--producer", help="What a producer of the --topic (and --transactional-id) needs.")
]
Consumer = Annotated[bool, typer.Option("--consumer", help="What a consumer of the --topic in the --group needs.")]
Idempotent = Annotated[
    bool, typer.Option("--idempotent", help="With --producer: also the right to be idempotent, for old clusters.")
]
Pattern = Annotated[
    str, typer.Option("--resource-pattern-type", metavar="TYPE", help="literal, or prefixed: all names with a prefix.")
]
FilterPattern = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type",
        metavar="TYPE",
        help="literal, prefixed, any (both), or match: all ACLs that apply to the resource.",
    ),
]


@app.command("list")
def list_acls(
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    delegation_token: DelegationToken = None,
    user_principal: UserPrincipal = None,
    cluster: Cluster = False,
    principal: Annotated[
        Names, typer.Option(metavar="PRINCIPAL", help="Only ACLs of this principal; repeatable.", show_default=False)
    ] = None,
    pattern: FilterPattern = "any",
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List ACLs: all of them, or those of some resources or principals.

    Example:

        penstock acls list --topic orders --resource-pattern-type match
    """
    from penstock.client.wire.admin.acls import AclFilter

    resources = _resources(topic, group, transactional_id, delegation_token, user_principal, cluster)
    wanted: list[tuple[str | None, str | None]] = [*resources] or [(None, None)]
    principals: list[str | None] = [*(principal or [])] or [None]
    filters = [
        AclFilter(resource_type=kind, resource=name, pattern=_checked(pattern), principal=who)
        for kind, name in wanted
        for who in principals
    ]
    with connect(bootstrap_server) as admin:
        found = {acl: None for each in filters for acl in admin.acls.describe(each)}
    _show(list(found), json, "no ACLs")


@app.command()
def add(
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    delegation_token: DelegationToken = None,
    user_principal: UserPrincipal = None,
    cluster: Cluster = False,
    allow_principal: AllowPrincipal = None,
    deny_principal: DenyPrincipal = None,
    host: Host = None,
    operation: Operations = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    pattern: Pattern = "literal",
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Add ACLs. Those that exist already stay.

    Example:

        penstock acls add --allow-principal User:alice --producer --topic orders
        penstock acls add --allow-principal User:bob --consumer --topic orders --group billing
        penstock acls add --deny-principal User:eve --operation Read --topic "*"
    """
    from penstock.client.wire.admin.acls import Acl

    resources = _resources(topic, group, transactional_id, delegation_token, user_principal, cluster)
    wanted = _wanted(resources, operation, producer, consumer, idempotent)
    if not wanted:
        fail("name a resource: --topic, --group, --transactional-id, --cluster, ...")
    if not allow_principal and not deny_principal:
        fail("name a user: --allow-principal or --deny-principal")
    pattern = _checked(pattern, "literal", "prefixed")
    acls = [Acl(**each) for each in _fields(wanted, allow_principal, deny_principal, host or ["*"], pattern)]
    with connect(bootstrap_server) as admin:
        admin.acls.create(acls)
    _show(acls, json, "")


@app.command()
def remove(
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    delegation_token: DelegationToken = None,
    user_principal: UserPrincipal = None,
    cluster: Cluster = False,
    allow_principal: AllowPrincipal = None,
    deny_principal: DenyPrincipal = None,
    host: Host = None,
    operation: Operations = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    pattern: FilterPattern = "literal",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Remove the ACLs of resources: all of them, or only those of some principals, hosts or operations.

    Example:

        penstock acls remove --topic orders --allow-principal User:alice --dry-run
        penstock acls remove --allow-principal User:bob --consumer --topic orders --group billing
    """
    from penstock.client.wire.admin.acls import AclFilter

    resources = _resources(topic, group, transactional_id, delegation_token, user_principal, cluster)
    if not resources:
        fail("name a resource: --topic, --group, --transactional-id, --cluster, ...")
    wanted: list[tuple[str, str, str | None]]
    if operation or producer or consumer:
        wanted = [*_wanted(resources, operation, producer, consumer, idempotent)]
    else:
        wanted = [(kind, name, None) for kind, name in resources]
    filters = [AclFilter(**each) for each in _fields(wanted, allow_principal, deny_principal, host, _checked(pattern))]
    with connect(bootstrap_server) as admin:
        if dry_run:
            removed = list({acl: None for each in filters for acl in admin.acls.describe(each)})
        else:
            removed = admin.acls.delete(filters)
    _show(removed, json, "no ACL matches")
    if removed and not json:
        note("would be removed" if dry_run else f"removed {len(removed)}")


def _resources(
    topic: Names, group: Names, transactional_id: Names, token: Names, user: Names, cluster: bool
) -> list[tuple[str, str]]:
    return [
        *(("TOPIC", name) for name in topic or ()),
        *(("GROUP", name) for name in group or ()),
        *(("TRANSACTIONAL_ID", name) for name in transactional_id or ()),
        *(("DELEGATION_TOKEN", name) for name in token or ()),
        *(("USER", name) for name in user or ()),
        *([("CLUSTER", CLUSTER)] if cluster else ()),
    ]


def _wanted(
    resources: list[tuple[str, str]], operations: Names, producer: bool, consumer: bool, idempotent: bool
) -> list[tuple[str, str, str]]:
    """Resource types, names and operations: those named, and those that a producer or a consumer needs."""
    kinds = {kind for kind, _ in resources}
    if (producer or consumer) and operations:
        fail("--producer and --consumer name the operations: leave out --operation")
    if producer and "TOPIC" not in kinds:
        fail("--producer needs a --topic")
    if consumer and not {"TOPIC", "GROUP"} <= kinds:
        fail("--consumer needs a --topic and a --group")
    if idempotent and not producer:
        fail("--idempotent goes with --producer")
    needed: dict[str, list[str]] = {}
    if producer:
        needed = {"TOPIC": ["WRITE", "DESCRIBE", "CREATE"], "TRANSACTIONAL_ID": ["WRITE", "DESCRIBE"]}
    if consumer:
        needed["TOPIC"] = [*needed.get("TOPIC", []), *(["READ"] if producer else ["READ", "DESCRIBE"])]
        needed["GROUP"] = ["READ"]
    chosen = [_operation(each) for each in operations or ["ALL"]]
    wanted = [
        (kind, name, each)
        for kind, name in resources
        for each in (needed.get(kind, []) if producer or consumer else chosen)
    ]
    if idempotent:
        wanted.append(("CLUSTER", CLUSTER, "IDEMPOTENT_WRITE"))
    return wanted


def _operation(name: str) -> str:
    """`DescribeConfigs`, as in Kafka's own tool, or `DESCRIBE_CONFIGS`."""
    from penstock.security.authorizer import Operation

    known = {each.name.replace("_", ""): each.name for each in Operation if each > Operation.ANY}
    found = known.get(name.replace("_", "").replace("-", "").upper())
    if found is None:
        fail(f"--operation {name}: there is no such operation")
    return found


def _checked(pattern: str, *allowed: str) -> str:
    if pattern.lower() not in (allowed or ("literal", "prefixed", "any", "match")):
        fail(f"--resource-pattern-type {pattern}: there is no such type")
    return pattern.upper()


def _fields(
    wanted: Sequence[tuple[str, str, str | None]], allowed: Names, denied: Names, hosts: Names, pattern: str
) -> Iterator[dict[str, Any]]:
    """Of every ACL, or filter of ACLs, that the options name; None leaves a field of a filter open."""
    everybody: list[tuple[str | None, str | None]] = [
        *(("ALLOW", who) for who in allowed or ()),
        *(("DENY", who) for who in denied or ()),
    ]
    from_hosts: list[str | None] = [*(hosts or ())]
    for kind, name, operation in wanted:
        for permission, who in everybody or [(None, None)]:
            for host in from_hosts or [None]:
                yield {
                    "principal": who,
                    "operation": operation,
                    "resource_type": kind,
                    "resource": name,
                    "pattern": "LITERAL" if kind == "CLUSTER" else pattern,
                    "host": host,
                    "permission": permission,
                }


def _show(acls: list[Acl], json: bool, nothing: str) -> None:
    columns = attrgetter("resource_type", "resource", "pattern", "principal", "permission", "operation", "host")
    if json:
        print_json(acls)
    elif acls:
        print_table(
            ["RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "PERMISSION", "OPERATION", "HOST"],
            [list(columns(acl)) for acl in acls],
        )
    elif nothing:
        note(nothing)
