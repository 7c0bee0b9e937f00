from __future__ import annotations

from typing import Any

import pytest

from penstock.controller.configs import ConfigOperation
from penstock.metadata.features import METADATA_4_3_IV0
from penstock.metadata.image import ResourceType
from penstock.model.errors import ErrorCode
from penstock.protocol.messages import alter_configs as legacy
from penstock.protocol.messages import incremental_alter_configs as incremental
from penstock.protocol.messages.metadata_records import FeatureLevelRecord
from penstock.simulator.stories.controller_world import World

SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def alter(
    world: World,
    resource: tuple[int, str],
    *changes: tuple[int, str, str | None],
    validate_only: bool = False,
) -> tuple[int, str | None]:
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=resource[0],
                resource_name=resource[1],
                configs=[
                    incremental.AlterableConfig(name=name, config_operation=operation, value=value)
                    for operation, name, value in changes
                ],
            )
        ],
        validate_only=validate_only,
    )
    (result,) = world.do(world.controller.incremental_alter_configs(request)).responses
    assert (result.resource_type, result.resource_name) == resource
    return result.error_code, result.error_message


def replace(world: World, resource: tuple[int, str], configs: dict[str, str | None]) -> Any:
    request = legacy.AlterConfigsRequest(
        resources=[
            legacy.AlterConfigsResource(
                resource_type=resource[0],
                resource_name=resource[1],
                configs=[legacy.AlterableConfig(name=name, value=value) for name, value in configs.items()],
            )
        ]
    )
    (result,) = world.do(world.controller.alter_configs(request)).responses
    return result.error_code


TOPIC = (ResourceType.TOPIC, "orders")
BROKER = (ResourceType.BROKER, "1")
ALL_BROKERS = (ResourceType.BROKER, "")


@pytest.fixture
def world() -> World:
    world = World()
    world.create("orders")
    return world


def test_single_settings_are_set_and_deleted(world: World) -> None:
    assert alter(world, TOPIC, (SET, "retention.ms", "5"), (SET, "segment.ms", "6")) == (0, None)
    assert world.image.topic_config("orders") == {"retention.ms": "5", "segment.ms": "6"}
    assert alter(world, TOPIC, (DELETE, "retention.ms", None), (DELETE, "max.message.bytes", None))[0] == 0
    assert world.image.topic_config("orders") == {"segment.ms": "6"}
    assert alter(world, TOPIC, (DELETE, "segment.ms", None))[0] == 0
    assert world.image.configs == World(brokers=0).image.configs


def test_the_stores_of_one_listener_of_one_broker(world: World) -> None:
    name = "listener.name.plaintext.ssl.keystore.location"
    assert alter(world, BROKER, (SET, name, "here")) == (0, None)
    assert world.image.config(*BROKER) == {name: "here"}


def test_lists_are_appended_to_and_subtracted_from(world: World) -> None:
    assert alter(world, TOPIC, (APPEND, "cleanup.policy", "compact"))[0] == 0
    assert world.image.topic_config("orders") == {"cleanup.policy": "delete,compact"}
    assert alter(world, TOPIC, (SUBTRACT, "cleanup.policy", "delete"))[0] == 0
    assert world.image.topic_config("orders") == {"cleanup.policy": "compact"}
    assert alter(world, TOPIC, (APPEND, "retention.ms", "1")) == (
        ErrorCode.INVALID_CONFIG,
        "Can't APPEND to key retention.ms because its type is not LIST.",
    )


def test_what_does_not_change_makes_no_record(world: World) -> None:
    alter(world, TOPIC, (SET, "retention.ms", "5"))
    before = len(world.batches)
    alter(world, TOPIC, (SET, "retention.ms", "5"))
    assert len(world.batches) == before


@pytest.mark.parametrize(
    ("resource", "change", "code"),
    [
        (TOPIC, (SET, "retention.ms", "x"), ErrorCode.INVALID_CONFIG),
        (TOPIC, (SET, "no.such", "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, (SET, "retention.ms", None), ErrorCode.INVALID_REQUEST),
        (TOPIC, (9, "retention.ms", "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, (SET, "leader.replication.throttled.replicas", "1:1," * 9000 + "1:1"), ErrorCode.INVALID_CONFIG),
        ((ResourceType.TOPIC, "nowhere"), (SET, "retention.ms", "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((ResourceType.TOPIC, ""), (SET, "retention.ms", "1"), ErrorCode.INVALID_REQUEST),
        ((ResourceType.TOPIC, "a/b"), (SET, "retention.ms", "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ((ResourceType.BROKER, "9"), (SET, "max.connections", "1"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        ((ResourceType.BROKER, "one"), (SET, "max.connections", "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, (SET, "node.id", "2"), ErrorCode.INVALID_REQUEST),
        (BROKER, (SET, "max.connections", "-1"), ErrorCode.INVALID_REQUEST),
        (BROKER, (SET, "num.io.threads", "many"), ErrorCode.INVALID_REQUEST),
        (BROKER, (SET, "delegation.token.max.lifetime.ms", "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, (SET, "ssl.keystore.location", "here"), ErrorCode.INVALID_REQUEST),
        (BROKER, (SET, "listener.name.plaintext.ssl.keystore.type", "ZIP"), ErrorCode.INVALID_REQUEST),
        (BROKER, (SET, "listener.name.plaintext.ssl.client.auth", "none"), ErrorCode.INVALID_REQUEST),
        (BROKER, (SET, "listener.name.plaintext.sasl.jaas.config", "x"), ErrorCode.INVALID_REQUEST),
        (ALL_BROKERS, (SET, "listener.name.plaintext.ssl.keystore.location", "here"), ErrorCode.INVALID_REQUEST),
        (BROKER, (APPEND, "nobody.knows", "1"), ErrorCode.INVALID_CONFIG),
        (ALL_BROKERS, (SET, "log.retention.ms", "0"), ErrorCode.INVALID_REQUEST),
        ((ResourceType.CLIENT_METRICS, "g"), (SET, "x", "1"), ErrorCode.INVALID_REQUEST),
        ((ResourceType.CLIENT_METRICS, ""), (SET, "interval.ms", "1000"), ErrorCode.INVALID_REQUEST),
        ((ResourceType.CLIENT_METRICS, "g"), (SET, "interval.ms", "99"), ErrorCode.INVALID_REQUEST),
        ((ResourceType.CLIENT_METRICS, "g"), (SET, "interval.ms", "soon"), ErrorCode.INVALID_CONFIG),
        ((ResourceType.CLIENT_METRICS, "g"), (SET, "match", "client_id"), ErrorCode.INVALID_CONFIG),
        ((ResourceType.CLIENT_METRICS, "g"), (SET, "match", "client_id=("), ErrorCode.INVALID_CONFIG),
        ((ResourceType.CLIENT_METRICS, "g"), (SET, "match", "shoe_size=44"), ErrorCode.INVALID_CONFIG),
        ((ResourceType.CLIENT_METRICS, "g"), (APPEND, "metrics", "a"), ErrorCode.INVALID_CONFIG),
        ((ResourceType.BROKER_LOGGER, "1"), (SET, "root", "INFO"), ErrorCode.INVALID_REQUEST),
        ((ResourceType.GROUP, ""), (SET, "consumer.session.timeout.ms", "50000"), ErrorCode.INVALID_REQUEST),
        ((ResourceType.GROUP, "g"), (SET, "consumer.session.timeout", "50000"), ErrorCode.INVALID_CONFIG),
        ((ResourceType.GROUP, "g"), (SET, "consumer.session.timeout.ms", "44999"), ErrorCode.INVALID_CONFIG),
        ((ResourceType.GROUP, "g"), (SET, "consumer.session.timeout.ms", "60001"), ErrorCode.INVALID_CONFIG),
        ((ResourceType.GROUP, "g"), (SET, "consumer.heartbeat.interval.ms", "4999"), ErrorCode.INVALID_CONFIG),
        ((ResourceType.GROUP, "g"), (SET, "consumer.heartbeat.interval.ms", "soon"), ErrorCode.INVALID_CONFIG),
        ((ResourceType.GROUP, "g"), (SET, "consumer.assignment.interval.ms", "15001"), ErrorCode.INVALID_CONFIG),
        ((ResourceType.GROUP, "g"), (SET, "share.session.timeout.ms", "44999"), ErrorCode.INVALID_CONFIG),
        ((ResourceType.GROUP, "g"), (SET, "share.delivery.count.limit", "11"), ErrorCode.INVALID_CONFIG),
        ((ResourceType.GROUP, "g"), (SET, "share.auto.offset.reset", "by_duration:7"), ErrorCode.INVALID_CONFIG),
        ((ResourceType.GROUP, "g"), (SET, "share.isolation.level", "none"), ErrorCode.INVALID_CONFIG),
        ((ResourceType.GROUP, "g"), (SET, "share.assignor.offload.enable", "true"), ErrorCode.INVALID_CONFIG),
        ((ResourceType.GROUP, "g"), (APPEND, "consumer.session.timeout.ms", "1"), ErrorCode.INVALID_CONFIG),
        (ALL_BROKERS, (SET, "group.consumer.assignment.interval.ms", "15001"), ErrorCode.INVALID_REQUEST),
        ((77, "g"), (SET, "x", "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused(
    world: World, resource: tuple[int, str], change: tuple[int, str, str | None], code: ErrorCode
) -> None:
    before = world.image
    assert alter(world, resource, change)[0] == code
    assert world.image is before


@pytest.mark.parametrize("resource", [BROKER, ALL_BROKERS])
@pytest.mark.parametrize("name", ["num.io.threads", "nobody.knows"])
def test_what_is_not_used_is_stored(world: World, resource: tuple[int, str], name: str) -> None:
    assert alter(world, resource, (SET, name, "5"))[0] == ErrorCode.NONE
    assert world.image.config(*resource)[name] == "5"
    assert alter(world, resource, (DELETE, name, None))[0] == ErrorCode.NONE
    assert name not in world.image.config(*resource)


def test_client_metrics_are_stored(world: World) -> None:
    resource = (ResourceType.CLIENT_METRICS, "slow")
    assert alter(world, resource, (SET, "match", "client_id=a.*,client_source_address=10\\..*"))[0] == ErrorCode.NONE
    assert alter(world, resource, (SET, "interval.ms", "1000"))[0] == ErrorCode.NONE
    assert dict(world.image.config(*resource)) == {
        "match": "client_id=a.*,client_source_address=10\\..*",
        "interval.ms": "1000",
    }


def test_groups_have_settings_before_they_exist(world: World) -> None:
    group = (ResourceType.GROUP, "g")
    assert alter(
        world, group, (SET, "consumer.session.timeout.ms", "50000"), (SET, "consumer.heartbeat.interval.ms", "7000")
    ) == (0, None)
    assert world.image.config(*group) == {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "7000",
    }
    assert replace(world, group, {"consumer.assignment.interval.ms": "0"}) == 0
    assert world.image.config(*group) == {"consumer.assignment.interval.ms": "0"}
    assert alter(world, group, (DELETE, "consumer.assignment.interval.ms", None))[0] == 0
    assert world.image.config(*group) == {}


def test_a_groups_session_lasts_longer_than_its_heartbeats() -> None:
    world = World(
        properties={
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.min.heartbeat.interval.ms": "1000",
        }
    )
    group = (ResourceType.GROUP, "g")
    code, message = alter(world, group, (SET, "consumer.session.timeout.ms", "5000"))
    assert (code, message) == (
        ErrorCode.INVALID_CONFIG,
        "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms",
    )
    assert alter(
        world, group, (SET, "consumer.session.timeout.ms", "5000"), (SET, "consumer.heartbeat.interval.ms", "4999")
    ) == (0, None)


def test_the_result_is_validated_as_a_whole(world: World) -> None:
    assert alter(world, TOPIC, (SET, "max.compaction.lag.ms", "10"))[0] == 0
    assert alter(world, TOPIC, (SET, "min.compaction.lag.ms", "11"))[0] == ErrorCode.INVALID_CONFIG


def test_broker_settings_for_one_and_for_all(world: World) -> None:
    assert alter(world, ALL_BROKERS, (SET, "log.retention.ms", "5"), (SET, "max.connections", "7"))[0] == 0
    assert alter(world, BROKER, (SET, "max.connections", "8"))[0] == 0
    settings = world.controller.settings
    assert (settings.topic_defaults.retention_ms, settings.max_connections) == (5, 8)
    result = world.create("more")
    assert {(config.name, config.value, config.config_source) for config in result.configs} >= {
        ("retention.ms", "5", 3)
    }
    assert alter(world, BROKER, (DELETE, "max.connections", None))[0] == 0
    assert world.controller.settings.max_connections == 7


def test_validate_only_and_duplicates(world: World) -> None:
    assert alter(world, TOPIC, (SET, "retention.ms", "5"), validate_only=True)[0] == 0
    assert world.image.configs == World(brokers=0).image.configs
    twice = ((SET, "retention.ms", "5"), (DELETE, "retention.ms", None))
    assert alter(world, TOPIC, *twice) == (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    resource = incremental.AlterConfigsResource(resource_type=2, resource_name="orders")
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource, resource])
    response = world.do(world.controller.incremental_alter_configs(request))
    assert [result.error_code for result in response.responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_the_older_request_replaces_all(world: World) -> None:
    assert replace(world, TOPIC, {"retention.ms": "5", "segment.ms": "6"}) == 0
    assert replace(world, TOPIC, {"segment.ms": "7"}) == 0
    assert world.image.topic_config("orders") == {"segment.ms": "7"}
    assert replace(world, TOPIC, {"segment.ms": None}) == ErrorCode.INVALID_REQUEST
    assert replace(world, TOPIC, {"segment.ms": "x"}) == ErrorCode.INVALID_CONFIG
    assert replace(world, TOPIC, {}) == 0
    assert world.image.configs == World(brokers=0).image.configs


def test_log_directories_are_cordoned_from_4_3_on() -> None:
    world = World(brokers=1)
    assert world.set_broker_config("1", "cordoned.log.dirs", "/a") == ErrorCode.NONE
    world.commit([FeatureLevelRecord(name="metadata.version", feature_level=METADATA_4_3_IV0 - 1)])
    assert world.set_broker_config("1", "cordoned.log.dirs", "/b") == ErrorCode.INVALID_CONFIG
