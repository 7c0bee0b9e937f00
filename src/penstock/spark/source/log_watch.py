"""Waits for new records with a fetch at the broker, at no cost.

A default trigger asks for the latest offsets nearly a hundred times a second. If nothing has arrived since the last
call, the answer waits for new records instead: a fetch at the end of each partition is parked at its leader, which
answers within a millisecond of a new record (under read_committed: of a committed one). A fetch may stay parked from
one call to the next, so this needs no thread, and nothing has to be stopped.
"""

from __future__ import annotations

import time

from penstock.client.errors import ClientError
from penstock.client.wire.admin.topics import by_topic
from penstock.client.wire.leaders import Leaders
from penstock.client.wire.log_offsets import READ_COMMITTED
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.spark.source.offsets import Offsets

_PARKED_SECONDS_MAX = 5.0


class LogWatch:
    def __init__(self, leaders: Leaders, isolation: int) -> None:
        self._leaders = leaders
        self._isolation = isolation
        self._parked: dict[int, list[TopicPartition]] = {}  # by broker, the partitions that a fetch is parked at

    def wait(self, ends: Offsets, seconds: float) -> bool:
        """True as soon as a partition may have another end than `ends` says; False after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            if not self._park(ends):
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for event in self._leaders.wait(left):
                self._parked.pop(event.broker_id, None)
                if event.error is not None or any(self._is_news(each.response, ends) for each in event.answers):
                    return True

    def _is_news(self, response: FetchResponse, ends: Offsets) -> bool:
        if response.error_code:
            return True
        for topic in response.responses:
            name = topic.topic or self._leaders.names.get(topic.topic_id, "")
            for data in topic.partitions:
                readable = data.last_stable_offset if self._isolation == READ_COMMITTED else data.high_watermark
                if data.error_code or readable > ends.get(TopicPartition(name, data.partition_index), -1):
                    return True
        return False

    def _park(self, ends: Offsets) -> bool:
        """Send a fetch to every leader that has none; False if that is not possible because leaders are moving."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in ends:
            leader = self._leaders.leader_of(partition)
            if leader is None:
                return False
            by_leader.setdefault(leader.broker_id, []).append(partition)
        for broker_id, partitions in by_leader.items():
            parked = self._parked.pop(broker_id, None)
            if parked is not None and parked != partitions:
                self._leaders.drop(broker_id)  # it would not report records of an added partition
            try:
                if parked != partitions:
                    self._leaders.channel(broker_id).send(self._request(partitions, ends), None)
            except ClientError:
                self._leaders.drop(broker_id)
                return False
            self._parked[broker_id] = partitions
        return True

    def _request(self, partitions: list[TopicPartition], ends: Offsets) -> FetchRequest:
        topics = [
            FetchTopic(
                topic=name,
                topic_id=self._leaders.topics[name].topic_id,
                partitions=[
                    FetchPartition(
                        partition=index, fetch_offset=ends[TopicPartition(name, index)], partition_max_bytes=1
                    )
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(partitions).items()
        ]
        parked = min(_PARKED_SECONDS_MAX, self._leaders.cluster.timeout / 2)
        return FetchRequest(
            max_wait_ms=int(parked * 1000), min_bytes=1, max_bytes=1, isolation_level=self._isolation, topics=topics
        )
