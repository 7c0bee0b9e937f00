"""`penstock host`: runs all brokers of a machine from one file."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.exclusive import exclusive
from penstock.cli.output import CommandFailed, Json, fail, note, print_json, print_table

if TYPE_CHECKING:
    from penstock.local.host import HostFile
    from penstock.local.node import LocalNode


def host(
    file: Annotated[str, typer.Argument(metavar="FILE", show_default=False, help="The machine's file, in TOML.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the file and show the nodes; start nothing.")
    ] = False,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="Let the running penstock host of this file restart its nodes one by one, with its new settings.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Run the brokers of this machine, one for each core, in the foreground.

    The file has the machine's name, the number of brokers, their first id, port and directory, and settings by Kafka's
    names. Prints one line, [bold]ready HOST:PORT,...[/bold], when clients can connect. A broker that dies is restarted.
    SIGTERM and Ctrl-C stop all. SIGHUP, or [bold]--restart[/bold], restarts them one after the other: the next one
    stops when the last one is back in sync. Replicas of a partition are placed on different machines as far as there
    are enough.

    Examples:

        penstock host /etc/penstock/host.toml
        penstock host /etc/penstock/host.toml --dry-run
        penstock host /etc/penstock/host.toml --restart
    """
    from penstock.local.host import plan_host

    planned = _read(file)
    nodes = plan_host(planned, _client_options(planned))
    if dry_run:
        _show(nodes, json)
        return
    if restart:
        _ask_to_restart(planned)
        return
    with exclusive(planned.directory, "penstock host", "stop that one first"), contextlib.ExitStack() as closing:
        _run(file, planned, nodes, closing, json)


def _run(file: str, planned: HostFile, nodes: Sequence[LocalNode], closing: contextlib.ExitStack, json: bool) -> None:
    from penstock.client.errors import ClientError
    from penstock.local.caught_up import CaughtUp
    from penstock.local.host import internal_metrics_port, plan_host
    from penstock.local.process import NodeFailed
    from penstock.local.supervisor import Supervisor

    _check_ports(planned, nodes)
    if planned.metrics is not None:
        from penstock.local.host_metrics import HostMetrics, fetch_pages, urls_of

        urls = urls_of((node.node_id, internal_metrics_port(node.port)) for node in nodes if node.is_broker)
        page = HostMetrics(planned.metrics, lambda: fetch_pages(urls))
        closing.callback(page.close)

    def reload() -> None:
        """New settings of the same nodes. Others would be a different machine, for which this command starts again."""
        try:
            changed = plan_host(again := _read(file), _client_options(again))
        except (CommandFailed, ClientError) as error:
            raise NodeFailed(str(error)) from error
        if [(node.node_id, node.port, node.directory) for node in changed] != [
            (node.node_id, node.port, node.directory) for node in nodes
        ]:
            raise NodeFailed(f"{file} has other nodes, ports or directories now: stop and start penstock host for that")
        for node, new in zip(nodes, changed, strict=True):
            node.properties, node.cores = new.properties, new.cores

    def ready() -> None:
        addresses = [f"{planned.name}:{node.port}" for node in nodes if node.is_broker]
        if json:
            print_json({"ready": addresses})
        else:
            print(f"ready {','.join(addresses)}", flush=True)
        _notify_systemd("READY=1")

    supervisor = Supervisor(
        nodes, restart=True, log=lambda line: note(f"penstock host: {line}"), in_sync=CaughtUp(nodes), reload=reload
    )
    if not supervisor.run(ready):
        fail("every node has ended")


def _read(file: str) -> HostFile:
    from penstock.local.host import BadHostFile, read_host_file

    try:
        return read_host_file(file, sorted(os.sched_getaffinity(0)))
    except BadHostFile as error:
        fail(str(error))


def _client_options(planned: HostFile) -> Mapping[str, str]:
    if planned.client_config is None:
        return {}
    from penstock.client.access import read_properties

    return read_properties(planned.client_config)


def _show(nodes: Sequence[LocalNode], json: bool) -> None:
    rows = [
        {
            "node": node.node_id,
            "roles": node.roles,
            "listeners": node.properties["listeners"],
            "advertised": node.properties["advertised.listeners"],
            "log_dirs": node.properties.get("log.dirs", node.data_path),
            "cores": list(node.cores),
        }
        for node in nodes
    ]
    if json:
        print_json(rows)
    else:
        columns = ["NODE", "ROLES", "LISTENERS", "ADVERTISED", "LOG DIRS", "CORES"]
        print_table(columns, [[cell or "-" for cell in row.values()] for row in rows])


def _ask_to_restart(planned: HostFile) -> None:
    """SIGHUP to the process that holds the lock: its id is in it."""
    import fcntl

    path = os.path.join(planned.directory, ".lock")
    try:
        with open(path, encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                os.kill(int(lock.read()), signal.SIGHUP)
                note("the nodes are restarted one after the other; the log of penstock host says how far it is")
                return
    except FileNotFoundError:
        pass
    fail(f"no penstock host runs with {planned.directory}")


def _check_ports(planned: HostFile, nodes: Sequence[LocalNode]) -> None:
    from penstock.local.host import internal_metrics_port
    from penstock.local.ports import is_free

    for node in nodes:
        if not is_free(node.port, node.host):
            fail(f"port {node.port} of {node.title} is in use by another program")
    if planned.metrics is None:
        return
    pages = [(*planned.metrics, "the metrics page")]
    pages += [
        ("127.0.0.1", internal_metrics_port(node.port), f"the metrics of {node.title}")
        for node in nodes
        if node.is_broker
    ]
    for address, port, what in pages:
        if not is_free(port, address):
            fail(f"port {port} of {what} is in use by another program")


def _notify_systemd(state: str) -> None:
    """Notify systemd, if it asks for it (Type=notify)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifying:
        notifying.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
