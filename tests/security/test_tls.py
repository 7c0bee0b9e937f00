"""Real clients on a TLS listener of a real broker."""

from __future__ import annotations

import asyncio
import datetime
import shutil
import socket
import ssl
import subprocess
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from penstock.client.wire.admin import Admin, ResourceType
from penstock.local.ports import free_ports
from penstock.model.errors import KafkaError
from penstock.testing.nodes import RunningNode, start_node
from penstock.tls.authority import Authority, Issued
from waiting import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it loads its message schemas in a way Python has deprecated
    from kafka import KafkaConsumer, KafkaProducer

NOW = datetime.datetime.now(datetime.UTC)
CA = Authority.create("Test CA", NOW)
ALICE = CA.issue("alice", (), NOW)
RECORDS = [f"value-{number}".encode() * (1 + 97 * (number % 50)) for number in range(500)]


class TlsNode:
    def __init__(self, node: RunningNode, port: int, directory: Path) -> None:
        self.node = node
        self.port = port
        self.directory = directory
        self.bootstrap = f"localhost:{port}"

    def use(self, issued: Issued) -> None:
        fresh = self.directory / "node.pem.new"
        fresh.write_text(issued.pem)
        fresh.rename(self.directory / "node.pem")

    def context(self, *, certificate: bool = True) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.directory / "ca.pem"))
        if certificate:
            context.load_cert_chain(self.directory / "alice.pem")
        return context

    def librdkafka(self, **changes: str | int) -> dict[str, str | int]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.directory / "ca.pem"),
            "ssl.certificate.pem": ALICE.certificate,
            "ssl.key.pem": ALICE.key,
            **changes,
        }


@pytest.fixture(scope="module")
def tls_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsNode]:
    directory = tmp_path_factory.mktemp("tls")
    (directory / "ca.pem").write_text(CA.certificate)
    (directory / "alice.pem").write_text(ALICE.pem)
    (directory / "node.pem").write_text(CA.issue("node-1", ["localhost"], NOW).pem)
    plain, secure = free_ports(2)
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{secure}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://localhost:{secure}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.client.auth": "required",
    }
    with start_node(directory / "node", properties=properties, port=plain) as node:
        yield TlsNode(node, secure, directory)


def test_confluent_kafka(tls_node: TlsNode) -> None:
    producer = Producer(tls_node.librdkafka())
    for value in RECORDS:
        producer.produce("confluent", value)
    assert producer.flush(30) == 0
    consumer = Consumer(tls_node.librdkafka(**{"group.id": "confluent", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["confluent"])
    values: list[bytes | None] = []
    while len(values) < len(RECORDS):
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        values.append(message.value())
    consumer.close()
    assert sorted(value for value in values if value) == sorted(RECORDS)


def test_kafka_python(tls_node: TlsNode) -> None:
    tls = {"bootstrap_servers": tls_node.bootstrap, "security_protocol": "SSL", "ssl_context": tls_node.context()}
    producer = KafkaProducer(**tls)
    for value in RECORDS:
        producer.send("kafka-python", value)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=30_000, **tls)
    values = [record.value for record, _ in zip(consumer, RECORDS, strict=False)]
    consumer.close()
    assert sorted(values) == sorted(RECORDS)


def test_aiokafka(tls_node: TlsNode) -> None:
    async def exchange() -> list[bytes | None]:
        tls = {
            "bootstrap_servers": tls_node.bootstrap,
            "security_protocol": "SSL",
            "ssl_context": tls_node.context(),
        }
        async with AIOKafkaProducer(**tls) as producer:
            for value in RECORDS:
                await producer.send("aiokafka", value)
        async with AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **tls) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in RECORDS]

    assert sorted(value for value in asyncio.run(exchange()) if value) == sorted(RECORDS)


def test_a_client_without_a_certificate_is_refused(tls_node: TlsNode) -> None:
    with (
        socket.create_connection(("localhost", tls_node.port), 10) as plain,
        tls_node.context(certificate=False).wrap_socket(plain, server_hostname="localhost") as connection,
        pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"),
    ):
        connection.recv(1)


def test_plain_bytes_on_the_tls_port_close_the_connection(tls_node: TlsNode) -> None:
    with socket.create_connection(("localhost", tls_node.port), 10) as connection:
        connection.sendall(bytes.fromhex("00000010 0012 0000 00000001 0004 74657374".replace(" ", "")))
        while received := connection.recv(100):
            assert received[:1] == b"\x15"  # if anything, a TLS alert


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_renegotiation_is_refused(tls_node: TlsNode) -> None:
    own = str(tls_node.directory / "alice.pem")
    command = ["openssl", "s_client", "-connect", tls_node.bootstrap, "-tls1_2", "-cert", own, "-key", own]
    # A line with an R asks for it; whatever happens, the connection ends with the input.
    done = subprocess.run(command, input="R\n", capture_output=True, text=True, timeout=60, check=False)
    assert "Cipher is ECDHE" in done.stdout, done.stderr
    assert "RENEGOTIATING" in done.stdout + done.stderr
    assert "no renegotiation" in done.stderr


def test_a_renewed_certificate_is_used_without_a_restart(tls_node: TlsNode) -> None:
    renewed = CA.issue("node-1", ["localhost"], NOW)
    expected = ssl.PEM_cert_to_DER_cert(renewed.certificate)
    with (
        socket.create_connection(("localhost", tls_node.port), 10) as plain,
        tls_node.context().wrap_socket(plain, server_hostname="localhost") as before,
    ):
        assert before.getpeercert(binary_form=True) != expected
        tls_node.use(renewed)

        def is_in_use() -> bool:
            with (
                socket.create_connection(("localhost", tls_node.port), 10) as other,
                tls_node.context().wrap_socket(other, server_hostname="localhost") as connection,
            ):
                return connection.getpeercert(binary_form=True) == expected

        wait_until(is_in_use, seconds=60)
        before.sendall(bytes.fromhex("0000000e001200000000000100047465737400")[:18])  # ApiVersions v0 of client "test"
        assert before.recv(4)


def test_a_listeners_stores_are_changed_at_run_time(tls_node: TlsNode) -> None:
    """By settings of the running broker, with Kafka's names. What it could not use is refused, with the reason."""

    def shown() -> bytes | None:
        with (
            socket.create_connection(("localhost", tls_node.port), 10) as plain,
            tls_node.context().wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            return connection.getpeercert(binary_form=True)

    def store(name: str, issued: Issued) -> dict[str, str]:
        path = tls_node.directory / f"{name}.p12"
        key, certificate = (
            load_pem_private_key(issued.key.encode(), None),
            x509.load_pem_x509_certificate(issued.certificate.encode()),
        )
        protection = BestAvailableEncryption(b"a stores password")
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"node", key, certificate, None, protection))  # type: ignore[arg-type]
        return {
            "listener.name.ssl.ssl.keystore.type": "PKCS12",
            "listener.name.ssl.ssl.keystore.location": str(path),
            "listener.name.ssl.ssl.keystore.password": "a stores password",
        }

    def alter(values: Mapping[str, str], **options: Any) -> None:
        with Admin(tls_node.node.bootstrap) as admin:
            admin.configs.alter(ResourceType.BROKER, "1", values, **options)

    before = shown()
    renewed = CA.issue("node-1", ["localhost"], NOW)
    changes = store("renewed", renewed)
    for bad, message in (
        ({**changes, "listener.name.ssl.ssl.keystore.password": "a guess"}, r"listener SSL: .*the password is wrong"),
        ({**changes, "listener.name.ssl.ssl.keystore.location": "/nowhere"}, "listener SSL: /nowhere: No such file"),
        (store("other", CA.issue("node-2", ["localhost"], NOW)), r"is of CN=node-2.*ssl\.allow\.dn\.changes"),
        ({"ssl.keystore.password": "x"}, "only per-listener using the listener prefix"),
    ):
        with pytest.raises(KafkaError, match=message):
            alter(bad)
    alter(changes, validate_only=True)
    assert shown() == before
    alter(changes)
    expected = ssl.PEM_cert_to_DER_cert(renewed.certificate)
    wait_until(lambda: shown() == expected, seconds=60)
    with Admin(tls_node.node.bootstrap) as admin:
        entries = {entry.name: entry for entry in admin.configs.describe(ResourceType.BROKER, "1")}
    described = {name: (entries[name].value, entries[name].sensitive, entries[name].source) for name in changes}
    assert described == {
        name: (None if name.endswith("password") else value, name.endswith("password"), "DYNAMIC_BROKER_CONFIG")
        for name, value in changes.items()
    }
    assert "a stores password" not in tls_node.node.log_text()
    alter({}, delete=changes)
    wait_until(lambda: shown() != expected, seconds=60)
