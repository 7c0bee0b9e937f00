"""docs/howto/secure.md on three machines: a plain cluster becomes secure under clients that never stop."""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from docs.test_howto_cluster import MACHINES, Machines, block, machines, wait_for_brokers
from documentation import blocks_of
from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin
from penstock.local.properties import merge_properties
from penstock.model.errors import KafkaError as Refused
from penstock.settings.properties import parse_properties
from waiting import wait_until

__all__ = ["machines"]  # the fixture

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "secure.md"
NODES = MACHINES[:3]
PASSWORDS = {"admin": "the password of admin", "shop": "the password of shop"}
TLS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}


def shell_blocks() -> list[str]:
    return [text for language, text in blocks_of(PAGE) if language == "shell"]


def properties_of_step(step: int) -> dict[str, str]:
    (found,) = [text for _, text in blocks_of(PAGE) if text.startswith(f"# step {step}\n")]
    return parse_properties(found)


def run_shell(machines: Machines, text: str) -> None:
    result = machines.run(["bash", "-e", "-c", text])
    assert result.returncode == 0, f"{text}\n{result.stderr}"


class Traffic:
    """A producer and a consumer, each in a thread, until `stop`: what was acknowledged, and what was read."""

    def __init__(self, settings: dict[str, str], numbers: Iterator[int]) -> None:
        self.acknowledged: set[int] = set()
        self.read: set[int] = set()
        self.failed: list[KafkaError] = []
        self._settings = settings
        self._numbers = numbers
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._produce, self._consume)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        producer = Producer({**self._settings, "enable.idempotence": "true", "linger.ms": "5"})
        while not self._is_over.wait(0.01):
            number = next(self._numbers)

            def delivered(error: KafkaError | None, message: Message, number: int = number) -> None:
                if error is None:
                    self.acknowledged.add(number)
                else:
                    self.failed.append(error)

            producer.produce("orders", str(number).encode(), on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(60) == 0

    def _consume(self) -> None:
        consumer = Consumer({**self._settings, "group.id": "billing", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        while not self._is_over.is_set():
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    value = message.value()
                    assert value is not None
                    self.read.add(int(value))
        consumer.close()


class Rolling:
    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def restart(self, step: int, admin_options: dict[str, str], port: int) -> None:
        """Change the settings of all nodes as the page says, and restart them one by one."""
        for name in NODES:
            self._change(name, properties_of_step(step))
        for name in NODES:
            self._machines.stop(name)
            self._machines.start(name)
            others = ",".join(self._machines.here(f"{other}:{port}") for other in NODES)
            wait_until(lambda others=others: is_whole(others, admin_options), seconds=120)  # type: ignore[misc]

    def _change(self, name: str, changes: dict[str, str]) -> None:
        path = self._machines.directory / f"{name}.properties"
        changes = dict(changes)
        if "advertised.listeners" in changes:
            changes["advertised.listeners"] = changes["advertised.listeners"].replace("alpha", name)
        if "listeners" in changes:
            changes["listeners"] = changes["listeners"].replace("//:", f"//{name}:")
        for store, file in (("keystore", f"{name}.pem"), ("truststore", "authority/ca.pem")):
            if f"ssl.{store}.location" in changes:
                changes[f"ssl.{store}.location"] = str(self._machines.directory / file)
        changed = merge_properties(path.read_text(), {key: self._machines.here(text) for key, text in changes.items()})
        path.write_text(changed)


def is_whole(addresses: str, options: dict[str, str]) -> bool:
    """Whether all brokers are there, and all replicas in sync."""
    with contextlib.suppress(ClientError, Refused), Admin(addresses, timeout=5.0, options=options) as admin:
        described = admin.cluster.describe()
        return len([each for each in described.brokers if not each.fenced]) == 3 and not described.under_replicated
    return False


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_plain_cluster_becomes_secure_and_no_client_stops(machines: Machines) -> None:
    for node_id, name in enumerate(NODES, 1):
        machines.configure(name, node_id, block("deploy.md", "properties"))
        machines.start(name)
    wait_for_brokers(machines, 3)
    plain_address = machines.environment["PENSTOCK_BOOTSTRAP"]
    with Admin(plain_address) as admin:
        admin.topics.create("orders", partitions=3)

    certificates, users = shell_blocks()
    run_shell(machines, re.sub(r"10\.0\.0\.\d", "127.0.0.1", certificates))  # every machine is this one
    for user, password in PASSWORDS.items():
        (machines.directory / f"{user}-password").write_text(password)
    numbers = itertools.count()
    authorities = str(machines.directory / "authority" / "ca.pem")
    secure_address = machines.here("alpha:9094,beta:9094,gamma:9094")
    admin_options = {
        **TLS,
        "sasl.username": "admin",
        "sasl.password": PASSWORDS["admin"],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authorities,
    }
    rolling = Rolling(machines)

    old = Traffic({"bootstrap.servers": plain_address}, numbers)
    try:
        wait_until(lambda: len(old.read) > 10, seconds=120)
        rolling.restart(2, {}, 9092)
        rolling.restart(3, {}, 9092)
        run_shell(machines, users)
        login = {"sasl.username": "shop", "sasl.password": PASSWORDS["shop"], "ssl.ca.location": authorities}
        new = Traffic({"bootstrap.servers": secure_address, **TLS, **login}, numbers)
        try:
            wait_until(lambda: len(new.acknowledged) > 10, seconds=120)
            old.stop()
            wait_until(lambda: len(new.read) > 10, seconds=120)
            rolling.restart(6, admin_options, 9094)
            everything = old.acknowledged | new.acknowledged
            wait_until(lambda: everything <= old.read | new.read, seconds=120)
        finally:
            new.stop()
    finally:
        old.stop()
    assert not old.failed
    assert not new.failed
    with Admin(plain_address, timeout=2.0) as admin, pytest.raises(ClientError):
        admin.topics.list()
