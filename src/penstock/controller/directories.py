"""AssignReplicasToDirs: a broker reports the log directory of each of its replicas (KIP-858).

From this the controller knows which replicas a broken disk takes away, and whether a broker that returns still has the
directories that it had.

A directory that a broker no longer has may return with the next start, so its replicas keep it until another directory
is reported. Meanwhile they cannot lead. If the broker reports such a replica in another directory, it has recreated the
replica there, empty, on a replaced disk: the replica is no longer trusted. Brokers report this before they ask to be
unfenced. A replica whose directory was never reported is not trusted after a restart that misses any directory
(`leaders.when_replaced`). Without ELR, the ISR may then be empty. Kafka does not do this: it elects the empty replica,
and the others truncate their logs to nothing.
"""

from __future__ import annotations

from penstock.controller.elections import Wanted
from penstock.controller.result import Result
from penstock.controller.view import ClusterView
from penstock.metadata.cluster import BrokerRegistration
from penstock.metadata.topics import Topic
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.declaration import Message
from penstock.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from penstock.protocol.messages.metadata_records import PartitionChangeRecord


def assign_replicas_to_dirs(
    view: ClusterView, request: AssignReplicasToDirsRequest
) -> Result[AssignReplicasToDirsResponse]:
    view.check_broker(request.broker_id, request.broker_epoch)
    broker = view.image.brokers[request.broker_id]
    records: list[Message] = []
    response = AssignReplicasToDirsResponse()
    seen: set[tuple[Uuid, int]] = set()
    for directory in request.directories:
        topics = []
        for asked in directory.topics:
            results = []
            for entry in asked.partitions:
                result = AssignReplicasToDirsResponsePartitionData(partition_index=entry.partition_index)
                results.append(result)
                key = (asked.topic_id, entry.partition_index)
                try:
                    if key in seen:
                        raise KafkaError(ErrorCode.INVALID_REQUEST, "A partition is named twice.")
                    seen.add(key)
                    topic = view.image.topics.by_id(asked.topic_id)
                    change = _assign(view, broker, topic, entry.partition_index, directory.id)
                    if change is not None:
                        records.append(change)
                except KafkaError as error:
                    result.error_code = error.code
            topics.append(AssignReplicasToDirsResponseTopicData(topic_id=asked.topic_id, partitions=results))
        response.directories.append(AssignReplicasToDirsResponseDirectoryData(id=directory.id, topics=topics))
    return Result(records, response)


def _assign(
    view: ClusterView, broker: BrokerRegistration, topic: Topic | None, partition_id: int, directory: Uuid
) -> PartitionChangeRecord | None:
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(partition_id)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    broker_id = broker.broker_id
    if broker_id not in partition.replicas:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    former = partition.directory_of(broker_id)
    began_anew = directory != former and not broker.has_online(former)
    isr = partition.isr
    if began_anew or not broker.has_online(directory):
        isr = tuple(member for member in isr if member != broker_id)
    wanted = Wanted(
        isr=isr,
        directories={broker_id: directory},
        emptied=(broker_id,) if began_anew else (),
    )
    return view.change_and_elect(topic, partition_id, wanted)
