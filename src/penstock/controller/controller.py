"""The controller: combines all handlers over one image.

The image here is ahead of the committed state: a handler's records are replayed as soon as they are appended, so that
the next handler sees them, while the answers wait for the commit. If the commit fails, `reset` returns to the last
committed image. All other state here is soft and may be lost at any time: the index of partitions, which follows from
the image; the heartbeat state; and the position of the placement.

Every controller is ready to take over. Inactive controllers replay into the same image and index (`follow`), so that a
failover costs an election and no scan of the partitions, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence

from penstock.controller import acls, leaders
from penstock.controller.alter_partition import alter_partition
from penstock.controller.brokers import BrokerHandlers
from penstock.controller.client_quotas import alter_client_quotas
from penstock.controller.configs import ConfigHandlers
from penstock.controller.controllers import register_controller, unregister_controller
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
from penstock.controller.scram import alter_user_scram_credentials
from penstock.controller.tokens import TokenHandlers
from penstock.controller.topics import Charge, TopicHandlers, free_of_charge
from penstock.controller.view import ClusterView
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from penstock.metadata.image import EMPTY_IMAGE, MetadataImage, ResourceType
from penstock.metadata.index import PartitionIndex
from penstock.model.ids import Uuid
from penstock.model.ownership import owned_by_loop
from penstock.protocol.declaration import Message
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from penstock.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from penstock.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
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
from penstock.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from penstock.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock.protocol.messages.metadata_records import AbortTransactionRecord, FeatureLevelRecord
from penstock.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from penstock.protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from penstock.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from penstock.security.principal import Principal
from penstock.security.tokens import TokenHmacs
from penstock.settings.explain import BrokerLayers
from penstock.settings.node import NodeSettings


@owned_by_loop()
class Controller:
    def __init__(
        self, settings: NodeSettings, cluster_id: str, new_id: Callable[[], Uuid], image: MetadataImage = EMPTY_IMAGE
    ) -> None:
        """`new_id` creates the ids of new topics."""
        self.image = image
        self.kraft_version = 0
        self._static = settings
        self._cluster_id = cluster_id
        self._new_id = new_id
        self._effective = settings
        self._effective_for: object = None
        # Always the index of `image`.
        self.index = PartitionIndex.of(image.topics)
        self.heartbeats = Heartbeats(settings.broker_session_timeout_ms, settings.penstock_broker_refused_ms)
        # Offsets at which brokers have replayed their registration, for brokers registered since the last reset.
        self._registered_at: dict[int, int] = {}
        self._reset_at = image.offset
        # The position for the placement of new partitions. It starts where the existing partitions would end.
        self._placement: Placement | None = None
        self._token_hmacs = TokenHmacs()

    # -- state ---------------------------------------------------------------------------------------------------------

    def replay(self, records: Sequence[Message], offset: int, epoch: int, timestamp_ms: int) -> MetadataDelta:
        """Replay the records of one batch, whose last is at `offset`; a control batch has none."""
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
        """Apply the changes of the active controller to this inactive one, so that a later takeover needs no scan of
        all partitions."""
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
        """This node's settings, including dynamic ones."""
        if self._effective_for is not self.image.configs:
            layers = self.layers
            self._effective = self._static.with_dynamic(layers.cluster, layers.broker)
            self._effective_for = self.image.configs
        return self._effective

    # -- actions without a request ---------------------------------------------------------------------------------

    def activate(self, bootstrap: Sequence[Message]) -> Result[None]:
        """The first action of a controller that has become active.

        `bootstrap`: the records of a new cluster, for an empty log. Otherwise this elects leaders for partitions that
        an earlier controller did not complete. A metadata transaction that an earlier controller began is aborted
        first: no other controller can end it.
        """
        if self.image.transaction is not None:
            return Unfinished([AbortTransactionRecord(reason="the controller that began it is gone")])
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
        """Periodic: move leadership back to preferred replicas. True if there may be more to do."""
        records, is_last = leaders.batch_of(leaders.preferred(self._view()))
        return Result(records, not is_last)

    def elect_unclean_leaders(self) -> Result[bool]:
        """Periodic: elect any replica of leaderless partitions, if the topic allows it. True if there may be more to
        do."""
        records, is_last = leaders.batch_of(leaders.unclean(self._view()))
        return Result(records, not is_last)

    # -- handlers ------------------------------------------------------------------------------------------------------

    def create_topics(
        self,
        request: CreateTopicsRequest,
        describable: Container[str] | None = None,
        charge: Charge = free_of_charge,
    ) -> Result[CreateTopicsResponse]:
        topics = self._topics(charge)
        result = topics.create_topics(request, describable)
        self._placement = topics.placement if result.records else self._placement
        return result

    def create_partitions(
        self, request: CreatePartitionsRequest, charge: Charge = free_of_charge
    ) -> Result[CreatePartitionsResponse]:
        topics = self._topics(charge)
        result = topics.create_partitions(request)
        self._placement = topics.placement if result.records else self._placement
        return result

    def delete_topics(
        self, request: DeleteTopicsRequest, charge: Charge = free_of_charge
    ) -> Result[DeleteTopicsResponse]:
        return self._topics(charge).delete_topics(request)

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> Result[IncrementalAlterConfigsResponse]:
        return self._configs().incremental_alter_configs(request)

    def alter_configs(self, request: AlterConfigsRequest) -> Result[AlterConfigsResponse]:
        return self._configs().alter_configs(request)

    def create_acls(self, request: CreateAclsRequest) -> Result[CreateAclsResponse]:
        return acls.create_acls(self.image, request, self._new_id)

    def delete_acls(self, request: DeleteAclsRequest) -> Result[DeleteAclsResponse]:
        return acls.delete_acls(self.image, request)

    def alter_client_quotas(self, request: AlterClientQuotasRequest) -> Result[AlterClientQuotasResponse]:
        return alter_client_quotas(self.image, request)

    def update_features(
        self, request: UpdateFeaturesRequest, voters: Collection[int] = ()
    ) -> Result[UpdateFeaturesResponse]:
        own_minimum = self._static.topic_defaults.min_insync_replicas
        others = [node_id for node_id in voters if node_id != self._static.node_id]
        return FeatureHandlers(self._view(), self.kraft_version, own_minimum, others).update_features(request)

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

    def unregister_controller(
        self, request: UnregisterControllerRequest, voters: Container[int]
    ) -> Result[UnregisterControllerResponse]:
        return unregister_controller(self.image, request, voters)

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

    def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> Result[AlterUserScramCredentialsResponse]:
        return alter_user_scram_credentials(self.image, request)

    def create_delegation_token(
        self, request: CreateDelegationTokenRequest, requester: Principal, now_ms: int, version: int
    ) -> Result[CreateDelegationTokenResponse]:
        return self._tokens(now_ms).create(request, requester, self._new_id(), version)

    def renew_delegation_token(
        self, request: RenewDelegationTokenRequest, principal: Principal, now_ms: int
    ) -> Result[RenewDelegationTokenResponse]:
        return self._tokens(now_ms).renew(request, principal)

    def expire_delegation_token(
        self, request: ExpireDelegationTokenRequest, principal: Principal, now_ms: int
    ) -> Result[ExpireDelegationTokenResponse]:
        return self._tokens(now_ms).expire(request, principal)

    def sweep_delegation_tokens(self, now_ms: int) -> Result[None]:
        return self._tokens(now_ms).sweep()

    # -- handler objects -----------------------------------------------------------------------------------------------

    def _tokens(self, now_ms: int) -> TokenHandlers:
        return TokenHandlers(self.image, self._static, now_ms, self._token_hmacs)

    def _topics(self, charge: Charge) -> TopicHandlers:
        if self._placement is None:
            self._placement = Placement(sum(len(topic.partitions) for topic in self.image.topics))
        placement = self._placement.copy()
        return TopicHandlers(
            self.image, self.settings, self.layers, new_id=self._new_id, placement=placement, charge=charge
        )

    def _configs(self) -> ConfigHandlers:
        return ConfigHandlers(self._view(), self._static, self.settings.topic_defaults)

    def _brokers(self) -> BrokerHandlers:
        return BrokerHandlers(self._view(), self._cluster_id, self.kraft_version)

    def _view(self) -> ClusterView:
        return ClusterView(self.image, self.index, self.settings.topic_defaults, self.heartbeats.awaited)
