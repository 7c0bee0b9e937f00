"""Incremental fetch sessions (KIP-227): a client names its partitions once, and later only the changes.

For each partition, a session remembers the client's request and the last answer, so that a reply can omit partitions
without news. The cache has a fixed number of slots (`max.incremental.fetch.session.cache.slots`). A full cache evicts
its least recently used session if that has been unused for `EVICTION_AGE_MS`. Otherwise the new client gets no session
and continues with full fetches.

Pure: the caller provides the time and the random session id.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.model.ownership import owned_by_loop
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
EVICTION_AGE_MS = 120_000

# A topic is identified by its name (below version 13) or by its id (from 13 on); a session uses only one of the two.
TopicKey = str | Uuid
PartitionKey = tuple[TopicKey, int]


@owned_by_loop()
@dataclass(slots=True)
class SessionPartition:
    """The request for one partition and its last answer."""

    topic: TopicKey
    request: FetchPartition
    name: str | None = None  # the topic's name, once its id was resolved
    high_watermark: int = -1
    log_start_offset: int = -1

    def has_news(self, data: PartitionData) -> bool:
        """Whether an answer must contain this partition; remembers the answer."""
        news = bool(
            data.records
            or data.error_code
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or data.diverging_epoch is not None
            or data.preferred_read_replica >= 0
        )
        if data.error_code or data.diverging_epoch is not None:
            self.high_watermark = -1  # so that the partition is reported again once that is gone
        else:
            self.high_watermark = data.high_watermark
            self.log_start_offset = data.log_start_offset
        return news


@owned_by_loop()
class Session:
    __slots__ = ("by_id", "epoch", "id", "last_used_ms", "partitions")

    def __init__(self, session_id: int, by_id: bool, now_ms: int) -> None:
        self.id = session_id
        self.by_id = by_id
        self.epoch = 1
        self.last_used_ms = now_ms
        self.partitions: OrderedDict[PartitionKey, SessionPartition] = OrderedDict()

    def update(self, request: FetchRequest) -> None:
        for forgotten in request.forgotten_topics_data:
            topic: TopicKey = forgotten.topic_id if self.by_id else forgotten.topic
            for index in forgotten.partitions:
                self.partitions.pop((topic, index), None)
        for partition in requested(request, self.by_id):
            key = (partition.topic, partition.request.partition)
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = partition
            else:
                known.request = partition.request

    def rotate(self, answered: list[PartitionKey]) -> None:
        """Move partitions that just got data to the end, so that a size limit starves no partition."""
        for key in answered:
            if key in self.partitions:
                self.partitions.move_to_end(key)


def requested(request: FetchRequest, by_id: bool) -> list[SessionPartition]:
    return [
        SessionPartition(topic.topic_id if by_id else topic.topic, partition)
        for topic in request.topics
        for partition in topic.partitions
    ]


@dataclass(slots=True)
class FetchContext:
    """The partitions of one request, and its session if it has one."""

    partitions: list[SessionPartition]
    session: Session | None
    is_incremental: bool

    @property
    def session_id(self) -> int:
        return self.session.id if self.session is not None else NO_SESSION


@owned_by_loop()
class FetchSessions:
    def __init__(self, slots: int, new_id: Callable[[], int]) -> None:
        self._slots = slots
        self._new_id = new_id
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, version: int, now_ms: int) -> FetchContext:
        """The context of a request; raises KafkaError for a session that is unknown or out of step."""
        by_id = version >= 13
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                self._sessions.pop(request.session_id, None)
            partitions = requested(request, by_id)
            session = None
            if request.session_epoch == INITIAL_EPOCH and partitions:
                session = self._create(by_id, partitions, now_ms)
            return FetchContext(partitions, session, is_incremental=False)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request)
        session.epoch = 1 if session.epoch == 0x7FFFFFFF else session.epoch + 1
        session.last_used_ms = now_ms
        if not session.partitions:
            del self._sessions[session.id]
            return FetchContext([], None, is_incremental=True)
        self._sessions.move_to_end(session.id)
        return FetchContext(list(session.partitions.values()), session, is_incremental=True)

    def close(self, session: Session) -> None:
        self._sessions.pop(session.id, None)

    def _create(self, by_id: bool, partitions: list[SessionPartition], now_ms: int) -> Session | None:
        if len(self._sessions) >= self._slots and not self._evict(now_ms):
            return None
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        session = Session(session_id, by_id, now_ms)
        for partition in partitions:
            session.partitions[(partition.topic, partition.request.partition)] = partition
        self._sessions[session_id] = session
        return session

    def _evict(self, now_ms: int) -> bool:
        if not self._sessions:
            return False  # no slots at all
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms < EVICTION_AGE_MS:
            return False
        del self._sessions[oldest.id]
        return True
