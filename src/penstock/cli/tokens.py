"""`penstock tokens`: delegation tokens of a cluster."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.arguments import connect, parse_duration
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
    from penstock.client.wire.admin.tokens import DelegationTokenDescription

app = command_group("Make, renew, end and list delegation tokens.")

Hmac = Annotated[
    str, typer.Option("--hmac-file", metavar="FILE", help="File with the token's HMAC, in base64; - for stdin.")
]


@app.callback()
def group() -> None:
    pass


@app.command()
def create(
    renewer: Annotated[
        list[str] | None,
        typer.Option(metavar="User:NAME", help="Who else may renew it; repeatable.", show_default=False),
    ] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="User:NAME", help="Make it for another user.", show_default=False)
    ] = None,
    max_lifetime: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Such as 12h; at most the cluster's.", show_default=False)
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Make a delegation token. To log in with it, use SCRAM with its id as the user and its HMAC as the password.

    Example:

        penstock tokens create --renewer User:spark --max-lifetime 12h --command-config alice.properties
    """
    lifetime_ms = -1 if max_lifetime is None else _milliseconds("--max-lifetime", max_lifetime)
    with connect(bootstrap_server) as admin:
        token = admin.tokens.create(owner=owner, renewers=renewer or (), max_lifetime_ms=lifetime_ms)
    _print([token], with_hmac=True, json=json)


@app.command("list")
def list_tokens(
    owner: Annotated[
        list[str] | None, typer.Option(metavar="User:NAME", help="Only of this owner; repeatable.", show_default=False)
    ] = None,
    show_hmac: Annotated[bool, typer.Option("--show-hmac", help="Print the secrets, too.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List the delegation tokens that you may see.

    Example:

        penstock tokens list --command-config alice.properties
    """
    with connect(bootstrap_server) as admin:
        tokens = admin.tokens.list(owner or ())
    _print(tokens, with_hmac=show_hmac, json=json)


@app.command()
def renew(
    hmac_file: Hmac,
    period: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Such as 12h; at most the cluster's.", show_default=False)
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Extend the life of a delegation token.

    Example:

        penstock tokens renew --hmac-file token.hmac --period 12h
    """
    period_ms = -1 if period is None else _milliseconds("--period", period)
    with connect(bootstrap_server) as admin:
        expires_at_ms = admin.tokens.renew(_read_hmac(hmac_file), period_ms)
    note(f"the token expires at {_time(expires_at_ms)}")


@app.command()
def expire(hmac_file: Hmac, bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """End a delegation token at once.

    Example:

        penstock tokens expire --hmac-file token.hmac
    """
    with connect(bootstrap_server) as admin:
        admin.tokens.expire(_read_hmac(hmac_file))
    note("the token has ended")


def _print(tokens: list[DelegationTokenDescription], *, with_hmac: bool, json: bool) -> None:
    def hmac_of(token: DelegationTokenDescription) -> str | None:
        return base64.b64encode(token.hmac).decode() if with_hmac else None

    if json:
        print_json(
            [
                {
                    "token_id": token.token_id,
                    "hmac": hmac_of(token),
                    "owner": token.owner,
                    "requester": token.requester,
                    "renewers": token.renewers,
                    "issued_at_ms": token.issued_at_ms,
                    "expires_at_ms": token.expires_at_ms,
                    "max_at_ms": token.max_at_ms,
                }
                for token in tokens
            ]
        )
        return
    print_table(
        ["TOKEN", "OWNER", "RENEWERS", "EXPIRES", "AT THE LATEST", "HMAC"],
        [
            [
                token.token_id,
                token.owner,
                token.renewers,
                _time(token.expires_at_ms),
                _time(token.max_at_ms),
                hmac_of(token),
            ]
            for token in tokens
        ],
    )


def _read_hmac(path: str) -> bytes:
    try:
        with open(0 if path == "-" else path, encoding="ascii") as file:
            return base64.b64decode(file.read().strip(), validate=True)
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    except (UnicodeDecodeError, binascii.Error):
        fail(f"{path}: not an HMAC in base64")


def _milliseconds(option: str, text: str) -> int:
    return int(parse_duration(option, text).total_seconds() * 1000)


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
