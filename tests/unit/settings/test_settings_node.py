from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode, KafkaError
from penstock.settings.definition import Scope
from penstock.settings.listeners import Endpoint, QuorumVoter
from penstock.settings.node import BROKER_SETTINGS, NodeSettings, parse_properties

MINIMAL = {"node.id": "1", "process.roles": "broker,controller"}


def node(**changes: str) -> NodeSettings:
    return NodeSettings.from_properties(
        {**MINIMAL, **{name.replace("_", "."): value for name, value in changes.items()}}
    )


def refusal(**changes: str) -> str:
    with pytest.raises(KafkaError) as caught:
        node(**changes)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value.message


def test_properties_are_read_as_java_does() -> None:
    text = (
        "# comment\n! comment\n\n  node.id = 1\nprocess.roles:broker\nlog.dirs /a b\nempty=\nlisteners=A://:1,\\\n"
        "   B://:2\nescaped\\=key=back\\\\slash\\ttab \\u0041\nnode.id=2\nlast=x\\\\\n"
    )
    assert parse_properties(text) == {
        "node.id": "2",
        "process.roles": "broker",
        "log.dirs": "/a b",
        "empty": "",
        "listeners": "A://:1,B://:2",
        "escaped=key": "back\\slash\ttab A",
        "last": "x\\",
    }


def test_a_minimal_node() -> None:
    settings = node()
    assert settings.node_id == 1
    assert settings.is_broker and settings.is_controller
    assert settings.endpoints == (Endpoint("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert settings.advertised_endpoints[0].wildcard
    assert settings.inter_broker_listener == "PLAINTEXT"
    assert settings.metadata_directory == settings.log_directories[0]
    assert settings.notices == ()


def test_missing_identity_is_named() -> None:
    with pytest.raises(KafkaError, match=r'Missing required configuration "node\.id"'):
        NodeSettings.from_properties({"process.roles": "broker"})


def test_unknown_settings_are_named_with_the_nearest_match() -> None:
    settings = node(advertised_listner="x", num_io_threads="8", quite_unlike_anything="1")
    assert settings.notices == (
        "unknown setting advertised.listner (did you mean advertised.listeners?)",
        "num.io.threads is a setting of Kafka's that is not used here",
        "unknown setting quite.unlike.anything",
    )


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({}, 604_800_000),
    ],
)
def test_the_finest_unit_of_retention_wins(properties: dict[str, str], expected: int) -> None:
    assert NodeSettings.from_properties({**MINIMAL, **properties}).topic_defaults.retention_ms == expected


def test_broker_defaults_reach_topics() -> None:
    defaults = node(
        log_segment_bytes="2097152",
        message_max_bytes="5",
        log_roll_hours="1",
        log_cleanup_policy="compact",
        log_cleaner_min_cleanable_ratio="0.25",
        min_insync_replicas="2",
        log_flush_scheduler_interval_ms="9",
    ).topic_defaults
    assert (defaults.segment_bytes, defaults.max_message_bytes, defaults.segment_ms) == (2_097_152, 5, 3_600_000)
    assert defaults.cleanup_policy == {"compact"}
    assert (defaults.min_cleanable_dirty_ratio, defaults.min_insync_replicas, defaults.flush_ms) == (0.25, 2, 9)


def test_settings_that_ask_for_no_protection_stay_harmless() -> None:
    settings = node(
        security_inter_broker_protocol="PLAINTEXT",
        ssl_client_auth="none",
        ssl_keystore_location="",
        remote_log_storage_system_enable="false",
        connections_max_reauth_ms="0",
    )
    assert all("is not used here" in notice for notice in settings.notices)


def test_dynamic_settings_lie_over_static_ones() -> None:
    settings = node(log_retention_hours="1", max_connections="10")
    changed = settings.with_dynamic({"log.retention.ms": "5", "max.connections": "20"}, {"max.connections": "30"})
    assert (changed.topic_defaults.retention_ms, changed.max_connections) == (5, 30)
    assert settings.max_connections == 10
    # What cannot change while a broker runs does not, and unknown settings are left alone.
    assert changed.with_dynamic({"node.id": "7", "nonsense": "1"}, {}).node_id == 1
    # Once the dynamic value is gone, the file's is back.
    assert changed.with_dynamic({}, {}).topic_defaults.retention_ms == 3_600_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"node_id": "-1"}, "Value must be at least 0"),
        ({"broker_id": "2"}, "must be set to the same value"),
        ({"process_roles": "zookeeper"}, "String must be one of: broker, controller"),
        ({"log_retention_ms": "0"}, "log.retention.ms must be unlimited"),
        ({"log_roll_ms": "0"}, "log.roll.ms must be greater"),
        ({"log_dirs": "", "log_dir": ""}, "At least one log directory"),
        ({"listeners": "PLAINTEXT://nowhere"}, "is not NAME://HOST:PORT"),
        ({"listeners": "HOME://:9092"}, "No security protocol defined for listener HOME"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "different name"),
        ({"listeners": "PLAINTEXT://:1,CONTROLLER://:1", "controller_listener_names": "CONTROLLER"}, "different port"),
        ({"listeners": "PLAINTEXT://:70000"}, "not between 0 and 65535"),
        ({"listeners": "SASL_SSL://:9092"}, "the SASL mechanism GSSAPI is not available"),
        ({"authorizer_class_name": "org.example.Strict"}, "StandardAuthorizer is available here"),
        ({"super_users": "User:admin"}, "super.users is set, but there is no authorizer"),
        ({"authorizer_class_name": "StandardAuthorizer", "super_users": "admin"}, "is not a principal"),
        ({"early_start_listeners": "HOME"}, "early.start.listeners contains listener HOME"),
        (
            {
                "authorizer_class_name": "StandardAuthorizer",
                "super_users": "User:admin",
                "listeners": "PLAINTEXT://:1,CONTROLLER://:2",
                "controller_listener_names": "CONTROLLER",
            },
            "add the line super.users=User:admin;User:ANONYMOUS",
        ),
        ({"security_inter_broker_protocol": "TLS"}, "security.inter.broker.protocol"),
        ({"remote_log_storage_system_enable": "true"}, "asks for tiered storage"),
        ({"client_quota_callback_class": "org.example.Quotas"}, "asks for a quota callback in Java"),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:1"}, "nonroutable"),
        ({"advertised_listeners": "OTHER://a:1"}, "No security protocol"),
        ({"inter_broker_listener_name": "OTHER"}, "inter.broker.listener.name must be a listener name"),
        ({"controller_listener_names": "CONTROLLER"}, "CONTROLLER is not in listeners"),
        ({"controller_quorum_voters": "2@a:1"}, "must be included in controller.quorum.voters"),
        ({"controller_quorum_voters": "a:1"}, "is not ID@HOST:PORT"),
        ({"max_connections_per_ip_overrides": "a=1"}, "is not HOST:COUNT"),
        ({"max_connections_per_ip": "0"}, "can be zero only if"),
        ({"queued_max_request_bytes": "10"}, "must be larger or equal"),
        ({"process_roles": "broker"}, "needs controller.quorum.bootstrap.servers"),
        ({"group_coordinator_rebalance_protocols": "consumer"}, "Disabling the 'classic' protocol"),
        (
            {"group_consumer_session_timeout_ms": "40000"},
            "group.consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {"group_consumer_heartbeat_interval_ms": "20000"},
            "group.consumer.heartbeat.interval.ms must be less than or equal to "
            "group.consumer.max.heartbeat.interval.ms",
        ),
        (
            {"group_consumer_max_assignment_interval_ms": "1", "group_consumer_min_assignment_interval_ms": "2"},
            "group.consumer.max.assignment.interval.ms must be greater than or equal to "
            "group.consumer.min.assignment.interval.ms",
        ),
        (
            {
                "group_consumer_min_session_timeout_ms": "1",
                "group_consumer_session_timeout_ms": "5000",
            },
            "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms",
        ),
        ({"group_consumer_migration_policy": "sideways"}, "String must be one of"),
        ({"offsets_topic_compression_codec": "5"}, "Value must be no more than 4"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, str], message: str) -> None:
    assert message in refusal(**changes)


def test_listeners_by_name_with_a_controller_and_ipv6() -> None:
    settings = node(
        listeners="internal://[::1]:9092,EXTERNAL://0.0.0.0:9093,CONTROLLER://127.0.0.1:9094",
        advertised_listeners="INTERNAL://[fe80::1]:1,EXTERNAL://broker.example:2",
        listener_security_protocol_map="INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        inter_broker_listener_name="INTERNAL",
        controller_listener_names="CONTROLLER",
    )
    assert [str(endpoint) for endpoint in settings.broker_endpoints] == [
        "INTERNAL://[::1]:9092",
        "EXTERNAL://0.0.0.0:9093",
    ]
    assert settings.controller_endpoints == (Endpoint("CONTROLLER", "127.0.0.1", 9094, "PLAINTEXT"),)
    assert settings.advertised_endpoints[0] == Endpoint("INTERNAL", "fe80::1", 1, "PLAINTEXT")
    assert settings.inter_broker_listener == "INTERNAL"


def test_a_lone_controller_and_a_lone_broker() -> None:
    controller = node(
        process_roles="controller",
        listeners="CONTROLLER://:9093",
        controller_listener_names="CONTROLLER",
        controller_quorum_voters="1@a:9093,2@[::1]:9093",
    )
    assert controller.quorum_voters == (QuorumVoter(1, "a", 9093), QuorumVoter(2, "::1", 9093))
    broker = node(
        node_id="5",
        process_roles="broker",
        controller_listener_names="CONTROLLER",
        controller_quorum_bootstrap_servers="a:9093",
    )
    assert broker.quorum_bootstrap_servers == (("a", 9093),)


def test_every_broker_setting_has_a_sentence_and_a_default_that_parses() -> None:
    for name, definition in BROKER_SETTINGS.items():
        assert definition.documentation.endswith((".", ")")), name
        text = definition.format(definition.default)
        if text is not None and not definition.internal:
            assert definition.parse(text) == definition.default, name


def test_kafkas_dynamic_settings_are_dynamic() -> None:
    dynamic = {name for name, definition in BROKER_SETTINGS.items() if definition.scope is not Scope.READ_ONLY}
    assert {"log.retention.ms", "message.max.bytes", "max.connections", "log.cleaner.threads"} <= dynamic
    assert {"producer.id.expiration.ms", "transaction.partition.verification.enable"} <= dynamic
    assert "group.consumer.assignment.interval.ms" in dynamic
    assert not {"log.retention.hours", "node.id", "log.dirs", "num.partitions"} & dynamic
    others = {name for name in BROKER_SETTINGS if name.startswith(("group.", "offset", "transaction"))} & dynamic
    assert others == {
        "group.consumer.assignment.interval.ms",
        "group.share.assignment.interval.ms",
        "group.streams.assignment.interval.ms",
        "transaction.partition.verification.enable",
    }
