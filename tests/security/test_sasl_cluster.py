"""A cluster in which every listener asks for a password: brokers and controllers log in to each other."""

from __future__ import annotations

import os

import pytest

from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin
from penstock.testing.clusters import start_cluster
from security.sasl_world import NODE, NODE_PASSWORD, SCRAM_MODULE, options


def test_a_cluster_with_passwords_everywhere_and_its_cold_start(tmp_path: os.PathLike[str]) -> None:
    with start_cluster(tmp_path, brokers=3, controllers=3, properties=NODE, client_options=options()) as cluster:
        cluster.create_topic("orders", partitions=3, replicas=3)
        nodes = [*cluster.brokers, *cluster.controllers]
        for node in nodes:
            node.kill()
        for node in nodes:
            node.begin_start()
        for node in nodes:
            node.wait_ready()
        cluster.wait_for_isr("orders")
        with pytest.raises(ClientError, match="Invalid username or password"):
            Admin(cluster.bootstrap, options=options(password="wrong")).topics.list()
        assert all(NODE_PASSWORD not in node.log_text() for node in nodes)


def test_brokers_that_use_scram_among_themselves(tmp_path: os.PathLike[str]) -> None:
    """Their users are in the metadata log, which they read from controllers with PLAIN."""
    properties = {
        **NODE,
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": (
            f'{SCRAM_MODULE} required username="replica" password="{NODE_PASSWORD}";'
        ),
        # Sessions end while the test runs: brokers authenticate again and lose no connection.
        "listener.name.plaintext.scram-sha-512.connections.max.reauth.ms": "1500",
    }
    with start_cluster(tmp_path, brokers=2, controllers=1, properties=properties, client_options=options()) as cluster:
        with cluster.admin() as admin:
            admin.users.set_password("replica", NODE_PASSWORD, mechanism="SCRAM-SHA-512")
        cluster.create_topic("orders", partitions=1, replicas=2)
        with cluster.admin() as admin:
            assert [user.name for user in admin.users.list()] == ["replica"]
