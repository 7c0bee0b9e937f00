from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.metadata.features import NEW_CLUSTER_FEATURES
from penstock.migrate.check import Severity, Survey, can_move, check
from penstock.migrate.plan import CannotMove, plan
from penstock.migrate.properties import FILL_IN, GivenSetting, NewNode, Settings, properties
from penstock.migrate.state import Broker, ClusterState, Kind, Replicas
from penstock.model.ids import TopicPartition
from penstock.settings.node import NodeSettings

FEATURES = {**NEW_CLUSTER_FEATURES, "metadata.version": 30, "kraft.version": 1}
GIVEN = [
    GivenSetting("node.id", "1"),
    GivenSetting("process.roles", "broker,controller"),
    GivenSetting("listeners", "INSIDE://kafka-1:9092,CONTROLLER://kafka-1:9093"),
    GivenSetting("listener.security.protocol.map", "INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"),
    GivenSetting("inter.broker.listener.name", "INSIDE"),
    GivenSetting("controller.listener.names", "CONTROLLER"),
    GivenSetting("log.dirs", "/one,/two"),
    GivenSetting("num.io.threads", "8"),
    GivenSetting("log.retention.hours", "48"),
]


def cluster() -> ClusterState:
    broker = Broker(1, "kafka-1", 9092, Kind.KAFKA)
    return ClusterState("cluster-id", {1: broker}, {TopicPartition("a", 0): Replicas((1,), (1,), 1)})


def survey(**changes: Any) -> Survey:
    base = Survey(cluster(), FEATURES, Settings({1: GIVEN}), {"a": {"remote.storage.enable": "false"}})
    return dataclasses.replace(base, **changes)


def blockers(**changes: Any) -> dict[str, str]:
    found = check(survey(**changes))
    assert can_move(found) == all(each.severity is not Severity.BLOCKER for each in found)
    return {each.subject: f"{each.words}; {each.remedy}" for each in found if each.severity is Severity.BLOCKER}


def test_a_cluster_without_anything_special_can_be_moved() -> None:
    assert blockers() == {}
    remarks = [each.words for each in check(survey()) if each.severity is Severity.REMARK]
    assert remarks == ["Penstock does not use num.io.threads"]


def test_versions_that_are_too_old_name_the_online_upgrade() -> None:
    found = blockers(features={"metadata.version": 21})
    assert "upgrade --release-version 4.0" in found["metadata.version"]
    assert "upgrade --feature kraft.version=1" in found["kraft.version"]


def test_versions_that_are_too_new_name_both_sides() -> None:
    found = blockers(features={**FEATURES, "metadata.version": 99, "share.version": 7, "tomorrow.version": 1})
    assert "at version 99, and this node serves versions 25-33" in found["metadata.version"]
    assert "downgrade --feature share.version=2" in found["share.version"]
    assert "serves no version of it" in found["tomorrow.version"]


def test_what_penstock_does_not_have_is_refused() -> None:
    policy = GivenSetting("create.topic.policy.class.name", "com.example.Policy")
    assert "a policy in Java" in blockers(settings=Settings({1: [*GIVEN, policy]}))["create.topic.policy.class.name"]
    assert "a" in blockers(topic_settings={"a": {"remote.storage.enable": "true"}})["tiered storage"]
    assert "sasl" in blockers(refusal="sasl.mechanism GSSAPI")["settings"]


@pytest.mark.parametrize(
    "held", [Replicas((1,), (), None), Replicas((1, 2), (1,), 1)], ids=["without a leader", "not in sync"]
)
def test_partitions_must_be_healthy(held: Replicas) -> None:
    state = dataclasses.replace(cluster(), partitions={TopicPartition("a", 0): held})
    assert "a-0" in blockers(state=state)["partitions"]


@pytest.mark.parametrize(("held", "free", "is_enough"), [(0, 99, False), (0, 100, True), (40, 60, True)])
def test_new_brokers_must_have_the_space(held: int, free: int, is_enough: bool) -> None:
    brokers = {**cluster().brokers, 11: Broker(11, "alpha", 9092, Kind.PENSTOCK)}
    found = blockers(
        state=dataclasses.replace(cluster(), brokers=brokers),
        log_bytes=100,
        broker_bytes={1: 100 - held, 11: held},
        usable_bytes={1: 0, 11: free},
    )
    assert ("disk" not in found) == is_enough


def test_settings_of_the_cluster_are_taken_over_and_those_of_a_machine_are_not() -> None:
    other = [*(each for each in GIVEN if each.name != "log.retention.hours"), GivenSetting("ssl.key.password", None)]
    other += [GivenSetting("log.retention.hours", "24")]
    settings = Settings({1: GIVEN, 2: other})
    assert settings.differing() == ["log.retention.hours"]
    lines = properties(
        NewNode(11, "alpha", 9095, "/data", ports={"INSIDE": 9094}), "id", settings, [("kafka-1", 9093)], "CONTROLLER"
    )
    assert lines["ssl.key.password"] == FILL_IN
    assert lines["listeners"] == "INSIDE://alpha:9094,CONTROLLER://alpha:9095"
    assert lines["controller.quorum.bootstrap.servers"] == "kafka-1:9093"
    assert (lines["node.id"], lines["log.dirs"], lines["penstock.cluster.id"]) == ("11", "/data", "id")
    assert "log.retention.hours" not in lines and "num.io.threads" not in lines
    node = NodeSettings.from_properties({**lines, "ssl.key.password": "secret"})
    assert node.is_controller and node.inter_broker_listener_name == "INSIDE"


def test_a_move_needs_brokers_enough() -> None:
    new = {11: Broker(11, "alpha", 9092, Kind.PENSTOCK), 12: Broker(12, "beta", 9092, Kind.PENSTOCK, fenced=True)}
    state = cluster()
    state = dataclasses.replace(
        state,
        brokers={**state.brokers, **new},
        partitions={TopicPartition("a", 0): Replicas((1, 2), (1, 2), 1)},
    )
    with pytest.raises(CannotMove, match="a-0 has 2 replicas, and there are only 1 brokers"):
        plan(state, [1, 2], [11])
    with pytest.raises(CannotMove, match="12 is fenced"):
        plan(state, [1, 2], [11, 12])
    with pytest.raises(CannotMove, match="no broker to move to"):
        plan(state, [1, 2], [1])
    with pytest.raises(CannotMove, match="13 is not in the cluster"):
        plan(state, [1, 2], [13])
