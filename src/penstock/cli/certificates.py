"""`penstock certificates`: an authority of your own, certificates for nodes and clients, and when they expire."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from penstock.cli.output import Json, command_group, fail, note, print_json, print_table

app = command_group("Make an authority, issue and renew certificates, see when they expire.")

DEFAULT_DIRECTORY = "."
EXPIRES_SOON_DAYS = 30

Directory = Annotated[str, typer.Option("--ca", metavar="DIR", help="The directory with ca.pem and ca-key.pem.")]
Days = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="How long the certificate is valid.", show_default="825")
]


@app.command()
def create(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Where ca.pem and ca-key.pem are written.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="The name of the authority.")] = "Penstock CA",
) -> None:
    """Create an authority: DIR/ca.pem, which all others have to trust, and DIR/ca-key.pem, which issues certificates.

    Example:

        penstock certificates create authority
    """
    with _one_line_errors():
        from penstock.tls import files as on_disk

        on_disk.create_authority(directory, name, _now())
    note(f"{os.path.join(directory, 'ca.pem')} is for trust stores; keep ca-key.pem to yourself")


@app.command()
def issue(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The common name: of a node, or of a user.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="A name or an address under which others reach the node; repeatable. A user needs none.",
            show_default=False,
        ),
    ] = None,
    directory: Directory = DEFAULT_DIRECTORY,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="The key store to write.", show_default="NAME.pem")
    ] = None,
    days: Days = None,
) -> None:
    """Issue a certificate. The file is a key store of type PEM: a private key and the certificate.

    Examples:

        penstock certificates issue node-1 --host kafka-1.example --host 10.0.0.1 --ca authority
        penstock certificates issue alice --ca authority --days 90
    """
    path = out or f"{name}.pem"
    if os.path.exists(path):
        fail(f"{path} exists already; see penstock certificates renew")
    with _one_line_errors():
        from penstock.tls import files as on_disk

        on_disk.issue(on_disk.open_authority(directory), path, name, host or (), _now(), days)
    note(f"{path} has a new key and certificate")


@app.command()
def show(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Key stores and trust stores of type PEM.")],
    json: Json = False,
) -> None:
    """Show whom certificates are for and when they expire. The exit status is 1 if one is expired.

    Example:

        penstock certificates show authority/ca.pem node-1.pem
    """
    with _one_line_errors():
        from penstock.tls.files import read_certificates

        found = [each for path in files for each in read_certificates(path)]
    now = _now()
    if json:
        print_json(
            [
                {
                    "file": each.path,
                    "subject": each.subject,
                    "issuer": each.issuer,
                    "hosts": list(each.hosts),
                    "expires": each.expires.isoformat(),
                    "days_left": each.days_left(now),
                }
                for each in found
            ]
        )
    else:
        print_table(
            ["FILE", "SUBJECT", "ISSUER", "HOSTS", "EXPIRES", "DAYS LEFT"],
            [
                [
                    each.path,
                    each.subject,
                    each.issuer,
                    each.hosts or None,
                    each.expires.date().isoformat(),
                    each.days_left(now),
                ]
                for each in found
            ],
        )
        for each in found:
            if each.days_left(now) < EXPIRES_SOON_DAYS:
                note(f"{each.path} {'expires soon' if each.expires > now else 'is expired'}")
    if any(each.expires <= now for each in found):
        raise typer.Exit(1)


@app.command()
def renew(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Key stores that this authority issued.")],
    directory: Directory = DEFAULT_DIRECTORY,
    days: Days = None,
) -> None:
    """Replace the keys and certificates in key stores by new ones with the same names. Running nodes notice it.

    Example:

        penstock certificates renew node-1.pem node-2.pem --ca authority
    """
    with _one_line_errors():
        from penstock.tls import files as on_disk

        authority = on_disk.open_authority(directory)
        for path in files:
            on_disk.renew(authority, path, _now(), days)
            note(f"{path} has a new key and certificate")


@contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        from penstock.tls.files import CertificateError
    except ImportError:
        fail("certificates need the extra `security` (pip install 'penstock[security]')")
    try:
        yield
    except CertificateError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
