"""The controller as a whole: the rooms put together over one image.

The image here runs ahead of what is committed: a handler's records are replayed as soon as they are appended, so that
the next handler sees them, while the answers wait for the commit. If the commit never comes, `reset` goes back to the
last image that was committed. There is no other state; all of it is a pure function of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from penstock.controller.brokers import BrokerHandlers
from penstock.controller.configs import ConfigHandlers
from penstock.controller.features import FeatureHandlers
from penstock.controller.producer_ids import allocate_producer_ids
from penstock.controller.result import Result
from penstock.controller.topics import TopicHandlers
from penstock.controller.view import ClusterView
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import EMPTY_IMAGE, MetadataImage, ResourceType
from penstock.metadata.index import PartitionIndex
from penstock.model.ids import Uuid
from penstock.protocol.declaration import Message
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from penstock.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from penstock.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from penstock.settings.explain import BrokerLayers
from penstock.settings.node import NodeSettings


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
        # Soft: made from the image when it is first asked for, and then moved along with it.
        self._index: PartitionIndex | None = None
        # Soft: where the placement of new partitions goes on. It begins where the partitions that exist would end.
        self._placed: int | None = None

    # -- state ---------------------------------------------------------------------------------------------------------

    def replay(self, records: Sequence[Message], offset: int, epoch: int, timestamp_ms: int) -> MetadataDelta:
        """The records of one batch, whose last is at `offset`; of a control batch, none."""
        delta = MetadataDelta(self.image)
        delta.replay_all(records)
        self.image = delta.apply(offset, epoch, timestamp_ms)
        if self._index is not None:
            self._index.apply(delta, self.image.topics)
        return delta

    def reset(self, image: MetadataImage) -> None:
        if self._index is not None:
            self._index.move(self.image.topics, image.topics)
        self.image = image
        self._placed = None

    @property
    def index(self) -> PartitionIndex:
        if self._index is None:
            self._index = PartitionIndex.of(self.image.topics)
        return self._index

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

    # -- handlers ------------------------------------------------------------------------------------------------------

    def create_topics(
        self, request: CreateTopicsRequest, describable: Container[str] | None = None
    ) -> Result[CreateTopicsResponse]:
        topics = self._topics()
        result = topics.create_topics(request, describable)
        self._placed = topics.placed if result.records else self._placed
        return result

    def create_partitions(self, request: CreatePartitionsRequest) -> Result[CreatePartitionsResponse]:
        topics = self._topics()
        result = topics.create_partitions(request)
        self._placed = topics.placed if result.records else self._placed
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
        return FeatureHandlers(self.image, self.kraft_version).update_features(request)

    def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> Result[AllocateProducerIdsResponse]:
        return allocate_producer_ids(self.image, self._brokers(), request)

    def register_broker(
        self, request: BrokerRegistrationRequest, *, session_alive: bool = False
    ) -> Result[BrokerRegistrationResponse]:
        return self._brokers().register_broker(request, session_alive=session_alive)

    def unfence_broker(self, broker_id: int, broker_epoch: int) -> Result[None]:
        return self._brokers().unfence_broker(broker_id, broker_epoch)

    def fence_broker(self, broker_id: int, broker_epoch: int) -> Result[None]:
        return self._brokers().fence_broker(broker_id, broker_epoch)

    def unregister_broker(self, request: UnregisterBrokerRequest) -> Result[UnregisterBrokerResponse]:
        return self._brokers().unregister_broker(request)

    def _topics(self) -> TopicHandlers:
        if self._placed is None:
            self._placed = sum(len(topic.partitions) for topic in self.image.topics)
        return TopicHandlers(self.image, self.settings, self.layers, new_id=self._new_id, placed=self._placed)

    def _configs(self) -> ConfigHandlers:
        return ConfigHandlers(self.image, self._static, self.settings.topic_defaults)

    def _brokers(self) -> BrokerHandlers:
        return BrokerHandlers(self._view(), self._cluster_id, self.kraft_version)

    def _view(self) -> ClusterView:
        return ClusterView(self.image, self.index, self.settings.topic_defaults)
