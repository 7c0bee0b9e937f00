"""DeleteShareGroupOffsets (API key 92). Delete the state of an empty share group for some topics."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Uuid


class DeleteShareGroupOffsetsRequest(Message, key=92, versions="0", flexible="0+"):
    group_id: str = field("0+")
    topics: list[Topic] = field("0+")


class Topic(Message):
    topic_name: str = field("0+")


class DeleteShareGroupOffsetsResponse(Message, key=92, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    responses: list[TopicResult] = field("0+")


class TopicResult(Message):
    topic_name: str = field("0+")
    topic_id: Uuid = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
