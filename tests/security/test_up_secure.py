"""`penstock up --secure` as a user runs it: several nodes, real clients, a second start."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin
from penstock.local.ports import free_ports, is_free
from penstock.settings.jaas import parse_jaas
from penstock.settings.properties import parse_properties
from unit.cli.up_process import StartUp, Up, starting_up

OPTIONS = ("--secure", "--brokers", "2", "--controllers", "1")


def two_free_ports() -> int:
    return next(port for _ in range(100) for port in free_ports(1) if is_free(port + 1))


@pytest.fixture
def up(tmp_path: Path) -> Iterator[StartUp]:
    with starting_up(tmp_path / "data", two_free_ports) as start:
        yield start


def client_options(running: Up) -> dict[str, str]:
    return parse_properties((running.data / "client.properties").read_text())


def readable_by_others(directory: Path) -> set[str]:
    """The files that another user of the machine can open."""
    found = set()
    for path, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if os.stat(os.path.join(path, name)).st_mode & stat.S_IXOTH]
        found |= {name for name in files if os.stat(os.path.join(path, name)).st_mode & stat.S_IROTH}
    return found


def delivery(running: Up, topic: str) -> list[KafkaError | None]:
    options = client_options(running)
    login = parse_jaas("sasl.jaas.config", options["sasl.jaas.config"]).options
    outcomes: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        outcomes.append(error)

    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{running.port}",
            "security.protocol": options["security.protocol"],
            "sasl.mechanism": options["sasl.mechanism"],
            "sasl.username": login["username"],
            "sasl.password": login["password"],
            "ssl.ca.location": options["ssl.truststore.location"],
            "acks": "all",
        }
    )
    producer.produce(topic, b"value", on_delivery=delivered)
    assert producer.flush(60) == 0
    return outcomes


def test_a_secure_cluster_from_nothing_and_again(up: StartUp) -> None:
    first = up(*OPTIONS)
    addresses = f"127.0.0.1:{first.port},127.0.0.1:{first.port + 1}"
    assert first.ready_line() == f"ready {addresses}\n"
    assert f"--command-config {first.data}/client.properties" in first.error_line()
    with Admin(addresses, options=client_options(first)) as admin:
        assert admin.topics.create("orders", partitions=1).replication_factor == 2
        assert [user.name for user in admin.users.list()] == ["admin"]
    assert delivery(first, "orders") == [None]
    with Admin(addresses, timeout=2.0) as stranger, pytest.raises(ClientError):
        stranger.topics.list()
    assert readable_by_others(first.data) == {"ca.pem", ".lock"}
    for name in ("node-1/data", "controller-1/data"):
        assert not os.stat(first.data / name / "__cluster_metadata-0").st_mode & stat.S_IRWXO

    kept = ["ca.pem", "ca-key.pem", "client.properties", "node-1/keystore.pem", "controller-1/keystore.pem"]
    before = {name: (first.data / name).read_bytes() for name in kept}
    settings = (first.data / "node-2" / "server.properties").read_text()
    first.process.send_signal(signal.SIGTERM)
    assert first.end() == (0, "", "")

    second = up("--brokers", "2", port=first.port)  # it stays secure
    assert second.ready_line() == f"ready {addresses}\n"
    assert {name: (second.data / name).read_bytes() for name in kept} == before
    assert (second.data / "node-2" / "server.properties").read_text() == settings
    assert delivery(second, "orders") == [None]
    second.process.send_signal(signal.SIGTERM)
    assert second.end()[0] == 0


def test_a_plain_cluster_becomes_secure_and_a_lost_password_is_replaced(up: StartUp) -> None:
    plain = up()
    address = f"127.0.0.1:{plain.port}"
    assert plain.ready_line() == f"ready {address}\n"
    with Admin(address) as admin:
        admin.topics.create("orders", partitions=1)
    plain.process.send_signal(signal.SIGTERM)
    assert plain.end()[0] == 0

    secure = up("--secure", port=plain.port)
    assert secure.ready_line() == f"ready {address}\n"
    old = client_options(secure)
    with Admin(address, options=old) as admin:
        assert [topic.name for topic in admin.topics.list()] == ["orders"]
    secure.process.send_signal(signal.SIGTERM)
    assert secure.end()[0] == 0

    (secure.data / "client.properties").unlink()
    again = up(port=plain.port)
    assert again.ready_line() == f"ready {address}\n"
    assert client_options(again)["sasl.jaas.config"] != old["sasl.jaas.config"]
    assert delivery(again, "orders") == [None]
    with Admin(address, options=old, timeout=5.0) as admin, pytest.raises(ClientError, match="cannot log in"):
        admin.topics.list()
    again.process.send_signal(signal.SIGTERM)
    assert again.end()[0] == 0
