"""The client's half of a connection: bytes that come in any pieces, and peers that misbehave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ErrorCode
from penstock.protocol.apis import ApiKey
from penstock.protocol.codec import MalformedMessage, encode, join
from penstock.protocol.conversation import (
    GREETING_VERSION,
    KEPT_BUFFER_BYTES_MAX,
    RECEIVE_BUFFER_BYTES,
    RESPONSE_BYTES_MAX,
    Conversation,
    HandshakeRefused,
    ImplausibleLength,
)
from penstock.protocol.frames import read_request_header, response_parts
from penstock.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.protocol.primitives import Part

VERSION = 3


def feed(conversation: Conversation[str], data: bytes) -> None:
    while data:
        room = conversation.receive_buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        conversation.received(count)
        data = data[count:]


def reply(correlation_id: int, host: str) -> bytes:
    parts: list[Part] = []
    response = FindCoordinatorResponse(node_id=1, host=host, port=9092)
    response_parts(ApiKey.FIND_COORDINATOR, VERSION, correlation_id, response, parts)
    return join(parts)


def ask(conversation: Conversation[str], context: str) -> int:
    """The correlation id it was asked with."""
    conversation.request(FindCoordinatorRequest(key=context), context, VERSION)
    header, _ = read_request_header(conversation.take_outgoing(), 4)
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.FIND_COORDINATOR, VERSION, "test")
    return header.correlation_id


def asked_version(outgoing: bytes) -> int:
    header, _ = read_request_header(outgoing, 4)
    assert header.api_key == ApiKey.API_VERSIONS
    return header.api_version


def versions_reply(correlation_id: int, version: int, error_code: int = 0) -> bytes:
    keys = [ApiVersion(api_key=ApiKey.FIND_COORDINATOR, min_version=1, max_version=VERSION)]
    payload = correlation_id.to_bytes(4, "big") + encode(
        ApiVersionsResponse(error_code=error_code, api_keys=keys), version
    )
    return len(payload).to_bytes(4, "big") + payload


def test_the_handshake() -> None:
    conversation: Conversation[str] = Conversation("test")
    conversation.greet()
    assert asked_version(conversation.take_outgoing()) == GREETING_VERSION
    feed(conversation, versions_reply(1, GREETING_VERSION))
    assert conversation.next_answer() is None
    assert conversation.is_open
    assert conversation.version(ApiKey.FIND_COORDINATOR) == VERSION
    assert conversation.version(ApiKey.METADATA) is None


def test_a_broker_that_does_not_know_our_api_versions() -> None:
    conversation: Conversation[str] = Conversation("test")
    conversation.greet()
    conversation.take_outgoing()
    feed(conversation, versions_reply(1, 0, ErrorCode.UNSUPPORTED_VERSION))
    assert conversation.next_answer() is None
    assert not conversation.is_open
    assert asked_version(conversation.take_outgoing()) == 0
    feed(conversation, versions_reply(2, 0))
    assert conversation.next_answer() is None
    assert conversation.is_open


def test_a_handshake_that_is_refused() -> None:
    conversation: Conversation[str] = Conversation("test")
    conversation.greet()
    feed(conversation, versions_reply(1, 0, ErrorCode.UNSUPPORTED_VERSION))
    conversation.next_answer()
    feed(conversation, versions_reply(2, 0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    with pytest.raises(HandshakeRefused) as refused:
        conversation.next_answer()
    assert refused.value.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@given(
    hosts=st.lists(st.sampled_from(["a", "b" * 1000, "c" * (RECEIVE_BUFFER_BYTES // 3)]), max_size=6),
    cuts=st.lists(st.integers(1, 2 * RECEIVE_BUFFER_BYTES), max_size=8),
)
def test_responses_in_any_pieces(hosts: list[str], cuts: list[int]) -> None:
    conversation: Conversation[str] = Conversation("test")
    data = b"".join([reply(ask(conversation, str(number)), host) for number, host in enumerate(hosts)])
    found: list[tuple[str, str]] = []
    for cut in (*cuts, len(data)):
        feed(conversation, data[:cut])
        data = data[cut:]
        while (answer := conversation.next_answer()) is not None:
            found.append((answer.context, answer.response.host))
    assert found == [(str(number), host) for number, host in enumerate(hosts)]
    assert not conversation.sent


def test_an_answer_to_another_request() -> None:
    conversation: Conversation[str] = Conversation("test")
    first, second = ask(conversation, "first"), ask(conversation, "second")
    assert first != second
    feed(conversation, reply(second, "host"))
    with pytest.raises(MalformedMessage, match="correlation id"):
        conversation.next_answer()


def test_an_answer_to_nothing() -> None:
    conversation: Conversation[str] = Conversation("test")
    feed(conversation, reply(1, "host"))
    with pytest.raises(MalformedMessage):
        conversation.next_answer()


@pytest.mark.parametrize("length", [-1, 0, 3, RESPONSE_BYTES_MAX + 1, int.from_bytes(b"HTTP", "big")])
def test_an_implausible_length(length: int) -> None:
    conversation: Conversation[str] = Conversation("test")
    ask(conversation, "anything")
    feed(conversation, length.to_bytes(4, "big", signed=length < 0))
    with pytest.raises(ImplausibleLength):
        conversation.next_answer()


def test_a_request_that_is_not_answered() -> None:
    conversation: Conversation[str] = Conversation("test")
    conversation.request(FindCoordinatorRequest(key="x"), "unanswered", VERSION, is_answered=False)
    conversation.take_outgoing()
    feed(conversation, reply(ask(conversation, "answered"), "host"))
    answer = conversation.next_answer()
    assert answer is not None
    assert answer.context == "answered"


def test_a_large_buffer_is_not_kept() -> None:
    conversation: Conversation[str] = Conversation("test")
    ask(conversation, "large")
    feed(conversation, (KEPT_BUFFER_BYTES_MAX + 1).to_bytes(4, "big"))
    assert conversation.next_answer() is None
    assert len(conversation.receive_buffer()) == KEPT_BUFFER_BYTES_MAX + 1
    payload = (1).to_bytes(4, "big") + encode(FindCoordinatorResponse(host="h"), VERSION)
    feed(conversation, payload.ljust(KEPT_BUFFER_BYTES_MAX + 1, b"\0"))
    with pytest.raises(MalformedMessage):  # of what is behind the response
        conversation.next_answer()


def test_received_bytes_are_kept_for_those_who_ask() -> None:
    conversation: Conversation[str] = Conversation("test")
    data = b"".join([reply(ask(conversation, name), name) for name in ("first", "second")])
    feed(conversation, data)
    assert conversation.next_answer() is not None
    before = conversation.receive_buffer().obj
    conversation.keep_received()
    assert conversation.receive_buffer().obj is not before
    second = conversation.next_answer()
    assert second is not None
    assert second.response.host == "second"
