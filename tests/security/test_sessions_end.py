"""Sessions with an end (KIP-368) at a real broker: clients authenticate again on the same connection."""

from __future__ import annotations

import os
import time
from typing import Any

from penstock.client.wire.admin import Admin
from penstock.client.wire.connection import Connection
from penstock.client.wire.login import login_from
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.testing.nodes import start_node
from security.sasl_world import NODE, options

SESSION_MS = 1500
SESSIONS = 3


def test_clients_authenticate_again(tmp_path: os.PathLike[str]) -> None:
    from confluent_kafka import Producer

    properties = {**NODE, "connections.max.reauth.ms": str(SESSION_MS), "penstock.metrics.listener": "127.0.0.1:0"}
    with start_node(tmp_path, properties=properties, client_options=options()) as node:
        with Admin(node.bootstrap, options=options()) as admin:
            admin.topics.create("t", partitions=1)
        errors: list[Any] = []
        producer = Producer({"bootstrap.servers": node.bootstrap, **options()})
        with Connection(node.host, node.port, login=login_from(options())) as connection:
            end = time.monotonic() + SESSIONS * SESSION_MS / 1000
            while time.monotonic() < end:  # the sessions are of the broker's clock: there is no condition to wait for
                connection.request(MetadataRequest(topics=[]), MetadataResponse)
                producer.produce("t", b"x", on_delivery=lambda error, _: errors.append(error))
                assert producer.flush(30) == 0
            assert connection.is_open
        assert set(errors) == {None}
        assert "has ended" not in node.log_text(), "no client was too late"
