"""DeleteTopics (API key 20). Delete topics, by name or by id."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Uuid


class DeleteTopicsRequest(Message, key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = field("6+")
    topic_names: list[str] = field("0-5", ignorable=True)
    timeout_ms: Int32 = field("0+")


class DeleteTopicState(Message):
    name: str | None = field("6+", nullable="6+", default=None)
    topic_id: Uuid = field("6+")


class DeleteTopicsResponse(Message, key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    responses: list[DeletableTopicResult] = field("0+")


class DeletableTopicResult(Message):
    name: str | None = field("0+", nullable="6+")
    topic_id: Uuid = field("6+", ignorable=True)
    error_code: Int16 = field("0+")
    error_message: str | None = field("5+", nullable="5+", default=None, ignorable=True)
