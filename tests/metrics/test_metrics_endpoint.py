"""The endpoint's patience, with a clock of the test's; and the ports that `penstock up` finds for it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.broker.metrics.endpoint import CONNECTIONS_MAX, REQUEST_S, RESPONSE_S, HttpConnection, MetricsEndpoint
from penstock.broker.metrics.protection import Protection
from penstock.local.cluster import plan_cluster
from penstock.local.ports import free_ports
from penstock.settings.observability import ObservabilitySettings

LISTENER = "penstock.metrics.listener"


class Timer:
    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        self.seconds = seconds
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """Notes timers; the test lets them go off."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(seconds, callback)
        self.timers.append(timer)
        return timer

    @property
    def pending(self) -> Timer:
        (timer,) = [timer for timer in self.timers if not timer.is_cancelled]
        return timer


class Transport:
    def __init__(self) -> None:
        self.written = b""
        self.ended = ""

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"


class Endpoint:
    def __init__(self, settings: ObservabilitySettings | None = None) -> None:
        self.protection = Protection(settings or ObservabilitySettings(), {})
        self.connections: set[object] = set()
        self.callbacks: list[Callable[[Any], None]] = []

    def collecting(self) -> Endpoint:
        return self

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.callbacks.append(callback)


class Task:
    def __init__(self, result: bytes | None, error: Exception | None = None) -> None:
        self._result = result
        self._error = error

    def cancelled(self) -> bool:
        return self._result is None and self._error is None

    def exception(self) -> Exception | None:
        return self._error

    def result(self) -> bytes | None:
        return self._result


def connected(endpoint: Endpoint) -> tuple[HttpConnection, Transport, Loop]:
    loop, transport = Loop(), Transport()
    connection = HttpConnection(cast(MetricsEndpoint, endpoint), cast(asyncio.AbstractEventLoop, loop))
    connection.connection_made(cast(asyncio.Transport, transport))
    return connection, transport, loop


def test_who_asks_nothing_is_cut_off() -> None:
    connection, transport, loop = connected(Endpoint())
    connection.data_received(b"GET /met")
    assert loop.pending.seconds == REQUEST_S
    loop.pending.callback()
    assert (transport.ended, transport.written) == ("aborted", b"")


def test_who_does_not_read_the_answer_is_cut_off() -> None:
    endpoint = Endpoint()
    connection, transport, loop = connected(endpoint)
    for byte in b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n":  # one at a time
        connection.data_received(bytes([byte]))
    connection.data_received(b"GET /metrics HTTP/1.1\r\n\r\n")  # what comes after it is not looked at
    (collected,) = endpoint.callbacks
    collected(Task(b"numbers"))
    assert transport.written.endswith(b"\r\n\r\nnumbers")
    assert transport.ended == "closed"  # as soon as all is written, which it never is
    assert loop.pending.seconds == RESPONSE_S
    loop.pending.callback()
    assert transport.ended == "aborted"
    connection.connection_lost(None)
    assert not endpoint.connections
    assert all(timer.is_cancelled for timer in loop.timers)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"Authorization: Bearer a token", b"200"),
        (b"authorization:  basic cHJvbWV0aGV1czpwYXNzd29yZA==", b"200"),  # prometheus:password
        (b"Authorization: Bearer another", b"401"),
        (b"Authorization: Basic cHJvbWV0aGV1czo=", b"401"),
        (b"Authorization: a token", b"401"),
        (b"Accept: */*", b"401"),
    ],
)
def test_who_has_no_password_or_token_gets_nothing(header: bytes, status: bytes) -> None:
    endpoint = Endpoint(
        ObservabilitySettings(
            penstock_metrics_user="prometheus",
            penstock_metrics_password="password",
            penstock_metrics_bearer_token="a token",
        )
    )
    connection, transport, _ = connected(endpoint)
    connection.data_received(b"GET /metrics HTTP/1.1\r\nHost: a\r\n" + header + b"\r\n\r\n")
    for collected in endpoint.callbacks:
        collected(Task(b"numbers"))
    assert transport.written.startswith(b"HTTP/1.1 " + status)
    assert (b"WWW-Authenticate: Bearer" in transport.written) == (status == b"401")


def test_a_collection_that_fails_or_ends() -> None:
    for task, written, ended in (
        (Task(None, ValueError("a defect")), b"HTTP/1.1 500 ", "closed"),
        (Task(None), b"", "aborted"),
    ):
        endpoint = Endpoint()
        connection, transport, _ = connected(endpoint)
        connection.data_received(b"GET /metrics HTTP/1.1\r\n\r\n")
        endpoint.callbacks[0](task)
        assert transport.written.startswith(written)
        assert transport.ended == ended


def test_who_leaves_before_the_answer_gets_none() -> None:
    endpoint = Endpoint()
    connection, transport, _ = connected(endpoint)
    connection.data_received(b"GET /metrics HTTP/1.1\r\n\r\n")
    connection.connection_lost(None)
    endpoint.callbacks[0](Task(b"numbers"))
    assert transport.written == b""


def test_there_is_room_for_some_at_a_time() -> None:
    endpoint = Endpoint()
    transports = [connected(endpoint)[1] for _ in range(CONNECTIONS_MAX + 1)]
    assert [transport.written[:12] for transport in transports if transport.written] == [b"HTTP/1.1 503"]


# -- penstock up -----------------------------------------------------------------------------------------------------


def planned(directory: Path, ports: list[int], properties: dict[str, str] | None = None) -> list[str]:
    """Where the nodes of `penstock up` have their metrics, written down as a start does it."""
    cluster = plan_cluster(
        str(directory), host="127.0.0.1", ports=ports, controllers=1, properties=properties, metrics=True
    )
    for node in cluster.nodes:
        Path(node.directory).mkdir(parents=True, exist_ok=True)
        node.write_properties()
    return [node.properties.get(LISTENER, "") for node in cluster.nodes]


def test_every_node_gets_a_port_and_keeps_it(tmp_path: Path) -> None:
    ports = free_ports(2)
    addresses = planned(tmp_path, ports)
    assert len({*addresses}) == 3
    taken = {int(address.rpartition(":")[2]) for address in addresses}
    assert not taken & {*ports}
    assert planned(tmp_path, ports) == addresses
    assert planned(tmp_path, [port - 1 for port in ports]) == addresses


def test_the_port_is_easy_to_guess_unless_it_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        guess = holder.getsockname()[1]
        (address,) = planned(tmp_path / "taken", [guess - 1000])
        assert address != f"127.0.0.1:{guess}"
    monkeypatch.setattr("penstock.local.cluster.is_free", lambda port, host="": True)
    assert planned(tmp_path / "free", [9092]) == ["127.0.0.1:10092"]


def test_what_the_user_wrote_stays(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    assert planned(tmp_path, [port], {LISTENER: "0.0.0.0:9404"}) == ["0.0.0.0:9404"]
    assert planned(tmp_path, [port]) == ["0.0.0.0:9404"]
    assert planned(tmp_path, [port], {LISTENER: ""}) == [""]
    assert planned(tmp_path, [port]) == [""]
    unwanted = plan_cluster(str(tmp_path / "other"), host="127.0.0.1", ports=[port])
    assert LISTENER not in unwanted.brokers[0].properties


def test_a_port_that_was_taken_meanwhile_is_drawn_anew(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (address,) = planned(tmp_path, [port])
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", int(address.rpartition(":")[2])))
        assert planned(tmp_path, [port]) != [address]
