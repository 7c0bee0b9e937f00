"""The controller as a whole: the rooms put together over one image.

The image here runs ahead of what is committed: a handler's records are replayed as soon as they are appended, so that
the next handler sees them, while the answers wait for the commit. If the commit never comes, `reset` goes back to the
last image that was committed. Everything else here is soft: the index of partitions, which follows from the image; what
is remembered of heartbeats; and where placement goes on. It may be lost at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from penstock.controller import leaders
from penstock.controller.alter_partition import alter_partition
from penstock.controller.brokers import BrokerHandlers
from penstock.controller.configs import ConfigHandlers
from penstock.controller.controllers import register_controller
from penstock.controller.directories import assign_replicas_to_dirs
from penstock.controller.elect_leaders import elect_leaders
from penstock.controller.eligible import records_to_enable
from penstock.controller.features import FeatureHandlers
from penstock.controller.heartbeats import Heartbeats
from penstock.controller.lifecycle import LifecycleHandlers
from penstock.controller.placement import Placement
from penstock.controller.producer_ids import allocate_producer_ids
from penstock.controller.reassignments import alter_partition_reassignments, list_partition_reassignments
from penstock.controller.result import Result, Unfinished
from penstock.controller.topics import TopicHandlers
from penstock.controller.view import ClusterView
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from penstock.metadata.image import EMPTY_IMAGE, MetadataImage, ResourceType
from penstock.metadata.index import PartitionIndex
from penstock.model.ids import Uuid
from penstock.model.ownership import owned_by_loop
from penstock.protocol.declaration import Message
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from penstock.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from penstock.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from penstock.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from penstock.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock.protocol.messages.metadata_records import FeatureLevelRecord
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from penstock.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from penstock.settings.explain import BrokerLayers
from penstock.settings.node import NodeSettings


@owned_by_loop()
class Controller:
    def __init__(
        self, settings: NodeSettings, cluster_id: str, new_id: Callable[[], Uuid], image: MetadataImage = EMPTY_IMAGE
    ) -> None:
        """`new_id` makes the ids of new topics."""
        self.image = image
        self.kraft_version = 0
        self._static = settings
        self._cluster_id = cluster_id
        self._new_id = new_id
        self._effective = settings
        self._effective_for: object = None
        # Always that of the image.
        self.index = PartitionIndex.of(image.topics)
        self.heartbeats = Heartbeats(settings.broker_session_timeout_ms, settings.penstock_broker_refused_ms)
        # Offsets at which brokers have replayed their registration, for those registered since the last reset.
        self._registered_at: dict[int, int] = {}
        self._reset_at = image.offset
        # Where the placement of new partitions goes on. It begins where the partitions that exist would end.
        self._placement: Placement | None = None

    # -- state ---------------------------------------------------------------------------------------------------------

    def replay(self, records: Sequence[Message], offset: int, epoch: int, timestamp_ms: int) -> MetadataDelta:
        """The records of one batch, whose last is at `offset`; of a control batch, none."""
        delta = MetadataDelta(self.image)
        delta.replay_all(records)
        self.image = delta.apply(offset, epoch, timestamp_ms)
        self.index.apply(delta, self.image.topics)
        for broker_id in delta.changed_brokers:
            before, after = delta.image.brokers.get(broker_id), self.image.brokers.get(broker_id)
            if before is None or after is None or before.epoch != after.epoch:
                self.heartbeats.forget(broker_id)
                self._registered_at[broker_id] = offset
            elif after.fenced and not before.fenced:
                self.heartbeats.fenced(broker_id)
        return delta

    def follow(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """What the active controller, another one, has made of this one's image: taking over then costs no walk over
        all partitions there are."""
        assert delta.image is self.image
        self.image = image
        self.index.apply(delta, image.topics)

    def reset(self, image: MetadataImage) -> None:
        self.index.move(self.image.topics, image.topics)
        self.image = image
        self._placement = None
        self._registered_at = {}
        self._reset_at = image.offset

    @property
    def layers(self) -> BrokerLayers:
        return BrokerLayers(
            self._static.properties,
            self.image.config(ResourceType.BROKER, ""),
            self.image.config(ResourceType.BROKER, str(self._static.node_id)),
        )

    @property
    def settings(self) -> NodeSettings:
        """This node's settings, dynamic ones included."""
        if self._effective_for is not self.image.configs:
            layers = self.layers
            self._effective = self._static.with_dynamic(layers.cluster, layers.broker)
            self._effective_for = self.image.configs
        return self._effective

    # -- of itself -----------------------------------------------------------------------------------------------------

    def activate(self, bootstrap: Sequence[Message]) -> Result[None]:
        """What a controller does first that has just become the active one.

        `bootstrap`: what a new cluster begins with, where the log is still empty. Otherwise leaders are found for
        partitions that a controller before did not get to.
        """
        if self.image.metadata_version == 0:
            levels = {
                record.name: record.feature_level for record in bootstrap if isinstance(record, FeatureLevelRecord)
            }
            records = list(bootstrap)
            if levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION):
                records += records_to_enable(self.image, self._static.topic_defaults.min_insync_replicas)
            return Result(records, None)
        records, is_last = leaders.batch_of(leaders.online(self._view()))
        return Result(records, None) if is_last else Unfinished(records)

    def balance_leaders(self) -> Result[bool]:
        """Once in a while: leadership goes back to preferred replicas. True if there may be more to do."""
        records, is_last = leaders.batch_of(leaders.preferred(self._view()))
        return Result(records, not is_last)

    def elect_unclean_leaders(self) -> Result[bool]:
        """Once in a while: for topics that allow it, any leader rather than none. True if there may be more to do."""
        records, is_last = leaders.batch_of(leaders.unclean(self._view()))
        return Result(records, not is_last)

    # -- handlers ------------------------------------------------------------------------------------------------------

    def create_topics(
        self, request: CreateTopicsRequest, describable: Container[str] | None = None
    ) -> Result[CreateTopicsResponse]:
        topics = self._topics()
        result = topics.create_topics(request, describable)
        self._placement = topics.placement if result.records else self._placement
        return result

    def create_partitions(self, request: CreatePartitionsRequest) -> Result[CreatePartitionsResponse]:
        topics = self._topics()
        result = topics.create_partitions(request)
        self._placement = topics.placement if result.records else self._placement
        return result

    def delete_topics(self, request: DeleteTopicsRequest) -> Result[DeleteTopicsResponse]:
        return self._topics().delete_topics(request)

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> Result[IncrementalAlterConfigsResponse]:
        return self._configs().incremental_alter_configs(request)

    def alter_configs(self, request: AlterConfigsRequest) -> Result[AlterConfigsResponse]:
        return self._configs().alter_configs(request)

    def update_features(self, request: UpdateFeaturesRequest) -> Result[UpdateFeaturesResponse]:
        own_minimum = self._static.topic_defaults.min_insync_replicas
        return FeatureHandlers(self._view(), self.kraft_version, own_minimum).update_features(request)

    def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> Result[AllocateProducerIdsResponse]:
        return allocate_producer_ids(self.image, self._brokers(), request)

    def register_broker(
        self, request: BrokerRegistrationRequest, *, session_alive: bool = False
    ) -> Result[BrokerRegistrationResponse]:
        if not session_alive:
            self.heartbeats.registers(request.broker_id)
        return self._brokers().register_broker(request, session_alive=session_alive)

    def unfence_broker(self, broker_id: int, broker_epoch: int) -> Result[None]:
        return self._brokers().unfence_broker(broker_id, broker_epoch)

    def fence_broker(self, broker_id: int, broker_epoch: int) -> Result[None]:
        return self._brokers().fence_broker(broker_id, broker_epoch)

    def unregister_broker(self, request: UnregisterBrokerRequest) -> Result[UnregisterBrokerResponse]:
        return self._brokers().unregister_broker(request)

    def broker_heartbeat(self, request: BrokerHeartbeatRequest, now_ms: int) -> Result[BrokerHeartbeatResponse]:
        registered_at = self._registered_at.get(request.broker_id, self._reset_at)
        view = self._view()
        brokers = BrokerHandlers(view, self._cluster_id, self.kraft_version)
        return LifecycleHandlers(view, brokers, self.heartbeats).broker_heartbeat(request, registered_at, now_ms)

    def register_controller(self, request: ControllerRegistrationRequest) -> Result[ControllerRegistrationResponse]:
        return register_controller(request)

    def alter_partition(self, request: AlterPartitionRequest) -> Result[AlterPartitionResponse]:
        return alter_partition(self._view(), request)

    def elect_leaders(self, request: ElectLeadersRequest) -> Result[ElectLeadersResponse]:
        return elect_leaders(self._view(), request)

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> Result[AlterPartitionReassignmentsResponse]:
        return alter_partition_reassignments(self._view(), request)

    def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> Result[ListPartitionReassignmentsResponse]:
        return list_partition_reassignments(self._view(), request)

    def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> Result[AssignReplicasToDirsResponse]:
        return assign_replicas_to_dirs(self._view(), request)

    # -- rooms ---------------------------------------------------------------------------------------------------------

    def _topics(self) -> TopicHandlers:
        if self._placement is None:
            self._placement = Placement(sum(len(topic.partitions) for topic in self.image.topics))
        placement = self._placement.copy()
        return TopicHandlers(self.image, self.settings, self.layers, new_id=self._new_id, placement=placement)

    def _configs(self) -> ConfigHandlers:
        return ConfigHandlers(self._view(), self._static, self.settings.topic_defaults)

    def _brokers(self) -> BrokerHandlers:
        return BrokerHandlers(self._view(), self._cluster_id, self.kraft_version)

    def _view(self) -> ClusterView:
        return ClusterView(self.image, self.index, self.settings.topic_defaults, self.heartbeats.awaited)
