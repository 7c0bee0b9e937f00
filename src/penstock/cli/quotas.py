"""`penstock quotas`: lists, sets and removes quotas of clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from penstock.cli.arguments import connect
from penstock.cli.output import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Json,
    command_group,
    fail,
    note,
    parse_pairs,
    print_json,
    print_table,
)

app = command_group("List, set and remove quotas: how much a user, a client id or an address may use.")

KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
_UNITS = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}

User = Annotated[str | None, typer.Option(metavar="NAME", help="The user.", show_default=False)]
DefaultUser = Annotated[bool, typer.Option("--default-user", help="Every user without a quota.")]
ClientId = Annotated[str | None, typer.Option(metavar="ID", help="The client id.", show_default=False)]
DefaultClientId = Annotated[bool, typer.Option("--default-client-id", help="Every client id without a quota.")]
Ip = Annotated[str | None, typer.Option(metavar="ADDRESS", help="The address.", show_default=False)]
DefaultIp = Annotated[bool, typer.Option("--default-ip", help="Every address without a quota.")]


@app.callback()
def group() -> None:
    pass


@app.command("list")
def list_quotas(
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List the quotas of the cluster, or of what is named.

    Examples:

        penstock quotas list
        penstock quotas list --user alice
    """
    entity = _entity(user, default_user, client_id, default_client_id, ip, default_ip)
    with connect(bootstrap_server) as admin:
        found = admin.quotas.describe(entity)
    if json:
        print_json(found)
        return
    print_table(
        ["USER", "CLIENT ID", "IP", "QUOTA", "VALUE"],
        [
            [*(_name(each.entity, kind) for kind in ("user", "client-id", "ip")), key, _number(value)]
            for each in found
            for key, value in sorted(each.values.items())
        ],
    )
    if not found:
        note("no quota is set")


@app.command("set")
def set_quotas(
    quotas: Annotated[
        list[str], typer.Argument(metavar="QUOTA=VALUE...", help=f"One of {', '.join(KEYS)}.", show_default=False)
    ],
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set quotas. They apply at once, on every broker by itself.

    Bytes are those of one second, and may have a unit (k, M, G, Ki, Mi, Gi). request_percentage is the share of a
    broker's time, of which there is 100.

    Examples:

        penstock quotas set producer_byte_rate=1M consumer_byte_rate=2M --user alice
        penstock quotas set request_percentage=25 --default-user
        penstock quotas set connection_creation_rate=10 --default-ip
    """
    entity = _some_entity(user, default_user, client_id, default_client_id, ip, default_ip)
    values = {key: _value(key, text) for key, text in parse_pairs("QUOTA", quotas).items()}
    with connect(bootstrap_server) as admin:
        admin.quotas.alter(entity, values)


@app.command()
def remove(
    quotas: Annotated[
        list[str] | None, typer.Argument(metavar="QUOTA...", help="Which ones.", show_default="all of them")
    ] = None,
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove quotas of a user, a client id, a pair of both, or an address.

    Examples:

        penstock quotas remove producer_byte_rate --user alice
        penstock quotas remove --default-client-id
    """
    entity = _some_entity(user, default_user, client_id, default_client_id, ip, default_ip)
    with connect(bootstrap_server) as admin:
        there = [key for each in admin.quotas.describe(entity, strict=True) for key in each.values]
        for key in quotas or ():
            if key not in there:
                fail(f"{key} is not set there: there is {', '.join(sorted(there)) or 'no quota'}")
        admin.quotas.alter(entity, remove=quotas or there)


def _entity(
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    ip: str | None,
    default_ip: bool,
) -> dict[str, str | None]:
    entity: dict[str, str | None] = {}
    for kind, name, is_default in (
        ("user", user, default_user),
        ("client-id", client_id, default_client_id),
        ("ip", ip, default_ip),
    ):
        if name is not None and is_default:
            fail(f"give --{kind} or --default-{kind}, not both")
        if name is not None or is_default:
            entity[kind] = name
    return entity


def _some_entity(*options: str | bool | None) -> dict[str, str | None]:
    entity = _entity(*options)  # type: ignore[arg-type]  # the options of a command, in order
    if not entity:
        fail("say whose quota: give --user, --client-id, both, or --ip (or their --default-...)")
    return entity


def _value(key: str, text: str) -> float:
    number, unit = text.strip(), 1
    for suffix, factor in _UNITS.items():
        if number.lower().endswith(suffix) and number[: -len(suffix)].strip()[-1:].isdigit():
            number, unit = number[: -len(suffix)], factor
            break
    try:
        return float(number) * unit
    except ValueError:
        fail(f"{key}={text!r} is not a number such as 1000000, 1M or 12.5")


def _name(entity: Mapping[str, str | None], kind: str) -> str | None:
    return (entity[kind] or "<default>") if kind in entity else None


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)
