"""`penstock up`: runs a local cluster of real processes, in the foreground."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.exclusive import exclusive
from penstock.cli.output import Json, fail, note, print_json

if TYPE_CHECKING:
    from penstock.local.cluster import LocalCluster
    from penstock.local.process import LocalProcess
    from penstock.local.secure import SecureCluster
    from penstock.local.web import LocalConsole, LocalRegistry

DEFAULT_DIRECTORY = "penstock-data"
LOOPBACK = "127.0.0.1"
TRUST_STORE = "ca.pem"  # there is one in the directory of a secure cluster


def up(
    brokers: Annotated[int, typer.Option(min=1, metavar="N", help="Number of brokers.")] = 1,
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="P", help="Port of the first broker.")] = 9092,
    data: Annotated[str, typer.Option(metavar="DIR", help="Directory for all data.")] = DEFAULT_DIRECTORY,
    controllers: Annotated[
        int,
        typer.Option(min=1, max=7, metavar="M", help="Number of controllers of a new cluster with several brokers."),
    ] = 3,
    no_restart: Annotated[bool, typer.Option("--no-restart", help="Do not restart a node that dies.")] = False,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="Encrypt connections, ask clients for a password and check ACLs. A cluster that was secure stays so.",
        ),
    ] = False,
    registry: Annotated[
        bool, typer.Option("--registry", help="Run a schema registry, too, on http://127.0.0.1:8081.")
    ] = False,
    registry_port: Annotated[
        int, typer.Option(min=1, max=65535, metavar="P", help="Port of the schema registry.")
    ] = 8081,
    console: Annotated[
        bool, typer.Option("--console", help="Also run the web console, on 127.0.0.1:8080 or the next free port.")
    ] = False,
    override: Annotated[
        list[str] | None,
        typer.Option("--override", "-o", metavar="KEY=VALUE", help="Setting for server.properties; repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Run a local cluster in the foreground. Ctrl-C stops it; the data stays.

    Prints one line, [bold]ready HOST:PORT,...[/bold], when clients can connect. The first start formats DIR. A node
    that dies is restarted. Several brokers use consecutive ports from P and have separate controllers. Topics then get
    three replicas (two with two brokers) unless you create them otherwise. Prometheus metrics are 1000 ports above the
    broker's port: http://127.0.0.1:10092/metrics. Two-phase commit is enabled, because Spark's sink uses it.

    Each node has a directory with [bold]DIR/node-1/server.properties[/bold] (you can add settings by Kafka's names;
    they are kept), [bold]server.log[/bold], [bold]pid[/bold] and [bold]data/[/bold]. The directories of controllers are
    [bold]DIR/controller-1[/bold] and so on.

    With [bold]--secure[/bold] the first start also makes an authority ([bold]DIR/ca.pem[/bold]), certificates for all
    nodes, and the user [bold]admin[/bold], whose settings are in [bold]DIR/client.properties[/bold]. Metrics are then
    on 127.0.0.1 only.

    With [bold]--registry[/bold] a schema registry runs beside the brokers, on 127.0.0.1 only and without passwords of
    its own, and the ready line comes when it answers, too.

    Examples:

        penstock up
        penstock up --registry
        penstock up --console
        penstock up --secure
        penstock up --brokers 3
        penstock up --port 19092 --data /tmp/scratch -o log.retention.hours=1
    """
    from penstock.cli.output import parse_pairs

    properties = parse_pairs("--override", override or ())
    if port + brokers - 1 > 65535:
        fail(f"{brokers} ports from {port} on are more than there are")
    with exclusive(data, "penstock up", "choose another directory with --data"):
        secure = secure or os.path.exists(os.path.join(data, TRUST_STORE))
        cluster = _plan(data, host, list(range(port, port + brokers)), controllers, properties, secure)
        _check_ports(cluster.brokers)
        security = _secure(data, cluster) if secure else None
        local_registry = _registry(data, cluster, registry_port, security) if registry else None
        local_console = _console(data, cluster, local_registry, security) if console else None
        stopped = _run(data, cluster, security, local_registry, local_console, restart=not no_restart, json=json)
    if not stopped:
        fail("every node has ended")


def _run(
    data: str,
    cluster: LocalCluster,
    security: SecureCluster | None,
    registry: LocalRegistry | None,
    console: LocalConsole | None,
    *,
    restart: bool,
    json: bool,
) -> bool:
    """Run everything until a stop is requested; False if all nodes have ended instead."""
    from penstock.local.supervisor import Supervisor

    def ready() -> None:
        addresses = [broker.address for broker in cluster.brokers]
        more = {}
        if security is not None:
            where = os.path.join(data, os.path.basename(security.client_properties))
            more["client_properties"] = where
            note(
                f"penstock up: clients need a password: penstock topics list -b {addresses[0]} --command-config {where}"
            )
        if registry is not None:
            more["registry"] = registry.url
            note(f"penstock up: the schema registry is {registry.url}")
        if console is not None:
            more["console"] = console.url
            note(f"penstock up: the console is {console.url}")
        if json:
            print_json({"ready": addresses, **more})
        else:
            print(f"ready {','.join(addresses)}", flush=True)

    supervisor = Supervisor(
        cluster.nodes,
        restart=restart,
        log=lambda line: note(f"penstock up: {line}"),
        followers=[each for each in (registry, console) if each is not None],
    )
    return supervisor.run(ready, prepare=security.introduce_admin if security is not None else lambda: None)


def _plan(
    data: str, host: str, ports: list[int], controllers: int, properties: dict[str, str], secure: bool
) -> LocalCluster:
    from penstock.local.cluster import BadLayout, plan_cluster

    try:
        cluster = plan_cluster(
            data,
            host=host,
            ports=ports,
            controllers=controllers,
            properties=properties,
            metrics=True,
            metrics_host="127.0.0.1" if secure else None,
        )
    except BadLayout as error:
        fail(str(error))
    for node in cluster.nodes:  # safe on a local cluster, and exactly-once sinks use it
        node.defaults.setdefault("transaction.two.phase.commit.enable", "true")
    return cluster


def _secure(data: str, cluster: LocalCluster) -> SecureCluster:
    try:
        from penstock.local.secure import SecureCluster
        from penstock.tls.files import CertificateError
    except ImportError:
        fail("--secure needs the extra `security` (pip install 'penstock[security]')")
    try:
        return SecureCluster(data, cluster, datetime.datetime.now(datetime.UTC))
    except CertificateError as error:
        fail(str(error))


def _registry(data: str, cluster: LocalCluster, port: int, security: SecureCluster | None) -> LocalRegistry:
    from penstock.local.web import REGISTRY_DIRECTORY, LocalRegistry

    try:
        import penstock.registry.process  # noqa: F401  # its packages are an extra
    except ImportError as error:
        fail(f"--registry needs the extra `registry` (pip install 'penstock[registry]'): {error}")
    registry = LocalRegistry(
        os.path.join(data, REGISTRY_DIRECTORY), bootstrap=_reference(cluster, security), host=LOOPBACK, port=port
    )
    _check_ports([registry])
    return registry


def _console(
    data: str, cluster: LocalCluster, registry: LocalRegistry | None, security: SecureCluster | None
) -> LocalConsole:
    from penstock.local.web import CONSOLE_DIRECTORY, CONSOLE_PORT, LocalConsole, console_port

    try:
        import penstock.console.server.run  # noqa: F401  # its packages are an extra
    except ImportError as error:
        fail(f"--console needs the extra `console` (pip install 'penstock[console]'): {error}")
    taken = {node.port for node in cluster.nodes} | ({registry.port} if registry is not None else set())
    port = console_port(LOOPBACK, taken)
    if port is None:
        fail(f"no port is free for the console from {CONSOLE_PORT} on; run penstock console --listen HOST:PORT")
    return LocalConsole(
        os.path.join(data, CONSOLE_DIRECTORY),
        bootstrap=_reference(cluster, security),
        host=LOOPBACK,
        port=port,
        registry=registry.url if registry is not None else None,
    )


def _reference(cluster: LocalCluster, security: SecureCluster | None) -> str:
    """How a process on this machine finds the brokers, and the settings that it needs as a client."""
    return cluster.bootstrap if security is None else f"{cluster.bootstrap}@{security.client_properties}"


def _check_ports(nodes: Sequence[LocalProcess]) -> None:
    from penstock.local.ports import is_free

    for node in nodes:
        if not is_free(node.port, node.host):
            fail(f"{node.address} is in use by another program; choose another port with --port")
