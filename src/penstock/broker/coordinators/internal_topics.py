"""The internal topics of the coordinators, created on first use.

The broker asks the controller to create them with the configured replication factor. While there are fewer brokers than
that, the controller refuses; clients get COORDINATOR_NOT_AVAILABLE and retry.
"""

from __future__ import annotations

from typing import Final

from penstock.model.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from penstock.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from penstock.settings.node import NodeSettings

INT16_MAX: Final = 0x7FFF


def internal_topic(name: str, settings: NodeSettings) -> CreatableTopic:
    """The topic to request from the controller."""
    # A single-node cluster never has other brokers to replicate to.
    replicas_max = 1 if settings.is_alone else INT16_MAX
    if name == CONSUMER_OFFSETS:
        return CreatableTopic(
            name=name,
            num_partitions=settings.offsets_topic_num_partitions,
            replication_factor=min(replicas_max, settings.offsets_topic_replication_factor),
            configs=_configs(
                {
                    "cleanup.policy": "compact",
                    "segment.bytes": str(settings.offsets_topic_segment_bytes),
                    "compression.type": "producer",
                }
            ),
        )
    if name == SHARE_GROUP_STATE:
        return CreatableTopic(
            name=name,
            num_partitions=settings.share_coordinator_state_topic_num_partitions,
            replication_factor=min(replicas_max, settings.share_coordinator_state_topic_replication_factor),
            configs=_configs(
                {
                    # The coordinator deletes what it no longer needs.
                    "cleanup.policy": "delete",
                    "retention.ms": "-1",
                    "compression.type": "producer",
                    "min.insync.replicas": str(min(replicas_max, settings.share_coordinator_state_topic_min_isr)),
                    "segment.bytes": str(settings.share_coordinator_state_topic_segment_bytes),
                }
            ),
        )
    return CreatableTopic(
        name=name,
        num_partitions=settings.transaction_state_log_num_partitions,
        replication_factor=min(replicas_max, settings.transaction_state_log_replication_factor),
        configs=_configs(
            {
                "unclean.leader.election.enable": "false",
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": str(min(replicas_max, settings.transaction_state_log_min_isr)),
                "segment.bytes": str(settings.transaction_state_log_segment_bytes),
            }
        ),
    )


def _configs(values: dict[str, str]) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=name, value=value) for name, value in values.items()]
