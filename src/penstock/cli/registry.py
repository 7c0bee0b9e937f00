"""`penstock registry`: runs a node of the schema registry, in the foreground."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, fail

DEFAULT_LISTEN = "127.0.0.1:8081"


Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="Address to listen on.")]
Advertised = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Where other nodes reach this one; by default where it listens.", show_default=False
    ),
]
SchemasTopic = Annotated[str, typer.Option(metavar="NAME", help="The topic with the schemas.")]
ElectionGroup = Annotated[
    str, typer.Option(metavar="NAME", help="The group in which the nodes of one registry elect the writer.")
]
SessionTimeout = Annotated[
    float, typer.Option(min=0.5, metavar="SECONDS", help="A writer that is silent for this long is replaced.")
]
CertificateFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Certificate chain (PEM), for HTTPS.", show_default=False)
]
KeyFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Private key of the certificate (PEM).", show_default=False)
]
AuthorityFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Certificates (PEM) that other nodes' are checked against.", show_default=False),
]
RolesFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Who may do what (TOML). With it, clients need the name and password of a user of the cluster.",
        show_default=False,
    ),
]
Mechanism = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How passwords are checked at the cluster: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; by default as the "
        "registry itself logs in.",
        show_default=False,
    ),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Listen on other addresses than loopback without HTTPS and roles.")
]


def registry(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    listen: Listen = DEFAULT_LISTEN,
    advertised: Advertised = None,
    topic: SchemasTopic = "_schemas",
    group: ElectionGroup = "schema-registry",
    session_timeout: SessionTimeout = 10.0,
    certificate: CertificateFile = None,
    key: KeyFile = None,
    authority: AuthorityFile = None,
    roles: RolesFile = None,
    mechanism: Mechanism = None,
    insecure: Insecure = False,
    lifeline: Annotated[int | None, typer.Option(metavar="FD", hidden=True)] = None,
) -> None:
    """Run a schema registry with the REST API of Confluent's, in the foreground. Ctrl-C stops it.

    Prints one line, [bold]ready http://HOST:PORT[/bold], when it answers. Schemas are stored in the topic
    [bold]_schemas[/bold], in Confluent's format; a topic that Confluent's registry wrote can be used as it is. Several
    nodes of one [bold]--group[/bold] elect the one that writes; each of them answers every request.

    Examples:

        penstock registry
        penstock registry -b kafka-1:9092 --listen 127.0.0.1:8085
        penstock registry --profile prod --listen 0.0.0.0:8081 --certificate r.pem --key r.key --roles roles.toml
    """
    try:
        from penstock.registry.node import NodeSettings
        from penstock.registry.process import ServerSettings, run
    except ImportError as error:
        fail(f"the registry needs the extra `registry` (pip install 'penstock[registry]'): {error}")
    _log_to_stderr()
    if lifeline is not None:
        from penstock.local.lifeline import stop_with_parent

        stop_with_parent(lifeline)
    host, port = _address("--listen", listen)
    server = ServerSettings(
        host=host,
        port=port,
        advertised=None if advertised is None else _address("--advertised", advertised),
        certificate=certificate,
        key=key,
        authority=authority,
        roles=roles,
        mechanism=mechanism,
        insecure=insecure,
    )
    settings = NodeSettings(bootstrap=bootstrap_server, topic=topic, group=group, session_s=session_timeout)
    try:
        run(settings, server, lambda url: print(f"ready {url}", flush=True))
    except ExceptionGroup as group_of_errors:
        raise _first(group_of_errors) from None


def _first(error: BaseException) -> BaseException:
    """The cause in nested groups of tasks; a command reports one error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _address(option: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        fail(f"{option} {text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _log_to_stderr() -> None:
    import logging

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
