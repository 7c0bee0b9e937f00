"""`penstock up`: runs a local cluster of real processes, in the foreground."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import Json, fail, note, print_json

if TYPE_CHECKING:
    from penstock.local.cluster import LocalCluster
    from penstock.local.node import LocalNode
    from penstock.local.registry import LocalRegistry
    from penstock.local.secure import SecureCluster

DEFAULT_DIRECTORY = "penstock-data"
CONSOLE_PORT = 8080
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
    from penstock.local.supervisor import Supervisor

    properties = parse_pairs("--override", override or ())
    if port + brokers - 1 > 65535:
        fail(f"{brokers} ports from {port} on are more than there are")
    with _exclusive(data):
        secure = secure or os.path.exists(os.path.join(data, TRUST_STORE))
        cluster = _plan(data, host, list(range(port, port + brokers)), controllers, properties, secure)
        _check_ports(cluster.brokers)
        security = _secure(data, cluster) if secure else None
        registries = [_registry(data, cluster, registry_port, security)] if registry else []
        _check_ports(registries)

        def ready() -> None:
            addresses = [broker.address for broker in cluster.brokers]
            more = {}
            if security is not None:
                where = os.path.join(data, os.path.basename(security.client_properties))
                more["client_properties"] = where
                note(
                    f"penstock up: clients need a password: penstock topics list -b {addresses[0]} "
                    f"--command-config {where}"
                )
            if registries:
                more["registry"] = registries[0].url
                note(f"penstock up: the schema registry is {registries[0].url}")
            if console:
                reference = f"@{os.path.abspath(security.client_properties)}" if security is not None else ""
                consoles.enter_context(_console(addresses, reference, data, more.get("registry")))
            if json:
                print_json({"ready": addresses, **more})
            else:
                print(f"ready {','.join(addresses)}", flush=True)

        supervisor = Supervisor(
            cluster.nodes,
            restart=not no_restart,
            log=lambda line: note(f"penstock up: {line}"),
            followers=registries,
        )
        with contextlib.ExitStack() as consoles:
            stopped = supervisor.run(ready, prepare=security.introduce_admin if security is not None else lambda: None)
    if not stopped:
        fail("every node has ended")


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
    from penstock.local.registry import DIRECTORY, LocalRegistry

    try:
        import penstock.registry.process  # noqa: F401  # its packages are an extra
    except ImportError as error:
        fail(f"--registry needs the extra `registry` (pip install 'penstock[registry]'): {error}")
    bootstrap = ",".join(broker.address for broker in cluster.brokers)
    if security is not None:
        bootstrap += f"@{os.path.abspath(security.client_properties)}"
    return LocalRegistry(os.path.join(data, DIRECTORY), bootstrap=bootstrap, host="127.0.0.1", port=port)


@contextlib.contextmanager
def _console(addresses: Sequence[str], reference: str, data: str, registry: str | None) -> Iterator[None]:
    """A console as a child process, which ends with this block; its address is noted on stderr."""
    from penstock.local.lifeline import Lifeline
    from penstock.local.ports import is_free

    lifeline = Lifeline()
    port = next((port for port in range(CONSOLE_PORT, CONSOLE_PORT + 100) if is_free(port, "127.0.0.1")), 0)
    command = [
        *(sys.executable, "-m", "penstock", "console", "--listen", f"127.0.0.1:{port}"),
        *("--bootstrap-server", ",".join(addresses) + reference),
        *("--history", os.path.join(data, "console.sqlite"), "--audit-log", os.path.join(data, "console-audit.log")),
        *("--lifeline", str(lifeline.child_fd)),
        *(("--registry", registry) if registry is not None else ()),
    ]
    # In a session of its own: Ctrl-C reaches it when the nodes have stopped.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, pass_fds=[lifeline.child_fd]
    ) as process:
        try:
            lifeline.handed_over()
            line = process.stdout.readline().strip() if process.stdout is not None else ""
            note(
                f"penstock up: console {line.removeprefix('ready ')}"
                if line
                else "penstock up: the console did not start"
            )
            yield
        finally:
            process.terminate()
            process.wait()
            lifeline.cut()


def _check_ports(nodes: Sequence[LocalNode]) -> None:
    from penstock.local.ports import is_free

    for node in nodes:
        if not is_free(node.port, node.host):
            fail(f"{node.address} is in use by another program; choose another port with --port")


@contextlib.contextmanager
def _exclusive(data: str) -> Iterator[None]:
    """Allow one `penstock up` per directory. The lock ends with the process, however that ends."""
    os.makedirs(data, exist_ok=True)
    descriptor = os.open(os.path.join(data, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            fail(f"{data} is in use by another penstock up (process {owner}); choose another directory with --data")
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)
