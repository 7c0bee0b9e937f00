"""`penstock client-metrics`, `penstock features` and what unregisters nodes, on a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from penstock.client.wire.admin import Admin
from penstock.client.wire.admin.features import levels_of
from penstock.model.errors import ErrorCode, KafkaError
from penstock.testing.nodes import RunningNode

if TYPE_CHECKING:
    from conftest import CommandLine


@pytest.fixture
def admin(broker: RunningNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[Admin]:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker.bootstrap)
    with Admin(broker.bootstrap) as admin:
        yield admin


def test_subscriptions_are_set_listed_and_removed(cli: CommandLine, admin: Admin) -> None:
    # It selects no client: other tests use this broker.
    options = ("--metrics", "org.apache.kafka.producer.", "--metrics", "com.example.", "--match", "client_id=nobody-.*")
    assert cli("client-metrics", "set", "billing", *options, "--interval-ms", "60000").status == 0
    assert cli("client-metrics", "set", "billing", "--interval-ms", "30000").status == 0
    (row,) = [line.split() for line in cli("client-metrics", "list").out.splitlines()][1:]
    assert row == ["billing", "org.apache.kafka.producer.,com.example.", "30000", "client_id=nobody-.*"]
    (found,) = json.loads(cli("client-metrics", "list", "--json").out)
    assert found["match"] == {"client_id": "nobody-.*"}
    refused = cli("client-metrics", "set", "billing", "--match", "client_id=(a)\\1")
    assert refused.status == 1 and "Illegal client matching pattern" in refused.err
    assert cli("client-metrics", "remove", "billing").status == 0
    assert "no subscription" in cli("client-metrics", "list").err


def test_features_are_those_of_the_newest_release(cli: CommandLine, admin: Admin) -> None:
    levels = {each.name: each.level for each in admin.features.describe()}
    assert levels["metadata.version"] == levels_of("4.4")["metadata.version"]
    assert "metadata.version" in cli("features", "describe").out
    done = cli("features", "upgrade", "--release-version", "4.4", "--dry-run")
    assert (done.status, "metadata.version 33" in done.out) == (0, True)
    older = cli("features", "upgrade", "--release-version", "4.1")
    assert older.status == 1 and "Can't downgrade the version of this feature" in older.err
    assert cli("features", "upgrade", "--release-version", "5.0").status == 1


def test_nodes_that_are_there_or_never_were_are_not_unregistered(
    cli: CommandLine, admin: Admin, broker: RunningNode
) -> None:
    with pytest.raises(KafkaError) as refusal:
        admin.cluster.unregister_controller(broker.node_id)
    assert (refusal.value.code, "part of the voter set" in refusal.value.message) == (ErrorCode.INVALID_REQUEST, True)
    assert "999 is not currently registered" in cli("cluster", "unregister-controller", "999").err
    assert "999 is not currently registered" in cli("cluster", "unregister-broker", "999").err
