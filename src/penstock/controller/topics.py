"""Topics: creation, deletion, and additional partitions.

Each topic of a request is independent: a refused topic has its error in its own entry, and the others proceed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Final

from penstock.controller.placement import Placement, UsableBroker
from penstock.controller.result import Result
from penstock.metadata.image import MetadataImage, ResourceType
from penstock.metadata.partition import Partition
from penstock.metadata.topics import collision_key
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import ZERO_UUID, Uuid
from penstock.model.topics import check_new_topic_name
from penstock.protocol.declaration import Message
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from penstock.protocol.messages.metadata_records import ConfigRecord, RemoveTopicRecord, TopicRecord
from penstock.settings.explain import BrokerLayers, explain_topic
from penstock.settings.node import NodeSettings
from penstock.settings.topic import TopicSettings

# More in one request would make a batch of records that blocks everything after it.
MAX_PARTITIONS_PER_REQUEST: Final = 10_000

Charge = Callable[[int], None]


def free_of_charge(partitions: int) -> None:
    """For requests that no quota applies to."""


class TopicHandlers:
    """Handlers over one image, with the other state they need."""

    def __init__(
        self,
        image: MetadataImage,
        settings: NodeSettings,
        layers: BrokerLayers,
        *,
        new_id: Callable[[], Uuid],
        placement: Placement,
        charge: Charge,
    ) -> None:
        """`charge`: counts partitions that are created or deleted, and refuses with a KafkaError what is too much."""
        self._image = image
        self._settings = settings
        self._layers = layers
        self._new_id = new_id
        # Advances as partitions are placed here; the caller decides whether to keep it.
        self.placement = placement
        self._charge = charge
        self._default_configs: list[CreatableTopicConfigs] | None = None

    # -- CreateTopics --------------------------------------------------------------------------------------------------

    def create_topics(
        self, request: CreateTopicsRequest, describable: Container[str] | None = None
    ) -> Result[CreateTopicsResponse]:
        """`describable`: the topics whose configs the client may see; None for all."""
        records: list[Message] = []
        results: list[CreatableTopicResult] = []
        counts = Counter(topic.name for topic in request.topics)
        new_names: dict[str, str] = {}
        too_many = self._partitions_wanted(request) > MAX_PARTITIONS_PER_REQUEST
        for topic in request.topics:
            if counts[topic.name] == 0:
                continue  # already refused at the first occurrence of the name
            try:
                if counts[topic.name] > 1:
                    counts[topic.name] = 0
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                if too_many:
                    raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
                self._check_new_name(topic.name, new_names)
                result, topic_records = self._create_topic(topic, describable is None or topic.name in describable)
                records += topic_records
                results.append(result)
            except KafkaError as error:
                results.append(
                    CreatableTopicResult(
                        name=topic.name, error_code=error.code, error_message=error.message, configs=[]
                    )
                )
        response = CreateTopicsResponse(topics=results)
        return Result([] if request.validate_only else records, response)

    def _partitions_wanted(self, request: CreateTopicsRequest) -> int:
        default = self._settings.num_partitions
        return sum(
            len(topic.assignments) or (default if topic.num_partitions == -1 else max(0, topic.num_partitions))
            for topic in request.topics
        )

    def _check_new_name(self, name: str, new_names: dict[str, str]) -> None:
        """`new_names`: the names in this request, by collision key."""
        check_new_topic_name(name)
        topics = self._image.topics
        if topics.by_name(name) is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        key = collision_key(name)
        if key is None:
            return
        colliding = topics.collisions.get(key, ())[:1] or ((new_names[key],) if key in new_names else ())
        if colliding:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {colliding[0]}"
            )
        new_names[key] = name

    def _create_topic(self, topic: CreatableTopic, may_describe: bool) -> tuple[CreatableTopicResult, list[Message]]:
        configs = self._checked_configs({config.name: config.value for config in topic.configs})
        if topic.assignments:
            partitions = self._manual_partitions(topic)
        else:
            partitions = self._placed_partitions(topic)
        self._charge(len(partitions))
        topic_id = self._new_id()
        records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id)]
        records += [
            ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
            for name, value in configs.items()
        ]
        records += [partition.to_record(topic_id, index) for index, partition in enumerate(partitions)]
        result = CreatableTopicResult(name=topic.name, topic_id=topic_id, error_message=None, configs=[])
        if may_describe:
            result.num_partitions = len(partitions)
            result.replication_factor = len(partitions[0].replicas)
            result.configs = self._described(configs)
        else:
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result, records

    def _checked_configs(self, given: Mapping[str, str | None]) -> dict[str, str]:
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(missing)}"
            )
        configs = {name: value for name, value in given.items() if value is not None}
        TopicSettings.from_overrides(configs, self._settings.topic_defaults)
        return configs

    def _described(self, configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """Computed once per request, however many topics: only settings of the topic itself differ."""
        if self._default_configs is None:
            self._default_configs = self._explained({}, None)
        if not configs:
            return self._default_configs
        own = {entry.name: entry for entry in self._explained(configs, configs)}
        described = [own.pop(entry.name, entry) for entry in self._default_configs]
        return [*described, *own.values()]

    def _explained(self, configs: Mapping[str, str], names: Collection[str] | None) -> list[CreatableTopicConfigs]:
        return [
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in explain_topic(configs, self._layers, names)
        ]

    def _manual_partitions(self, topic: CreatableTopic) -> list[Partition]:
        if topic.replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            )
        if topic.num_partitions != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        partitions: dict[int, Partition] = {}
        replication_factor: int | None = None
        for assignment in topic.assignments:
            if assignment.partition_index in partitions:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Found multiple manual partition assignments for partition {assignment.partition_index}",
                )
            check_assignment(self._image, assignment.broker_ids, replication_factor)
            replication_factor = len(assignment.broker_ids)
            partitions[assignment.partition_index] = self._assigned(assignment.partition_index, assignment.broker_ids)
        if sorted(partitions) != list(range(len(partitions))):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
            )
        return [partitions[index] for index in range(len(partitions))]

    def _placed_partitions(self, topic: CreatableTopic) -> list[Partition]:
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if topic.num_partitions < -1 or topic.num_partitions == 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        count = self._settings.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        factor = topic.replication_factor
        if factor == -1:
            factor = self._settings.default_replication_factor
        return self._place(count, factor)

    # -- CreatePartitions ----------------------------------------------------------------------------------------------

    def create_partitions(self, request: CreatePartitionsRequest) -> Result[CreatePartitionsResponse]:
        records: list[Message] = []
        results: list[CreatePartitionsTopicResult] = []
        counts = Counter(topic.name for topic in request.topics)
        for topic in request.topics:
            result = CreatePartitionsTopicResult(name=topic.name)
            results.append(result)
            try:
                if counts[topic.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                records += self._create_partitions(topic, MAX_PARTITIONS_PER_REQUEST - len(records))
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
        return Result([] if request.validate_only else records, CreatePartitionsResponse(results=results))

    def _create_partitions(self, wanted: CreatePartitionsTopic, room: int) -> list[Message]:
        topic = self._image.topics.by_name(wanted.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        existing = len(topic.partitions)
        if wanted.count == existing:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partition(s).")
        if wanted.count < existing:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {wanted.name} currently has {existing} partition(s); "
                f"{wanted.count} would not be an increase.",
            )
        additional = wanted.count - existing
        if additional > room:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
        if wanted.assignments is not None and len(wanted.assignments) != additional:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only "
                f"{len(wanted.assignments)} assignment(s) were specified.",
            )
        self._charge(additional)
        first = topic.partitions[0]
        # The replication factor after the reassignment.
        replication_factor = len(set(first.replicas) - set(first.removing_replicas))
        if wanted.assignments is None:
            partitions = self._place(additional, replication_factor)
        else:
            partitions = []
            for index, assignment in enumerate(wanted.assignments, start=existing):
                check_assignment(self._image, assignment.broker_ids, replication_factor)
                partitions.append(self._assigned(index, assignment.broker_ids))
        return [partition.to_record(topic.topic_id, index) for index, partition in enumerate(partitions, existing)]

    # -- DeleteTopics --------------------------------------------------------------------------------------------------

    def delete_topics(self, request: DeleteTopicsRequest) -> Result[DeleteTopicsResponse]:
        """Delete topics by name before version 6, by name or id since."""
        wanted = [(name, ZERO_UUID) for name in request.topic_names]
        asked: list[tuple[str | None, Uuid]] = [*wanted, *((topic.name, topic.topic_id) for topic in request.topics)]
        counts = Counter(asked)
        records: list[Message] = []
        results: list[DeletableTopicResult] = []
        going: set[Uuid] = set()
        for name, topic_id in dict.fromkeys(asked):
            try:
                if not self._settings.delete_topic_enable:
                    raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
                found_name, found_id = self._topic_to_delete(name, topic_id, counts[name, topic_id])
                if found_id not in going:
                    self._charge(len(self._image.topics.ids[found_id].partitions))
                    going.add(found_id)
                    records.append(RemoveTopicRecord(topic_id=found_id))
                results.append(DeletableTopicResult(name=found_name, topic_id=found_id))
            except KafkaError as error:
                results.append(
                    DeletableTopicResult(
                        name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
                    )
                )
        return Result(records, DeleteTopicsResponse(responses=results))

    def _topic_to_delete(self, name: str | None, topic_id: Uuid, times: int) -> tuple[str, Uuid]:
        topics = self._image.topics
        if name is not None and topic_id != ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if name is None and topic_id == ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        if times > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if name is None else 'name'}.")
        topic = topics.by_id(topic_id) if name is None else topics.by_name(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.name, topic.topic_id

    # -- replicas ------------------------------------------------------------------------------------------------------

    def _assigned(self, index: int, replicas: Sequence[int]) -> Partition:
        partition = self._new_partition(tuple(replicas))
        if partition is None:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"All brokers specified in the manual partition assignment for partition {index} "
                "are fenced or in controlled shutdown.",
            )
        return partition

    def _place(self, count: int, replication_factor: int) -> list[Partition]:
        listener = self._settings.inter_broker_listener
        usable = [
            UsableBroker(broker.broker_id, broker.rack, broker.fenced, broker.host(listener))
            for broker in self._image.brokers.values()
            if not broker.in_controlled_shutdown and not broker.cordoned
        ]
        try:
            assignments = self.placement.place(usable, count, replication_factor)
        except KafkaError as error:
            raise KafkaError(
                error.code, f"Unable to replicate the partition {replication_factor} time(s): {error.message}"
            ) from error
        return [partition for replicas in assignments if (partition := self._new_partition(replicas)) is not None]

    def _new_partition(self, replicas: tuple[int, ...]) -> Partition | None:
        """A new partition; None if no replica could lead it."""
        brokers = self._image.brokers
        isr = tuple(broker_id for broker_id in replicas if brokers[broker_id].active)
        if not isr:
            return None
        directories = tuple(brokers[broker_id].default_directory for broker_id in replicas)
        return Partition(replicas=replicas, directories=directories, isr=isr, leader=isr[0])


def check_assignment(image: MetadataImage, replicas: Sequence[int], replication_factor: int | None) -> None:
    def refuse(why: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {why}")

    if not replicas:
        raise refuse("an empty replica list.")
    for broker_id in sorted(replicas):
        broker = image.brokers.get(broker_id)
        if broker is None:
            raise refuse(f"broker {broker_id}, but no such broker is registered.")
        if broker.cordoned:
            raise refuse(f"broker {broker_id}, but all its log directories are cordoned.")
        if replicas.count(broker_id) > 1:
            raise refuse(f"the broker {broker_id} more than once.")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise refuse(
            f"a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {replication_factor} replica(s)."
        )
