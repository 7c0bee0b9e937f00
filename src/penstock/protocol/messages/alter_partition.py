"""AlterPartition (API key 56). A partition leader asks the controller to change the ISR."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32, Int64, Uuid


class AlterPartitionRequest(Message, key=56, versions="2-3", flexible="0+"):
    broker_id: Int32 = field("0+")
    broker_epoch: Int64 = field("0+", default=-1)
    topics: list[AlterPartitionRequestTopicData] = field("0+")


class AlterPartitionRequestTopicData(Message):
    topic_id: Uuid = field("2+", ignorable=True)
    partitions: list[AlterPartitionRequestPartitionData] = field("0+")


class AlterPartitionRequestPartitionData(Message):
    partition_index: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    new_isr: list[Int32] = field("0-2")
    new_isr_with_epochs: list[BrokerState] = field("3+")
    leader_recovery_state: Int8 = field("1+")
    partition_epoch: Int32 = field("0+")


class BrokerState(Message):
    broker_id: Int32 = field("3+")
    broker_epoch: Int64 = field("3+", default=-1)


class AlterPartitionResponse(Message, key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    topics: list[AlterPartitionResponseTopicData] = field("0+")


class AlterPartitionResponseTopicData(Message):
    topic_id: Uuid = field("2+", ignorable=True)
    partitions: list[AlterPartitionResponsePartitionData] = field("0+")


class AlterPartitionResponsePartitionData(Message):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    isr: list[Int32] = field("0+")
    leader_recovery_state: Int8 = field("1+", ignorable=True)
    partition_epoch: Int32 = field("0+")
