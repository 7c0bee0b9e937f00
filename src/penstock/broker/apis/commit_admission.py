"""Splits the partitions of an OffsetCommit or TxnOffsetCommit: the group shard decides about those that exist and that
the client may read; the others are refused one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.broker.net.request import Request
from penstock.metadata.image import MetadataImage
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.offset_commit import OffsetCommitRequestTopic, OffsetCommitResponseTopic
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestTopic, TxnOffsetCommitResponseTopic
from penstock.security.authorizer import Operation, topic_resource

Topic = TypeVar("Topic", OffsetCommitRequestTopic, TxnOffsetCommitRequestTopic)
Result = TypeVar("Result", OffsetCommitResponseTopic, TxnOffsetCommitResponseTopic)


def refuser(
    topic_result: Callable[..., Result], partition_result: Callable[..., object]
) -> Callable[[Any, ErrorCode], Result]:
    """The function that refuses all partitions of a topic: the two APIs answer with classes of the same fields."""

    def refuse(topic: Any, code: ErrorCode) -> Result:
        partitions = [
            partition_result(partition_index=each.partition_index, error_code=code) for each in topic.partitions
        ]
        return topic_result(name=topic.name, topic_id=topic.topic_id, partitions=partitions)

    return refuse


class Admission(Generic[Topic, Result]):
    def __init__(self, image: MetadataImage, request: Request, refuse: Callable[[Topic, ErrorCode], Result]) -> None:
        self._topics = image.topics
        self._request = request
        self._refuse: Callable[[Topic, ErrorCode], Result] = refuse
        self.known: list[Topic] = []
        self.refused: list[Result] = []

    def admit(self, topic: Topic, *, by_id: bool = False) -> None:
        """The topic gets both name and id."""
        found = self._topics.by_id(topic.topic_id) if by_id else self._topics.by_name(topic.name)
        if by_id and found is None:
            self.refused.append(self._refuse(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            return
        if by_id and found is not None:
            topic.name = found.name
        if not self._request.may(Operation.READ, topic_resource(topic.name)):
            self.refused.append(self._refuse(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif found is None:
            self.refused.append(self._refuse(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            topic.topic_id = found.topic_id
            wanted = topic.partitions
            topic.partitions = [each for each in wanted if each.partition_index not in found.partitions]
            if topic.partitions:
                self.refused.append(self._refuse(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [each for each in wanted if each.partition_index in found.partitions]
            if topic.partitions:
                self.known.append(topic)

    def add_refused(self, decided: list[Result]) -> None:
        """Each topic appears once, with all of its partitions."""
        by_name = {topic.name: topic for topic in decided}
        for topic in self.refused:
            if topic.name and topic.name in by_name:
                by_name[topic.name].partitions += topic.partitions
            else:
                decided.append(topic)
