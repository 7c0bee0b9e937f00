"""`penstock console`: the web console."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, fail

_LISTEN = "127.0.0.1:8080"


def console(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address to listen on.")] = _LISTEN,
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=HOST:PORT",
            help="One of several clusters, instead of --bootstrap-server; or @PROFILE; repeatable.",
        ),
    ] = None,
    sign_in: Annotated[
        bool,
        typer.Option("--sign-in", help="Ask for a user and password of the cluster, and act as that user."),
    ] = False,
    mechanism: Annotated[
        str, typer.Option(metavar="MECHANISM", help="With --sign-in: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.")
    ] = "SCRAM-SHA-512",
    oidc_issuer: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Sign in at this OpenID provider, and act with its token.", show_default=False
        ),
    ] = None,
    oidc_client_id: Annotated[
        str, typer.Option(metavar="ID", help="The console's client id there.", show_default=False)
    ] = "",
    oidc_secret_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The client's secret, if it has one; PKCE is always used.", show_default=False
        ),
    ] = None,
    oidc_scope: Annotated[str, typer.Option(metavar="SCOPE", help="What to ask the provider for.")] = "openid",
    read_only: Annotated[bool, typer.Option("--read-only", help="Show everything, change nothing.")] = False,
    mask: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC:PATH", help="Never show this field of the JSON in a topic; repeatable."),
    ] = None,
    registry: Annotated[
        str | None, typer.Option(metavar="URL", help="Schema registry, to decode values.", show_default=False)
    ] = None,
    pipeline: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Pipeline file, to draw its graph; repeatable.")
    ] = None,
    board: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Several reports on one page (TOML); repeatable.")
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Where lag and rates over time are kept.", show_default="in ~/.local/state/penstock"
        ),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Prometheus server to take lag and rates over time from.", show_default=False),
    ] = None,
    prometheus_match: Annotated[
        str,
        typer.Option(
            metavar="LABELS", help="Of metrics in Prometheus, only these: 'cluster=\"prod\"'.", show_default=False
        ),
    ] = "",
    audit_log: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Where a line is written for each change.", show_default="stderr"),
    ] = None,
    tls_certificate: Annotated[
        str | None, typer.Option(metavar="FILE", help="Serve HTTPS with this certificate (PEM).", show_default=False)
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(metavar="FILE", help="The private key of the certificate.", show_default=False)
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="A further name by which browsers reach the console; repeatable."),
    ] = None,
    lifeline: Annotated[int | None, typer.Option(hidden=True)] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Serve a web console for a cluster. Ctrl-C ends it.

    Prints one line, [bold]ready http://HOST:PORT[/bold], when browsers can connect. Works with any Kafka-compatible
    cluster. On an address that is not loopback, the console needs --sign-in and a certificate. Needs the packages of
    penstock\\[console].

    Examples:

        penstock console
        penstock console -b kafka-1:9092 --read-only
        penstock console -b @prod --sign-in --listen 0.0.0.0:8443 --tls-certificate web.pem --tls-key web.key
        penstock console --cluster prod=@prod --cluster test=127.0.0.1:9092
        penstock console --mask 'payments:card.number' --registry http://127.0.0.1:8081
    """
    try:
        from penstock.console.server.run import serve
    except ImportError as error:
        fail(f"the console needs the extra `console` (pip install 'penstock[console]'): {error}")
    from penstock.console.settings import ConsoleSettings, default_history, parse_listen
    from penstock.console.views.promql import check_match

    if lifeline is not None:
        from penstock.local.lifeline import stop_with_parent

        stop_with_parent(lifeline)
    host, port = parse_listen(listen)
    settings = ConsoleSettings(
        bootstrap=bootstrap_server,
        clusters=tuple(cluster or ()),
        host=host,
        port=port,
        sign_in=sign_in or oidc_issuer is not None,
        mechanism=mechanism,
        oidc_issuer=oidc_issuer,
        oidc_client_id=oidc_client_id,
        oidc_scope=oidc_scope,
        oidc_secret_file=oidc_secret_file,
        read_only=read_only,
        masks=tuple(mask or ()),
        registry=registry,
        pipelines=tuple(pipeline or ()),
        boards=tuple(board or ()),
        history=history or default_history(),
        prometheus=prometheus,
        prometheus_match=check_match(prometheus_match),
        audit=audit_log,
        certificate=tls_certificate,
        key=tls_key,
        names=tuple(name or ()),
    )
    serve(settings, lambda address: print(f"ready {address}", flush=True))
