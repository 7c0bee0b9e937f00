"""Configurations of topics, brokers, groups and client metrics: changes of single settings, or of all at once.

The resulting configuration is validated as a whole, not only the changes. Each resource of a request is independent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, TypeVar

from penstock.controller.eligible import check_change, records_after_change
from penstock.controller.result import Result
from penstock.controller.view import MIN_INSYNC_REPLICAS, ClusterView
from penstock.metadata.features import METADATA_4_3_IV0
from penstock.metadata.image import ConfigResource, ResourceType
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.topics import check_topic_name
from penstock.protocol.declaration import Message
from penstock.protocol.messages import alter_configs as legacy
from penstock.protocol.messages import incremental_alter_configs as incremental
from penstock.protocol.messages.alter_configs import AlterConfigsResourceResponse
from penstock.protocol.messages.metadata_records import ConfigRecord
from penstock.settings.client_metrics import check_client_metrics
from penstock.settings.definition import Scope, Setting, Type
from penstock.settings.group_config import GROUP_SETTINGS, GroupConfig
from penstock.settings.known import UNUSED_DYNAMIC, known_to_kafka, missing_protection
from penstock.settings.logs import CORDONED_LOG_DIRS
from penstock.settings.node import BROKER_SETTINGS, NodeSettings, check_groups
from penstock.settings.tls import TLS_SETTINGS, listener_tls_setting
from penstock.settings.topic import TOPIC_SETTINGS, TopicSettings

# The string length that every version of a record can hold.
MAX_VALUE_LENGTH: Final = 32767


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Wanted = TypeVar("Wanted", incremental.AlterConfigsResource, legacy.AlterConfigsResource)
# The new value of each setting; None deletes it.
Changes = dict[str, str | None]


class ConfigHandlers:
    """Handlers over one image. `static` are the settings of the node's own file, which dynamic settings override."""

    def __init__(self, view: ClusterView, static: NodeSettings, topic_defaults: TopicSettings) -> None:
        self._view = view
        self._image = view.image
        self._static = static
        self._topic_defaults = topic_defaults

    def incremental_alter_configs(
        self, request: incremental.IncrementalAlterConfigsRequest
    ) -> Result[incremental.IncrementalAlterConfigsResponse]:
        records, responses = self._each(request.resources, self._incremental_changes)
        response = incremental.IncrementalAlterConfigsResponse(responses=responses)
        return Result([] if request.validate_only else records, response)

    def alter_configs(self, request: legacy.AlterConfigsRequest) -> Result[legacy.AlterConfigsResponse]:
        """The older request: it deletes all settings that it does not name."""
        records, responses = self._each(request.resources, self._replacement_changes)
        response = legacy.AlterConfigsResponse(responses=responses)
        return Result([] if request.validate_only else records, response)

    def _each(
        self, resources: Sequence[Wanted], changes_of: Callable[[Wanted, ConfigResource], Changes]
    ) -> tuple[list[Message], list[AlterConfigsResourceResponse]]:
        records: list[Message] = []
        responses = []
        counts = Counter((wanted.resource_type, wanted.resource_name) for wanted in resources)
        for wanted in resources:
            resource = ConfigResource(wanted.resource_type, wanted.resource_name)
            response = AlterConfigsResourceResponse(
                resource_type=wanted.resource_type, resource_name=wanted.resource_name, error_message=None
            )
            responses.append(response)
            try:
                if counts[resource] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                names = [config.name for config in wanted.configs]
                if len(set(names)) != len(names):
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
                self._check_resource(resource)
                records += self._altered(resource, changes_of(wanted, resource))
            except KafkaError as error:
                response.error_code, response.error_message = error.code, error.message
        return [*records, *records_after_change(self._view, records)], responses

    def _incremental_changes(self, wanted: incremental.AlterConfigsResource, resource: ConfigResource) -> Changes:
        current = self._image.config(*resource)
        definitions = _definitions(resource)
        changes: Changes = {}
        missing = [
            config.name
            for config in wanted.configs
            if config.value is None and config.config_operation != ConfigOperation.DELETE
        ]
        if missing:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")
        for config in wanted.configs:
            operation, value = config.config_operation, config.value or ""
            if operation == ConfigOperation.DELETE:
                changes[config.name] = None
            elif operation == ConfigOperation.SET:
                changes[config.name] = value
            elif operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
                definition = definitions.get(config.name)
                if definition is None or definition.type is not Type.LIST:
                    raise KafkaError(
                        ErrorCode.INVALID_CONFIG,
                        f"Can't {ConfigOperation(operation).name} to key {config.name} because its type is not LIST.",
                    )
                before = current.get(config.name, definition.format(definition.default)) or ""
                changes[config.name] = _combined(before, value, add=operation == ConfigOperation.APPEND)
            else:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
        return changes

    def _replacement_changes(self, wanted: legacy.AlterConfigsResource, resource: ConfigResource) -> Changes:
        missing = [config.name for config in wanted.configs if config.value is None]
        if missing:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")
        changes: Changes = dict.fromkeys(self._image.config(*resource))
        changes.update((config.name, config.value) for config in wanted.configs)
        return changes

    def _check_resource(self, resource: ConfigResource) -> None:
        if resource.type == ResourceType.TOPIC:
            if not resource.name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            check_topic_name(resource.name)
            if self._image.topics.by_name(resource.name) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
        elif resource.type == ResourceType.BROKER:
            if not resource.name:
                return
            if not re.fullmatch(r"[0-9]{1,10}", resource.name):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
            if int(resource.name) not in self._image.brokers:
                raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {resource.name} found.")
        elif resource.type == ResourceType.GROUP:
            # The group need not exist: its settings may be created before its members join.
            if not resource.name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        elif resource.type == ResourceType.CLIENT_METRICS:
            if not resource.name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        else:
            # Logger levels do not belong to the controller: each node handles its own.
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.type}")

    def _altered(self, resource: ConfigResource, changes: Changes) -> list[Message]:
        current = self._image.config(*resource)
        result = dict(current)
        records: list[Message] = []
        for name, value in changes.items():
            if name == MIN_INSYNC_REPLICAS and self._view.elr:
                check_change(resource, value)
            if name == CORDONED_LOG_DIRS and self._image.metadata_version < METADATA_4_3_IV0:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"The {name} configuration value cannot be set because it requires metadata.version >= 4.3-IV0",
                )
            if value is None:
                result.pop(name, None)
            elif len(value.encode()) > MAX_VALUE_LENGTH:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    "The configuration value cannot be added because it exceeds the maximum value size of "
                    f"{MAX_VALUE_LENGTH} bytes.",
                )
            else:
                result[name] = value
            # A broker setting is written even if it is unchanged: the value may name a file whose contents changed.
            if current.get(name) != value or (resource.type == ResourceType.BROKER and name in result):
                records.append(
                    ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
                )
        if resource.type == ResourceType.TOPIC:
            TopicSettings.from_overrides(result, self._topic_defaults)
        elif resource.type == ResourceType.GROUP:
            GroupConfig.check(result, self._static)
        elif resource.type == ResourceType.CLIENT_METRICS:
            check_client_metrics(result)
        else:
            try:
                self._check_broker_configs(resource.name, result)
            except KafkaError as error:
                # A topic's bad setting is INVALID_CONFIG, a broker's has always been INVALID_REQUEST (KAFKA-13609).
                raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error
        return records

    def _check_broker_configs(self, broker: str, configs: Mapping[str, str]) -> None:
        for name, value in configs.items():
            definition = BROKER_SETTINGS.get(name) or listener_tls_setting(name)
            if definition is None:
                _check_unused(name, value)
                continue
            if definition.scope is Scope.READ_ONLY:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Cannot update these configs dynamically: [{name}]")
            if name in TLS_SETTINGS:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    "These security configs can be dynamically updated only per-listener using the listener prefix: "
                    f"[{name}]",
                )
            if definition.scope is Scope.PER_BROKER and not broker:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"Cannot update these configs at default cluster level, broker id must be specified: [{name}]",
                )
            definition.parse(value)
        # Constraints between several settings.
        if broker:
            check_groups(self._static.with_dynamic(self._image.config(ResourceType.BROKER, ""), configs))
        else:
            check_groups(self._static.with_dynamic(configs, {}))


def _check_unused(name: str, value: str) -> None:
    """Dynamic broker settings of Kafka are stored even if Penstock does not use them; unknown names, too, because they
    may belong to a plug-in."""
    if name in UNUSED_DYNAMIC:
        UNUSED_DYNAMIC[name].parse(value)
    elif (asked := missing_protection(name, value)) is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} asks for {asked}, which is not available")
    elif known_to_kafka(name):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Cannot update these configs dynamically: [{name}]")


def _definitions(resource: ConfigResource) -> Mapping[str, Setting]:
    kinds: dict[int, Mapping[str, Setting]] = {
        ResourceType.TOPIC: TOPIC_SETTINGS,
        ResourceType.GROUP: GROUP_SETTINGS,
        # Appending is not supported for any of them, though two are lists.
        ResourceType.CLIENT_METRICS: {},
    }
    return kinds.get(resource.type, BROKER_SETTINGS)


def _combined(before: str, value: str, *, add: bool) -> str:
    parts = [part.strip() for part in before.split(",") if part.strip()]
    for part in (piece.strip() for piece in value.split(",")):
        if add and part not in parts:
            parts.append(part)
        elif not add and part in parts:
            parts.remove(part)
    return ",".join(parts)
