"""The topic `_schemas`: made if it is missing, and read from its start, for as long as the registry runs."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.client.errors import BadSetting, TimedOut, Unreachable, raise_for
from penstock.client.wire.admin.configs import Configs, ResourceType
from penstock.client.wire.admin.topics import EARLIEST, Topics
from penstock.client.wire.closing import Closing
from penstock.client.wire.cluster import Cluster
from penstock.client.wire.leaders import STALE, Leader, Leaders, first_contact
from penstock.client.wire.log_offsets import READ_UNCOMMITTED, LogOffsets
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.records.batch import check_crc, iterate_headers
from penstock.records.record import Record, iterate_records

REPLICATION_FACTOR_MAX: Final = 3
_ANSWER_BYTES: Final = 8 * 1024 * 1024
_BATCH_BYTES_MAX: Final = 128 * 1024 * 1024
_FIND_S: Final = 10.0


def ensure_topic(bootstrap: str, topic: str, *, timeout: float) -> None:
    """Create the topic if there is none; refuse one that would lose schemas."""
    with Cluster(bootstrap, timeout=timeout) as cluster:
        topics = Topics(cluster)
        names = first_contact(cluster, lambda: {each.name for each in cluster.metadata().topics})
        if topic not in names:
            factor = min(REPLICATION_FACTOR_MAX, len(cluster.broker_ids()))
            try:
                topics.create(topic, partitions=1, replication_factor=factor, configs={"cleanup.policy": "compact"})
            except KafkaError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another node was faster
                    raise
        (found,) = topics.describe([topic])
        if len(found.partitions) != 1:
            raise BadSetting(f"{topic} has {len(found.partitions)} partitions; the registry needs a topic with one")
        policy = next(
            entry.value
            for entry in Configs(cluster).describe(ResourceType.TOPIC, topic)
            if entry.name == "cleanup.policy"
        )
        if policy != "compact":
            raise BadSetting(
                f"{topic} has cleanup.policy={policy}, which deletes schemas by age or size: set it to compact"
            )


class Chunk(NamedTuple):
    """What one fetch returned. `caught_up`: there was nothing beyond it at that time."""

    records: list[Record]
    next_offset: int
    caught_up: bool


class TopicReader(Closing):
    """Reads the topic's only partition. `read` waits for records; a moved leader is found by the next call."""

    def __init__(self, bootstrap: str, topic: str, *, timeout: float) -> None:
        self._partition = TopicPartition(topic, 0)
        self._leaders = Leaders(bootstrap, timeout=timeout)
        self._leaders.find([topic], patience=_FIND_S)
        self.position = LogOffsets(self._leaders, READ_UNCOMMITTED, timeout).at([self._partition], EARLIEST)[
            self._partition
        ]

    def close(self) -> None:
        self._leaders.close()

    def read(self, wait_s: float) -> Chunk:
        """The next records, or none after `wait_s`. ClientError or KafkaError if the leader does not answer."""
        try:
            data = self._fetch(wait_s)
        except (Unreachable, TimedOut):
            self._leaders.refresh()
            raise
        except KafkaError as error:
            if error.code in STALE:
                self._leaders.refresh()
            raise
        found: list[Record] = []
        records = data.records if isinstance(data.records, memoryview) else memoryview(b"")
        for place, header in iterate_headers(records):
            check_crc(records, place, header)
            if not header.is_control:
                batch = iterate_records(records, place, header, max_size=_BATCH_BYTES_MAX)
                found += [record for record in batch if record.offset >= self.position]
            self.position = max(self.position, header.next_offset)
        if not records:  # compaction may have left nothing up to the end
            self.position = max(self.position, data.high_watermark)
        return Chunk(found, self.position, self.position >= data.high_watermark)

    def _fetch(self, wait_s: float) -> PartitionData:
        leader, topic = self._leader(), self._partition.topic
        wanted = FetchPartition(
            partition=self._partition.partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=self.position,
            partition_max_bytes=_ANSWER_BYTES,
        )
        request = FetchRequest(
            max_wait_ms=int(wait_s * 1000),
            min_bytes=1,
            max_bytes=_ANSWER_BYTES,
            isolation_level=READ_UNCOMMITTED,
            topics=[FetchTopic(topic=topic, topic_id=self._leaders.topics[topic].topic_id, partitions=[wanted])],
        )
        answer = self._leaders.cluster.request_broker(leader.broker_id, request, FetchResponse)
        raise_for(answer.error_code, None, f"cannot read {self._partition}")
        ((data,),) = (topic.partitions for topic in answer.responses)
        raise_for(data.error_code, None, f"cannot read {self._partition} at offset {self.position}")
        return data

    def _leader(self) -> Leader:
        leader = self._leaders.leader_of(self._partition)
        if leader is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self._partition} has no leader")
        return leader
