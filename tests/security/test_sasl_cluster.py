"""A cluster in which every listener asks for a password: brokers and controllers log in to each other."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin
from penstock.testing.clusters import start_cluster
from security.sasl_world import HAS_OAUTH, NODE, NODE_PASSWORD, SCRAM_MODULE, options
from waiting import wait_until


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


@pytest.mark.skipif(not HAS_OAUTH, reason="the extra penstock[security] is not installed")
def test_nodes_that_log_in_with_bearer_tokens(tmp_path: Path) -> None:
    """Their tokens last seconds, and the writer of the file renews them; ACLs know the nodes by their `sub`."""
    from joserfc import jwt
    from joserfc.jwk import ECKey

    key = ECKey.generate_key("P-256", {"kid": "one"})
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))

    def write_token(seconds: int) -> None:
        now = int(time.time())
        claims = {"sub": "node", "aud": "kafka", "iss": "tests", "iat": now, "exp": now + seconds}
        (tmp_path / "new").write_text(jwt.encode({"alg": "ES256", "kid": "one"}, claims, key))
        (tmp_path / "new").rename(tmp_path / "token")

    properties = {
        **NODE,
        "listener.name.controller.sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri(),
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "tests",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:admin",
    }
    write_token(8)
    cluster_dir = tmp_path / "cluster"
    with start_cluster(
        cluster_dir, brokers=2, controllers=1, properties=properties, client_options=options()
    ) as cluster:
        write_token(8)
        cluster.create_topic("orders", partitions=1, replicas=2)
        ends = time.monotonic() + 12  # every session has been renewed at least once by then

        def is_over() -> bool:
            write_token(8)
            return time.monotonic() > ends

        wait_until(is_over, seconds=60)
        with cluster.admin() as admin:
            assert not any(broker.fenced for broker in admin.cluster.describe().brokers)
        cluster.create_topic("payments", partitions=1, replicas=2)
        token = (tmp_path / "token").read_text()
        logs = [node.log_text() for node in (*cluster.brokers, *cluster.controllers)]
        assert all("cannot log in" not in log and token not in log for log in logs)
