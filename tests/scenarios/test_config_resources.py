"""Configurations that are neither a topic's nor used here: loggers, client metrics, and names only others know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.protocol.messages.list_config_resources import ListConfigResourcesRequest
from penstock.testing.nodes import RunningNode
from wire import APPEND, BROKER_RESOURCE, DELETE, SET, Wire

LOGGERS, CLIENT_METRICS = 8, 16
LOGGER = "penstock.fetcher"


def alter(wire: Wire, kind: int, resource: str, name: str, operation: int, value: str | None = None) -> ErrorCode:
    change = AlterableConfig(name=name, config_operation=operation, value=value)
    wanted = AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[change])
    (answer,) = wire.ask(IncrementalAlterConfigsRequest(resources=[wanted])).responses
    return ErrorCode(answer.error_code)


def describe(wire: Wire, kind: int, resource: str) -> dict[str, Any]:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=resource, configuration_keys=None)
    (result,) = wire.ask(DescribeConfigsRequest(resources=[asked])).results
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {entry.name: entry for entry in result.configs}


def test_levels_of_loggers(broker: RunningNode, wire: Wire) -> None:
    node = str(broker.node_id)
    assert describe(wire, LOGGERS, node)[LOGGER].value == "INFO"
    assert alter(wire, LOGGERS, node, LOGGER, SET, "ERROR") == ErrorCode.NONE
    described = describe(wire, LOGGERS, node)
    assert (described[LOGGER].value, described["root"].value) == ("ERROR", "INFO")
    assert alter(wire, LOGGERS, node, LOGGER, DELETE) == ErrorCode.NONE
    assert describe(wire, LOGGERS, node)[LOGGER].value == "INFO"


@pytest.mark.parametrize(
    ("resource", "name", "operation", "value", "code"),
    [
        (None, LOGGER, SET, "LOUD", ErrorCode.INVALID_CONFIG),
        (None, LOGGER, SET, "debug", ErrorCode.INVALID_CONFIG),
        (None, "no.such.logger", SET, "INFO", ErrorCode.INVALID_CONFIG),
        (None, LOGGER, APPEND, "INFO", ErrorCode.INVALID_REQUEST),
        (None, "root", DELETE, None, ErrorCode.INVALID_REQUEST),
        ("", LOGGER, SET, "INFO", ErrorCode.INVALID_REQUEST),
        ("977", LOGGER, SET, "INFO", ErrorCode.INVALID_REQUEST),
    ],
)
def test_levels_that_cannot_be(
    broker: RunningNode, wire: Wire, resource: str | None, name: str, operation: int, value: str | None, code: ErrorCode
) -> None:
    resource = str(broker.node_id) if resource is None else resource
    before = describe(wire, LOGGERS, str(broker.node_id))
    assert alter(wire, LOGGERS, resource, name, operation, value) == code
    assert describe(wire, LOGGERS, str(broker.node_id)) == before


def test_subscriptions_to_client_metrics(wire: Wire, unique_topic: Callable[[str], str]) -> None:
    name = unique_topic("metrics")

    def names() -> set[str]:
        return {each.resource_name for each in wire.ask(ListConfigResourcesRequest(), 0).config_resources}

    assert name not in names()
    assert {key: entry.value for key, entry in describe(wire, CLIENT_METRICS, name).items()} == {
        "interval.ms": "300000",
        "match": "",
        "metrics": "",
    }
    assert alter(wire, CLIENT_METRICS, name, "metrics", SET, "org.apache.kafka.producer.") == ErrorCode.NONE
    assert alter(wire, CLIENT_METRICS, name, "interval.ms", SET, "99") == ErrorCode.INVALID_REQUEST
    assert name in names()
    entry = describe(wire, CLIENT_METRICS, name)["metrics"]
    assert (entry.value, entry.config_source) == ("org.apache.kafka.producer.", 7)
    assert alter(wire, CLIENT_METRICS, name, "metrics", DELETE) == ErrorCode.NONE
    assert name not in names()


def test_settings_of_brokers_that_others_know(broker: RunningNode, wire: Wire) -> None:
    node = str(broker.node_id)
    for resource, source in ((node, 2), ("", 3)):
        for name in ("num.io.threads", "nobody.knows"):
            assert alter(wire, BROKER_RESOURCE, resource, name, SET, "5") == ErrorCode.NONE
        described = describe(wire, BROKER_RESOURCE, resource)
        known, unknown = described["num.io.threads"], described["nobody.knows"]
        assert (known.value, known.read_only, known.is_sensitive, known.config_source) == ("5", False, False, source)
        assert (unknown.value, unknown.read_only, unknown.is_sensitive, unknown.config_source) == (
            None, True, True, source,
        )  # fmt: skip
        for name in ("num.io.threads", "nobody.knows"):
            assert alter(wire, BROKER_RESOURCE, resource, name, DELETE) == ErrorCode.NONE
        assert not {"num.io.threads", "nobody.knows"} & describe(wire, BROKER_RESOURCE, resource).keys()
