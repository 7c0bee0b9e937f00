"""A cluster in which nodes talk over TLS: controllers know each other by certificates, brokers by passwords."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from penstock.local.process import NodeFailed
from penstock.testing.clusters import start_cluster
from penstock.tls.authority import Authority
from security.sasl_world import NODE, options

NOW = datetime.datetime.now(datetime.UTC)
CA = Authority.create("Test CA", NOW)


def properties_in(directory: Path, super_users: str) -> dict[str, str]:
    (directory / "ca.pem").write_text(CA.certificate)
    (directory / "node.pem").write_text(CA.issue("node", ["localhost", "127.0.0.1"], NOW).pem)
    return {
        **NODE,
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": super_users,
    }


def client_options(directory: Path) -> dict[str, str]:
    return {
        **options(),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        # The test asks controllers whether they are ready, too.
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "node.pem"),
    }


def test_nodes_replicate_over_tls(tmp_path: Path) -> None:
    properties = properties_in(tmp_path, "User:CN=node;User:node;User:admin")
    with start_cluster(
        tmp_path / "cluster", brokers=2, controllers=1, properties=properties, client_options=client_options(tmp_path)
    ) as cluster:
        cluster.create_topic("orders", partitions=1, replicas=2)
        cluster.wait_for_isr("orders")


def test_controllers_that_would_refuse_each_other_do_not_start(tmp_path: Path) -> None:
    properties = properties_in(tmp_path, "User:node;User:admin")
    with (
        pytest.raises(NodeFailed, match=r"add the line super\.users=User:node;User:admin;User:CN=node"),
        start_cluster(
            tmp_path / "cluster",
            brokers=2,
            controllers=1,
            properties=properties,
            client_options=client_options(tmp_path),
        ),
    ):
        pass
