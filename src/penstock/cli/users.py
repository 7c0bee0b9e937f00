"""`penstock users`: SCRAM users of a cluster, and hashes for password files.

Passwords are read from the terminal or from standard input, never from the command line: other users of the machine see
that.
"""

from __future__ import annotations

import getpass
import secrets
import sys
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
    print_json,
    print_table,
)

app = command_group("List SCRAM users, set and remove their passwords.")

Mechanism = Annotated[str, typer.Option(metavar="MECHANISM", help="SCRAM-SHA-256 or SCRAM-SHA-512.")]
User = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
DEFAULT_MECHANISM = "SCRAM-SHA-512"
_SALT_BYTES = 16


@app.callback()
def group() -> None:
    pass


@app.command("list")
def list_users(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """List the SCRAM users and their mechanisms.

    Example:

        penstock users list --command-config admin.properties
    """
    with connect(bootstrap_server) as admin:
        users = admin.users.list()
    if json:
        print_json(users)
        return
    print_table(
        ["USER", "MECHANISM", "ITERATIONS"],
        [[user.name, mechanism, iterations] for user in users for mechanism, iterations in user.mechanisms.items()],
    )


@app.command("set-password")
def set_password(
    user: User,
    mechanism: Mechanism = DEFAULT_MECHANISM,
    iterations: Annotated[int, typer.Option(help="Between 4096 and 16384.")] = 8192,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Create a SCRAM user, or replace its password, which is read from the terminal or from standard input.

    Examples:

        penstock users set-password alice
        penstock users set-password alice < password.txt
    """
    password = read_password(f"password of {user}: ")
    with connect(bootstrap_server) as admin:
        admin.users.set_password(user, password, mechanism=mechanism, iterations=iterations)
    note(f"user {user} has a new {mechanism} password")


@app.command()
def remove(
    user: User,
    mechanism: Mechanism = DEFAULT_MECHANISM,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove the password of a SCRAM user. Connections that are open stay so until they have to authenticate again.

    Example:

        penstock users remove alice
    """
    with connect(bootstrap_server) as admin:
        admin.users.remove(user, mechanism=mechanism)
    note(f"user {user} has no {mechanism} password any more")


@app.command("hash-password")
def hash_password(user: User) -> None:
    """Print the line of a user for the password file of the authenticator password-file.

    Example:

        penstock users hash-password alice >> /etc/penstock/passwords
    """
    from penstock.broker.authentication.password_file import hash_password

    if ":" in user:
        fail("the name of a user in a password file cannot contain a colon")
    print(f"{user}:{hash_password(read_password(f'password of {user}: '), secrets.token_bytes(_SALT_BYTES))}")


def read_password(prompt: str) -> str:
    if sys.stdin.isatty():
        password = getpass.getpass(prompt)
        if password != getpass.getpass("again: "):
            fail("the passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        fail("the password is empty")
    return password
