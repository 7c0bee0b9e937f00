"""Requests to share coordinators: questions of this broker to any of them, and the answers of those on this broker.

The five APIs of the share coordinator have one form: a request names share partitions of one group, and the response
has a result for each. Each share partition may have another coordinator, so a question is about one. Questions of the
same turn of the event loop that go to the same broker go in one request.

A question is asked again, for a while, if its coordinator has moved or is not ready. Questions about the same share
partition may then overtake each other: the caller asks one at a time where the order matters.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.broker.coordinators.coordinator import Coordinator
from penstock.broker.coordinators.questions import Gathering
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.metadata.brokers import Brokers
from penstock.broker.net.peers import PeerFailed
from penstock.coordinator.decision import Decision
from penstock.metadata.image import Metadata
from penstock.model.errors import ErrorCode
from penstock.model.topics import SHARE_GROUP_STATE
from penstock.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from penstock.settings.live import LiveSettings
from penstock.share_state.key import SharePartitionKey
from penstock.share_state.shard import ShareStateShard

CHANNEL: Final = "shares"
BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 1.0
PATIENCE_S: Final = 10.0

# The answers after which a question is asked again.
_MAY_PASS: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class StateApi(NamedTuple):
    """One of the APIs: its messages, and the operation of the shard that answers for one share partition."""

    request: Any
    topic: Any
    response: Any
    topic_result: Any
    result: Any
    operation: Callable[[ShareStateShard, SharePartitionKey, Any, Waiting, int], Decision]
    writes: bool = True

    def refusal(self, request: Any, code: ErrorCode) -> Any:
        """The answer with the same error for everything that was asked for."""
        return self.response(
            results=[
                self.topic_result(
                    topic_id=topic.topic_id,
                    partitions=[
                        self.result(partition=part.partition, error_code=code, error_message=code.text)
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


INITIALIZE: Final = StateApi(
    initialize_share_group_state.InitializeShareGroupStateRequest,
    initialize_share_group_state.InitializeStateData,
    initialize_share_group_state.InitializeShareGroupStateResponse,
    initialize_share_group_state.InitializeStateResult,
    initialize_share_group_state.PartitionResult,
    ShareStateShard.initialize,
)
READ: Final = StateApi(
    read_share_group_state.ReadShareGroupStateRequest,
    read_share_group_state.ReadStateData,
    read_share_group_state.ReadShareGroupStateResponse,
    read_share_group_state.ReadStateResult,
    read_share_group_state.PartitionResult,
    ShareStateShard.read,
)
WRITE: Final = StateApi(
    write_share_group_state.WriteShareGroupStateRequest,
    write_share_group_state.WriteStateData,
    write_share_group_state.WriteShareGroupStateResponse,
    write_share_group_state.WriteStateResult,
    write_share_group_state.PartitionResult,
    ShareStateShard.write,
)
DELETE: Final = StateApi(
    delete_share_group_state.DeleteShareGroupStateRequest,
    delete_share_group_state.DeleteStateData,
    delete_share_group_state.DeleteShareGroupStateResponse,
    delete_share_group_state.DeleteStateResult,
    delete_share_group_state.PartitionResult,
    ShareStateShard.delete,
)
SUMMARY: Final = StateApi(
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
    read_share_group_state_summary.ReadStateSummaryData,
    read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
    read_share_group_state_summary.ReadStateSummaryResult,
    read_share_group_state_summary.PartitionResult,
    ShareStateShard.summary,
    writes=False,
)


@dataclass(slots=True, eq=False)
class _Question:
    api: StateApi
    key: SharePartitionKey
    # The part of the request about this share partition.
    part: Any
    done: Callable[[Any], None]
    until: float
    backoff: float = field(default=BACKOFF_MIN_S, init=False)


class ShareStates:
    def __init__(
        self,
        shares: Coordinator[ShareStateShard],
        *,
        settings: LiveSettings,
        loop: asyncio.AbstractEventLoop,
        metadata: Metadata,
        brokers: Brokers,
        create_topic: Callable[[str], None],
    ) -> None:
        """`create_topic` requests an internal topic from the controller."""
        self._shares = shares
        self._settings = settings
        self._loop = loop
        self._metadata = metadata
        self._brokers = brokers
        self._create_topic = create_topic
        # Questions that leave at the end of this turn of the event loop, by broker, API and group.
        self._outbox: dict[tuple[int, StateApi, str], list[_Question]] = {}
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True

    # -- answers of coordinators on this broker ------------------------------------------------------------------------

    def answer(self, api: StateApi, request: Any, answer: Callable[[Any], None]) -> None:
        """Answer a request for share partitions whose coordinators should be here."""
        response = api.response()
        questions = []
        if request.group_id.strip():
            for topic in request.topics:
                result = api.topic_result(topic_id=topic.topic_id)
                response.results.append(result)
                for part in topic.partitions:
                    key = SharePartitionKey(request.group_id, topic.topic_id, part.partition)
                    questions.append((key, part, result.partitions))
        gathering = Gathering(len(questions), lambda: answer(response))

        def ask_for(key: SharePartitionKey, part: Any, results: list[Any]) -> None:
            def answered(result: Any) -> None:
                results.append(result)
                gathering.one_more()

            self._submit(api, key, part, answered)

        for question in questions:
            ask_for(*question)

    def _submit(self, api: StateApi, key: SharePartitionKey, part: Any, done: Callable[[Any], None]) -> None:
        self._shares.submit(
            str(key),
            lambda shard, token, now_ms: api.operation(shard, key, part, token, now_ms),
            Waiting(done, lambda code: api.result(partition=part.partition, error_code=code, error_message=code.text)),
            writes=api.writes,
            is_current=True,  # a leader that starts with an old state delivers acknowledged records again
        )

    # -- questions -----------------------------------------------------------------------------------------------------

    def ask(
        self,
        api: StateApi,
        key: SharePartitionKey,
        part: Any,
        done: Callable[[Any], None],
        patience: float = PATIENCE_S,
    ) -> None:
        """Ask the coordinator of a share partition; `done` gets its result, now or later.

        part: what the request says about the share partition. patience: for how many seconds to ask again.
        """
        self._ask(_Question(api, key, part, done, self._loop.time() + patience))

    def _ask(self, question: _Question) -> None:
        image = self._metadata.image
        partition = image.topics.partition(SHARE_GROUP_STATE, self._shares.partition_of(str(question.key)))
        if partition is None:
            if image.topics.by_name(SHARE_GROUP_STATE) is None:
                self._create_topic(SHARE_GROUP_STATE)
            self._refuse(question, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        leader = image.brokers.get(partition.leader)
        if leader is None or leader.fenced:
            self._refuse(question, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif leader.broker_id == self._settings.static.node_id:
            self._submit(question.api, question.key, question.part, lambda result: self._answered(question, result))
        else:
            if not self._outbox:
                self._loop.call_soon(self._send)
            outgoing = self._outbox.setdefault((leader.broker_id, question.api, question.key.group_id), [])
            outgoing.append(question)

    def _send(self) -> None:
        outbox, self._outbox = self._outbox, {}
        for (broker_id, api, group_id), questions in outbox.items():
            self._send_to(broker_id, api, group_id, questions)

    def _send_to(self, broker_id: int, api: StateApi, group_id: str, questions: list[_Question]) -> None:
        topics: dict[bytes, Any] = {}
        asked: dict[tuple[bytes, int], deque[_Question]] = {}
        for question in questions:
            topic_id = question.key.topic_id
            if topic_id not in topics:
                topics[topic_id] = api.topic(topic_id=topic_id)
            topics[topic_id].partitions.append(question.part)
            asked.setdefault((topic_id, question.key.partition), deque()).append(question)

        def done(outcome: Any) -> None:
            if not isinstance(outcome, PeerFailed):
                for topic in outcome.results:
                    for result in topic.partitions:
                        waiting = asked.get((topic.topic_id, result.partition))
                        if waiting:
                            self._answered(waiting.popleft(), result)
            for waiting in asked.values():
                for question in waiting:
                    self._refuse(question, ErrorCode.NETWORK_EXCEPTION)

        peer = self._brokers.peer(broker_id, CHANNEL)
        if peer is None:
            self._loop.call_soon(done, PeerFailed(f"broker {broker_id} has no listener for brokers"))
            return
        request = api.request(group_id=group_id, topics=list(topics.values()))
        peer.send(request, done, timeout=self._settings.now.request_timeout_ms / 1000)

    def _refuse(self, question: _Question, code: ErrorCode) -> None:
        result = question.api.result(partition=question.key.partition, error_code=code, error_message=code.text)
        self._loop.call_soon(self._answered, question, result)

    def _answered(self, question: _Question, result: Any) -> None:
        if self._is_closed:
            return
        if result.error_code in _MAY_PASS and self._loop.time() + question.backoff <= question.until:
            self._loop.call_later(question.backoff, self._ask_again, question)
            question.backoff = min(2 * question.backoff, BACKOFF_MAX_S)
        else:
            question.done(result)

    def _ask_again(self, question: _Question) -> None:
        if not self._is_closed:
            self._ask(question)
