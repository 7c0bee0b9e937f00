"""Dynamic settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from penstock.client.errors import raise_for
from penstock.client.wire.cluster import Cluster
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_SET, _DELETE = 0, 1


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4  # by id; the empty name means all brokers
    CLIENT_METRICS = 16  # by the name of a subscription
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a value, numbered as in DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None  # None for a password, and for a setting without a value
    source: str
    read_only: bool
    sensitive: bool


class Configs:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self, resource: ResourceType, name: str) -> list[ConfigEntry]:
        """Return every effective setting of a topic or broker, by name."""
        wanted = DescribeConfigsResource(resource_type=resource, resource_name=name, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[wanted])
        if resource is ResourceType.BROKER and name:
            response = self._cluster.request_broker(int(name), request, DescribeConfigsResponse)
        else:
            response = self._cluster.request(request, DescribeConfigsResponse)
        (result,) = response.results
        raise_for(result.error_code, result.error_message, f"settings of {resource.name.lower()} {name!r}")
        entries = [
            ConfigEntry(
                name=config.name,
                value=config.value,
                source=_source_name(config.config_source),
                read_only=config.read_only,
                sensitive=config.is_sensitive,
            )
            for config in result.configs
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def of_topics(self, names: Iterable[str], keys: Iterable[str]) -> dict[str, dict[str, str | None]]:
        """Return some settings of many topics, by topic, in one request."""
        wanted = list(keys)
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=wanted)
                for name in names
            ]
        )
        found: dict[str, dict[str, str | None]] = {}
        for result in self._cluster.request(request, DescribeConfigsResponse).results:
            raise_for(result.error_code, result.error_message, f"settings of topic {result.resource_name!r}")
            found[result.resource_name] = {config.name: config.value for config in result.configs}
        return found

    def alter(
        self,
        resource: ResourceType,
        name: str,
        values: Mapping[str, str] | None = None,
        *,
        delete: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set some settings, reset others to their defaults, and leave the rest."""
        changes = [AlterableConfig(name=key, config_operation=_SET, value=text) for key, text in (values or {}).items()]
        changes += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in delete]
        request = IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=resource, resource_name=name, configs=changes)],
            validate_only=validate_only,
        )
        if resource is ResourceType.BROKER and name:
            response = self._cluster.request_broker(int(name), request, IncrementalAlterConfigsResponse)
        else:
            response = self._cluster.request(request, IncrementalAlterConfigsResponse)
        (result,) = response.responses
        raise_for(result.error_code, result.error_message, f"cannot change {resource.name.lower()} {name!r}")


def _source_name(number: int) -> str:
    try:
        return ConfigSource(number).name
    except ValueError:
        return ConfigSource.UNKNOWN.name
