"""A controller to ask things of, with what it decides replayed as the runtime would."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.metadata.features import NEW_CLUSTER_FEATURES, SUPPORTED_FEATURES
from penstock.metadata.image import MetadataImage
from penstock.model.ids import Uuid
from penstock.protocol.declaration import Message
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from penstock.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.protocol.messages.metadata_records import FeatureLevelRecord
from penstock.settings.node import NodeSettings

CLUSTER_ID = "a-cluster"


def node_settings(properties: Mapping[str, str] | None = None) -> NodeSettings:
    return NodeSettings.from_properties({"node.id": "1", "process.roles": "broker,controller", **(properties or {})})


def counted_ids(start: int = 1000) -> Callable[[], Uuid]:
    numbers = itertools.count(start)
    return lambda: next(numbers).to_bytes(16, "big")


def registration(
    broker_id: int, *, incarnation: int = 1, rack: str | None = None, cluster_id: str = CLUSTER_ID
) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=(broker_id * 1000 + incarnation).to_bytes(16, "big"),
        listeners=[Listener(name="PLAINTEXT", host=f"host-{broker_id}", port=9092, security_protocol=0)],
        features=[
            Feature(name=name, min_supported_version=levels.minimum, max_supported_version=levels.maximum)
            for name, levels in SUPPORTED_FEATURES.items()
        ],
        rack=rack,
        log_dirs=[(7_000_000 + broker_id).to_bytes(16, "big")],
    )


class World:
    def __init__(self, properties: Mapping[str, str] | None = None, *, brokers: int = 1) -> None:
        self.controller = Controller(node_settings(properties), CLUSTER_ID, counted_ids())
        self.controller.kraft_version = 1
        self.batches: list[list[Message]] = []
        self.offset = 0
        self.commit(
            [FeatureLevelRecord(name=name, feature_level=level) for name, level in NEW_CLUSTER_FEATURES.items()]
        )
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
        self.commit(result.records)
        return result.response

    def start_broker(self, broker_id: int, *, incarnation: int = 1, rack: str | None = None) -> int:
        """Registered and unfenced; its broker epoch."""
        request = registration(broker_id, incarnation=incarnation, rack=rack)
        epoch = self.do(self.controller.register_broker(request)).broker_epoch
        self.do(self.controller.unfence_broker(broker_id, epoch))
        return int(epoch)

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
