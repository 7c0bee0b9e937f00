from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.metadata.features import NEW_CLUSTER_FEATURES
from penstock.migrate.check import Severity, Survey, can_move, check
from penstock.migrate.markers import LEADER_RATE
from penstock.migrate.plan import CannotMove, plan
from penstock.migrate.properties import FILL_IN, GivenSetting, NewNode, Settings, properties
from penstock.migrate.state import Broker, ClusterState, Kind, Replicas
from penstock.migrate.surveying import refusal
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


# -- what a node of Penstock would refuse ------------------------------------------------------------------------------

JAAS = "listener.name.inside.{}.sasl.jaas.config"
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def refused(*given: tuple[str, str | None], other: list[GivenSetting] | None = None) -> dict[str, str]:
    """The blockers of a cluster with these settings, which a node of Penstock would have, too. None: a password."""
    names = {name for name, _ in given}
    own = [*(each for each in GIVEN if each.name not in names), *(GivenSetting(*each) for each in given)]
    settings = Settings({1: own, 2: own if other is None else other})
    return blockers(settings=settings, refusal=refusal("id", settings))


def sasl(mechanisms: str | None, jaas: str) -> list[tuple[str, str | None]]:
    general = [("listener.security.protocol.map", "INSIDE:SASL_SSL,CONTROLLER:SSL"), (JAAS.format(jaas), None)]
    enabled = [] if mechanisms is None else [("sasl.enabled.mechanisms", mechanisms)]
    return [*general, *enabled, ("sasl.mechanism.inter.broker.protocol", jaas.upper()), ("ssl.key.password", None)]


@pytest.mark.parametrize("mechanism", ["plain", "scram-sha-512"])
def test_passwords_that_are_not_known_are_no_blocker(mechanism: str) -> None:
    assert refused(*sasl(mechanism.upper(), mechanism)) == {}


@pytest.mark.parametrize("mechanisms", [None, "GSSAPI", "PLAIN,GSSAPI", "PLAIN, COM.EXAMPLE"])
def test_mechanisms_are_judged_though_passwords_are_missing(mechanisms: str | None) -> None:
    found = refused(*sasl(mechanisms, "gssapi"))
    assert "listener INSIDE has the mechanism" in found["SASL"] and "PLAIN, SCRAM-SHA-256" in found["SASL"]


def test_mechanisms_of_a_listener_alone_count() -> None:
    own = ("listener.name.inside.sasl.enabled.mechanisms", "GSSAPI")
    assert "GSSAPI" in refused(*sasl("PLAIN", "plain"), own)["SASL"]
    assert refused(own) == {}  # without SASL nobody asks for it


def test_the_mechanism_of_the_nodes_themselves_is_judged() -> None:
    given = dict(sasl("PLAIN", "plain")) | {"sasl.mechanism.inter.broker.protocol": "GSSAPI"}
    assert "sasl.mechanism.inter.broker.protocol=GSSAPI is not available" in refused(*given.items())["settings"]


@pytest.mark.parametrize("is_on_both", [True, False])
def test_another_authorizer_is_a_blocker_though_passwords_are_missing(is_on_both: bool) -> None:
    given = [("authorizer.class.name", "com.example.Ranger"), ("ssl.key.password", None)]
    found = refused(*given, other=None if is_on_both else [*GIVEN, GivenSetting("authorizer.class.name", STANDARD)])
    assert "com.example.Ranger decides who may do what" in found["authorizer"]


def test_the_standard_authorizer_is_only_mentioned() -> None:
    given = [*GIVEN, GivenSetting("authorizer.class.name", STANDARD), GivenSetting("super.users", "User:ANONYMOUS")]
    settings = Settings({1: given})
    assert refusal("id", settings) is None
    (found,) = (each for each in check(survey(settings=settings)) if each.subject == "authorizer")
    assert found.severity is Severity.REMARK and "ACLs are in the metadata" in found.words


def test_a_setting_of_one_broker_alone_is_a_blocker() -> None:
    policy = GivenSetting("create.topic.policy.class.name", "com.example.Policy")
    assert "a policy in Java" in refused(other=[*GIVEN, policy])["create.topic.policy.class.name"]


# -- other tools -------------------------------------------------------------------------------------------------------


def test_throttles_and_moves_of_other_tools_are_named() -> None:
    brokers = {1: dataclasses.replace(cluster().brokers[1], throttle={LEADER_RATE: "5"})}
    state = dataclasses.replace(cluster(), throttled_by_others=["a"], brokers=brokers)
    assert "settings of a" in blockers(state=state)["throttles"]
    remarks = [each.words for each in check(survey(state=state)) if each.severity is Severity.REMARK]
    assert any("brokers 1 have a throttle already" in words for words in remarks)
    moving = Replicas((1, 2), (1,), 1, adding=(2,), removing=(1,))
    state = dataclasses.replace(cluster(), partitions={TopicPartition("a", 0): moving})
    assert "moved by another tool: a-0" in blockers(state=state)["partitions"]
    ours = dataclasses.replace(moving, originals=(1,))
    state = dataclasses.replace(cluster(), partitions={TopicPartition("a", 0): ours})
    assert blockers(state=state) == {}
