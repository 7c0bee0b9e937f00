"""`penstock quotas`, `admin.quotas` and the metrics of quotas, on a real broker."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from penstock.client.wire.admin import Admin
from penstock.model.errors import ErrorCode, KafkaError
from penstock.testing.nodes import RunningNode, start_node
from wire import Wire, batch, create_topic, produce_request

if TYPE_CHECKING:
    from conftest import CommandLine


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    properties = {"penstock.metrics.listener": "127.0.0.1:0"}
    with start_node(tmp_path_factory.mktemp("quotas") / "node", properties=properties) as node:
        yield node


@pytest.fixture
def admin(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[Admin]:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", node.bootstrap)
    with Admin(node.bootstrap) as admin:
        yield admin
        for each in admin.quotas.describe():
            admin.quotas.alter(each.entity, remove=each.values)


def test_quotas_are_set_listed_and_removed(cli: CommandLine, admin: Admin) -> None:
    assert "no quota is set" in cli("quotas", "list").err
    assert cli("quotas", "set", "producer_byte_rate=1M", "consumer_byte_rate=2Mi", "--user", "alice").status == 0
    assert cli("quotas", "set", "request_percentage=12.5", "--default-user", "--client-id", "reports").status == 0
    assert cli("quotas", "set", "connection_creation_rate=10", "--default-ip").status == 0
    table = cli("quotas", "list").out
    assert [line.split() for line in table.splitlines()][1:] == [
        ["<default>", "reports", "-", "request_percentage", "12.5"],
        ["-", "-", "<default>", "connection_creation_rate", "10"],
        ["alice", "-", "-", "consumer_byte_rate", "2097152"],
        ["alice", "-", "-", "producer_byte_rate", "1000000"],
    ]
    (alice,) = json.loads(cli("quotas", "list", "--user", "alice", "--json").out)
    assert alice == {
        "entity": {"user": "alice"},
        "values": {"consumer_byte_rate": 2097152.0, "producer_byte_rate": 1000000.0},
    }
    assert cli("quotas", "remove", "producer_byte_rate", "--user", "alice").status == 0
    assert "consumer_byte_rate" in cli("quotas", "list", "--user", "alice").out
    assert cli("quotas", "remove", "--user", "alice").status == 0
    assert admin.quotas.describe({"user": "alice"}) == []
    assert len(admin.quotas.describe(any_of=["user"])) == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("set", "producer_byte_rate=1"), "say whose quota"),
        (("set", "producer_byte_rate=fast", "--user", "a"), "is not a number"),
        (("set", "producer_byte_rate", "--user", "a"), "is not KEY=VALUE"),
        (("set", "producer_byte_rate=0", "--user", "a"), "must be greater than 0"),
        (("set", "producer_byte_rate=1", "--user", "a", "--default-user"), "not both"),
        (("set", "connection_creation_rate=1", "--user", "a"), "Invalid configuration key"),
        (("set", "connection_creation_rate=1", "--ip", "nowhere"), "not a valid IP"),
        (("remove", "producer_byte_rate", "--user", "a"), "is not set there"),
    ],
)
def test_what_is_refused_says_why(cli: CommandLine, admin: Admin, arguments: tuple[str, ...], why: str) -> None:
    outcome = cli("quotas", *arguments)
    assert outcome.status == 1
    assert why in outcome.err
    assert admin.quotas.describe() == []


def test_admin_only_validates_if_asked(admin: Admin) -> None:
    admin.quotas.alter({"user": None}, {"producer_byte_rate": 5}, validate_only=True)
    with pytest.raises(KafkaError) as refusal:
        admin.quotas.alter({"user": None}, {"nonsense": 5}, validate_only=True)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    assert admin.quotas.describe() == []


def test_metrics_name_who_is_throttled(node: RunningNode, admin: Admin) -> None:
    with Wire(node, client_id="heavy") as heavy:
        create_topic(heavy, "metered")
        admin.quotas.alter({"client-id": "heavy"}, {"producer_byte_rate": 1000})
        response = heavy.ask(produce_request("metered", batch("x" * 12_000)), 12)
        assert 2_000 <= response.throttle_time_ms < 4_000
        (address,) = re.findall(r"metrics at (\S+/metrics)", node.log_text())
        with urllib.request.urlopen(address, timeout=20) as page:
            lines = page.read().decode().splitlines()
    client = 'resource="Produce",user="",clientId="heavy"'
    told = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}
    assert told[f"kafka_server_quota_throttle_time{{{client}}}"] == response.throttle_time_ms
    assert told[f"penstock_quota_limit{{{client}}}"] == 1000
    assert told[f"kafka_server_quota_byte_rate{{{client}}}"] > 1000
    assert told['penstock_throttled_requests_total{resource="Produce"}'] == 1
    assert told['penstock_connections_throttled{listener="PLAINTEXT"}'] == 1
