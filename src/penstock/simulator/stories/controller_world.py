"""A controller for tests and stories; its decisions are replayed as the runtime would."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.controller.configs import ConfigOperation
from penstock.controller.controller import Controller
from penstock.controller.elections import Election
from penstock.controller.result import Result, Unfinished
from penstock.metadata.cluster import features_message
from penstock.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, NEW_CLUSTER_FEATURES, SUPPORTED_FEATURES
from penstock.metadata.image import MetadataImage, ResourceType
from penstock.metadata.partition import Partition
from penstock.model.ids import ZERO_UUID, Uuid
from penstock.protocol.declaration import Message
from penstock.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)
from penstock.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest, Listener
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from penstock.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.protocol.messages.metadata_records import FeatureLevelRecord
from penstock.settings.node import NodeSettings

CLUSTER_ID = "a-cluster"


def node_settings(properties: Mapping[str, str] | None = None) -> NodeSettings:
    return NodeSettings.from_properties({"node.id": "1", "process.roles": "broker,controller", **(properties or {})})


def counted_ids(start: int = 1000) -> Callable[[], Uuid]:
    numbers = itertools.count(start)
    return lambda: next(numbers).to_bytes(16, "big")


def directory(broker_id: int, disk: int = 0) -> Uuid:
    return (7_000_000 + broker_id + disk * 1_000_000).to_bytes(16, "big")


def registration(
    broker_id: int, *, incarnation: int = 1, rack: str | None = None, cluster_id: str = CLUSTER_ID, disk: int = 0
) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=(broker_id * 1000 + incarnation).to_bytes(16, "big"),
        listeners=[Listener(name="PLAINTEXT", host=f"host-{broker_id}", port=9092, security_protocol=0)],
        features=features_message(SUPPORTED_FEATURES),
        rack=rack,
        log_dirs=[directory(broker_id, disk)],
    )


def bootstrap(*, elr: bool | None) -> list[Message]:
    """`elr`: whether eligible leader replicas are kept; None: the default of a new cluster."""
    levels = dict(NEW_CLUSTER_FEATURES)
    if elr is not None:
        levels[ELIGIBLE_LEADER_REPLICAS_VERSION] = int(elr)
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items() if level]


class World:
    def __init__(
        self, properties: Mapping[str, str] | None = None, *, brokers: int = 1, elr: bool | None = None
    ) -> None:
        self.controller = Controller(node_settings(properties), CLUSTER_ID, counted_ids())
        self.controller.kraft_version = 1
        self.batches: list[list[Message]] = []
        self.offset = 0
        self.now_ms = 0
        self.run(lambda controller: controller.activate(bootstrap(elr=elr)))
        for broker_id in range(1, brokers + 1):
            self.start_broker(broker_id)

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def commit(self, records: list[Message]) -> None:
        if records:
            self.batches.append(records)
            self.offset += len(records)
            self.controller.replay(records, self.offset, 1, self.offset * 10)

    def do(self, result: Result[Any]) -> Any:
        assert not isinstance(result, Unfinished)
        self.commit(result.records)
        return result.response

    def run(self, operation: Callable[[Controller], Result[Any]]) -> Any:
        """As the runtime does it: called again until it is finished."""
        while True:
            result = operation(self.controller)
            self.commit(result.records)
            if not isinstance(result, Unfinished):
                return result.response
            assert result.records

    # -- brokers -------------------------------------------------------------------------------------------------------

    def start_broker(
        self, broker_id: int, *, incarnation: int = 1, rack: str | None = None, clean: bool = False, disk: int = 0
    ) -> int:
        """Registers and unfences a broker; returns its broker epoch."""
        epoch = self.register(broker_id, incarnation=incarnation, rack=rack, clean=clean, disk=disk)
        self.unfence(broker_id)
        return epoch

    def register(
        self, broker_id: int, *, incarnation: int = 1, rack: str | None = None, clean: bool = False, disk: int = 0
    ) -> int:
        """`clean`: after a clean stop. `disk`: another number is another disk."""
        request = registration(broker_id, incarnation=incarnation, rack=rack, disk=disk)
        if clean:
            request.previous_broker_epoch = self.epoch(broker_id)
        return int(self.run(lambda controller: controller.register_broker(request)).broker_epoch)

    def epoch(self, broker_id: int) -> int:
        return self.image.brokers[broker_id].epoch

    def fence(self, broker_id: int) -> None:
        self.run(lambda controller: controller.fence_broker(broker_id, self.epoch(broker_id)))

    def unfence(self, broker_id: int) -> None:
        self.run(lambda controller: controller.unfence_broker(broker_id, self.epoch(broker_id)))

    def heartbeat(self, broker_id: int, *, offset: int | None = None, **wants: Any) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epoch(broker_id),
            current_metadata_offset=self.offset if offset is None else offset,
            **wants,
        )
        response = self.run(lambda controller: controller.broker_heartbeat(request, self.now_ms))
        assert isinstance(response, BrokerHeartbeatResponse)
        return response

    # -- partitions ----------------------------------------------------------------------------------------------------

    def partition(self, name: str, partition_id: int = 0) -> Partition:
        partition = self.image.topics.partition(name, partition_id)
        assert partition is not None
        return partition

    def proposal(self, name: str, isr: Iterable[int], partition_id: int = 0, **different: Any) -> AlterPartitionRequest:
        """The request of a partition's leader. `different`: fields with other values than the correct ones."""
        partition = self.partition(name, partition_id)
        topic_id = self.image.topics.id_of(name)
        assert topic_id is not None
        fields: dict[str, Any] = {
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "new_isr_with_epochs": [
                BrokerState(broker_id=member, broker_epoch=self.epoch(member) if member in self.image.brokers else 0)
                for member in isr
            ],
        }
        broker_id = different.pop("broker_id", partition.leader)
        fields.update(different)
        return AlterPartitionRequest(
            broker_id=broker_id,
            broker_epoch=self.epoch(broker_id),
            topics=[
                AlterPartitionRequestTopicData(
                    topic_id=topic_id,
                    partitions=[AlterPartitionRequestPartitionData(partition_index=partition_id, **fields)],
                )
            ],
        )

    def alter(
        self, name: str, isr: Iterable[int], partition_id: int = 0, **different: Any
    ) -> AlterPartitionResponsePartitionData:
        request = self.proposal(name, isr, partition_id, **different)
        response = self.do(self.controller.alter_partition(request))
        result = response.topics[0].partitions[0]
        assert isinstance(result, AlterPartitionResponsePartitionData)
        return result

    def reassign(self, name: str, replicas: Sequence[int] | None, partition_id: int = 0, **options: Any) -> Any:
        """The partition's result; None cancels."""
        wanted = ReassignablePartition(
            partition_index=partition_id, replicas=None if replicas is None else list(replicas)
        )
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=[wanted])], **options
        )
        return self.do(self.controller.alter_partition_reassignments(request)).responses[0].partitions[0]

    def located(self, broker_id: int, name: str, where: Uuid, partition_id: int = 0) -> AssignReplicasToDirsRequest:
        """A broker reports the directory of a replica."""
        topic = AssignReplicasToDirsRequestTopicData(
            topic_id=self.image.topics.id_of(name) or ZERO_UUID,
            partitions=[AssignReplicasToDirsRequestPartitionData(partition_index=partition_id)],
        )
        return AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=self.epoch(broker_id),
            directories=[AssignReplicasToDirsRequestDirectoryData(id=where, topics=[topic])],
        )

    def elect(self, election: Election, *partitions: tuple[str, int]) -> dict[tuple[str, int], int]:
        """Error codes by partition; of all partitions if none is named."""
        topics = [TopicPartitions(topic=name, partitions=[partition_id]) for name, partition_id in partitions]
        request = ElectLeadersRequest(election_type=election.value, topic_partitions=topics or None)
        response = self.do(self.controller.elect_leaders(request))
        return {
            (topic.topic, partition.partition_id): partition.error_code
            for topic in response.replica_election_results
            for partition in topic.partition_result
        }

    def assign(self, name: str, replicas: Sequence[int], **configs: str) -> None:
        """A topic with one partition, on these brokers."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
                    configs=[
                        CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
                    ],
                )
            ]
        )
        result = self.do(self.controller.create_topics(request)).topics[0]
        assert result.error_code == 0, result.error_message

    def create(self, name: str, partitions: int = 1, replication_factor: int = 1, **configs: str) -> Any:
        """The topic's result."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    configs=[
                        CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
                    ],
                )
            ]
        )
        return self.do(self.controller.create_topics(request)).topics[0]

    def delete(self, name: str) -> None:
        self.do(self.controller.delete_topics(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])))

    # -- configs -------------------------------------------------------------------------------------------------------

    def set_config(self, topic: str, name: str, value: str | None) -> int:
        return self._alter_config(ResourceType.TOPIC, topic, name, value)

    def set_broker_config(self, broker: str, name: str, value: str | None) -> int:
        return self._alter_config(ResourceType.BROKER, broker, name, value)

    def _alter_config(self, resource_type: ResourceType, resource_name: str, name: str, value: str | None) -> int:
        """The error code; None deletes."""
        operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        resource = AlterConfigsResource(
            resource_type=resource_type,
            resource_name=resource_name,
            configs=[AlterableConfig(name=name, config_operation=operation, value=value)],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        return int(self.do(self.controller.incremental_alter_configs(request)).responses[0].error_code)
