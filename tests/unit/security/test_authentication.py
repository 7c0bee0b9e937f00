"""The authentication of a connection: what Kafka answers in each state."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.codec import decode
from penstock.protocol.declaration import Message
from penstock.protocol.frames import encode_request, response_header_version
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.security.credentials import ScramMechanism, new_credential
from penstock.security.principal import Principal
from penstock.security.sasl.authentication import Authentication, Close, Mechanism, PassOn, Send, Step, Verify
from penstock.security.sasl.bearer_tokens import BearerToken, InvalidToken
from penstock.security.sasl.exchange import AuthenticationFailed
from penstock.security.sasl.oauthbearer import OAuthBearerServer
from penstock.security.sasl.plain import PlainServer, known_users
from penstock.security.sasl.scram import ScramClient, ScramServer

CORRELATION_ID = 7
SOFTWARE = ApiVersionsRequest(client_software_name="test", client_software_version="1")
PASSWORD = b"\0alice\0secret"
CREDENTIAL = new_credential(ScramMechanism.SCRAM_SHA_512, "secret", b"salt")
ALICE = Principal("User", "alice")
WALL_CLOCK_MS = 1_000_000


def validate(token: str) -> BearerToken:
    if token.startswith("bad"):
        raise InvalidToken("it is bad")
    return BearerToken(token, WALL_CLOCK_MS + 5000, frozenset())


def authentication(max_session_ms: int = 0) -> Authentication:
    plain = known_users({"alice": "secret", "bob": "secret"})
    return Authentication(
        {
            "PLAIN": Mechanism(lambda: PlainServer(plain), max_session_ms),
            "SCRAM-SHA-512": Mechanism(
                lambda: ScramServer(
                    ScramMechanism.SCRAM_SHA_512,
                    credential=lambda user: CREDENTIAL if user == "alice" else None,
                    token=lambda _: None,
                    nonce="server",
                ),
                max_session_ms,
            ),
            "OAUTHBEARER": Mechanism(lambda: OAuthBearerServer(validate), max_session_ms),
        },
        wall_clock_ms=lambda: WALL_CLOCK_MS,
    )


def frame(message: Message, version: int) -> bytes:
    return encode_request(message, version, CORRELATION_ID, "test")[4:]


def handshake(mechanism: str, version: int = 1) -> bytes:
    return frame(SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(token: bytes, version: int = 2) -> bytes:
    return frame(SaslAuthenticateRequest(auth_bytes=token), version)


def response(cls: type[Any], data: bytes, version: int) -> Any:
    length, correlation_id = struct.unpack_from(">ii", data)
    assert (length, correlation_id) == (len(data) - 4, CORRELATION_ID)
    key = cls.__schema__.key
    return decode(cls, data, version, 8 + response_header_version(key, version))


def sent(step: Step, cls: type[Any], version: int) -> Any:
    assert isinstance(step, Send), step
    return response(cls, step.frame, version)


def refused(step: Step, cls: type[Any], version: int) -> Any:
    assert isinstance(step, Close), step
    assert step.is_delayed
    return response(cls, step.reply, version)


def login(machine: Authentication, token: bytes = PASSWORD, *, now_ms: int = 0) -> SaslAuthenticateResponse:
    machine.received(handshake("PLAIN"), now_ms)
    answer: SaslAuthenticateResponse = sent(machine.received(authenticate(token), now_ms), SaslAuthenticateResponse, 2)
    return answer


def run(machine: Authentication, step: Step, now_ms: int = 0) -> Step:
    """Do the work of a Verify."""
    assert isinstance(step, Verify), step
    try:
        return machine.verified(step.work(), now_ms)
    except AuthenticationFailed as failure:
        return machine.verified(failure, now_ms)


def test_the_usual_way() -> None:
    machine = authentication()
    assert machine.received(frame(SOFTWARE, 4), 0) == PassOn()
    answer = sent(machine.received(handshake("PLAIN"), 0), SaslHandshakeResponse, 1)
    assert (answer.error_code, answer.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
    is_ready = machine.is_ready
    assert not is_ready
    answer = sent(machine.received(authenticate(PASSWORD), 0), SaslAuthenticateResponse, 2)
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
    assert machine.is_ready
    assert not machine.needs_watching
    assert machine.session is not None
    assert machine.session.principal == ALICE


@pytest.mark.parametrize("version", [0, 1, 2])
def test_scram_in_each_version(version: int) -> None:
    machine = authentication()
    machine.received(handshake("SCRAM-SHA-512"), 0)
    client = ScramClient(ScramMechanism.SCRAM_SHA_512, "alice", "secret", "client")
    token: bytes | None = client.first()
    while token is not None:
        answer = sent(machine.received(authenticate(token, version), 0), SaslAuthenticateResponse, version)
        assert answer.error_code == 0
        token = client.step(answer.auth_bytes)
    assert machine.is_ready


def test_bare_tokens_after_the_first_version_of_the_handshake() -> None:
    machine = authentication()
    sent(machine.received(handshake("SCRAM-SHA-512", 0), 0), SaslHandshakeResponse, 0)
    client = ScramClient(ScramMechanism.SCRAM_SHA_512, "alice", "secret", "client")
    token: bytes | None = client.first()
    while token is not None:
        step = machine.received(token, 0)
        assert isinstance(step, Send)
        assert struct.unpack_from(">i", step.frame) == (len(step.frame) - 4,)
        token = client.step(step.frame[4:])
    assert machine.is_ready


def test_a_refused_bare_token_closes_without_a_word() -> None:
    machine = authentication()
    machine.received(handshake("PLAIN", 0), 0)
    step = machine.received(b"\0alice\0wrong", 0)
    assert isinstance(step, Close)
    assert (step.reply, step.is_delayed) == (b"", True)


def test_an_accepted_bare_plain_token_is_answered_with_an_empty_one() -> None:
    machine = authentication()
    machine.received(handshake("PLAIN", 0), 0)
    assert machine.received(PASSWORD, 0) == Send(b"\0\0\0\0")


def test_an_unknown_mechanism() -> None:
    answer = refused(authentication().received(handshake("GSSAPI"), 0), SaslHandshakeResponse, 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"]


@pytest.mark.parametrize(
    ("mechanism", "token", "text"),
    [
        ("PLAIN", b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (
            "SCRAM-SHA-512",
            b"n,,n=nobody,r=x",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512",
        ),
        (
            "OAUTHBEARER",
            b"nonsense",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER",
        ),
    ],
)
def test_refusals_in_kafkas_words(mechanism: str, token: bytes, text: str) -> None:
    machine = authentication()
    machine.received(handshake(mechanism), 0)
    answer = refused(machine.received(authenticate(token), 0), SaslAuthenticateResponse, 2)
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, text)
    assert isinstance(machine.received(authenticate(PASSWORD), 0), Close), "there is no second attempt"


def test_what_a_refusal_quotes_is_cut() -> None:
    machine = authentication()
    machine.received(handshake("OAUTHBEARER"), 0)
    token = b"n,a=" + b"x" * 400_000 + b",\x01auth=Bearer bob\x01\x01"
    step = run(machine, machine.received(authenticate(token), 0))
    answer = refused(step, SaslAuthenticateResponse, 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message.startswith("Authentication failed: Client requested an authorization id (xxx")
    assert isinstance(step, Close) and len(step.reason) < 1000


@pytest.mark.parametrize("subject", ["x" * 32_763, "half a character: \ud800"])
def test_a_user_whose_name_no_record_can_carry_is_refused(subject: str) -> None:
    exchange = OAuthBearerServer(lambda _: BearerToken(subject, WALL_CLOCK_MS + 5000, frozenset()))
    machine = Authentication({"OAUTHBEARER": Mechanism(lambda: exchange)}, wall_clock_ms=lambda: WALL_CLOCK_MS)
    machine.received(handshake("OAUTHBEARER"), 0)
    step = run(machine, machine.received(authenticate(b"n,,\x01auth=Bearer bob\x01\x01"), 0))
    assert refused(step, SaslAuthenticateResponse, 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_bad_bearer_token_is_refused_in_two_steps() -> None:
    machine = authentication()
    machine.received(handshake("OAUTHBEARER"), 0)
    step = run(machine, machine.received(authenticate(b"n,,\x01auth=Bearer bad\x01\x01"), 0))
    answer = sent(step, SaslAuthenticateResponse, 2)
    assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
    answer = refused(machine.received(authenticate(b"\x01"), 0), SaslAuthenticateResponse, 2)
    assert (answer.error_code, answer.error_message) == (58, '{"status":"invalid_token"}')


def test_another_request_during_authentication_gets_its_own_error() -> None:
    machine = authentication()
    machine.received(handshake("PLAIN"), 0)
    answer = refused(machine.received(frame(FetchRequest(), 12), 0), FetchResponse, 12)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_a_response_without_a_place_for_the_error_is_not_sent() -> None:
    machine = authentication()
    machine.received(handshake("PLAIN"), 0)
    step = machine.received(frame(MetadataRequest(), 12), 0)
    assert isinstance(step, Close)
    assert not step.reply


@pytest.mark.parametrize(
    "first",
    [
        frame(MetadataRequest(), 12),
        authenticate(PASSWORD),
        b"",
        b"\x60",
        b"\0\x11",
        b"\x60\x82\x02\x2f\x06\x09\x2a\x86\x48\x86\xf7\x12",
        b"\xff" * 100,
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_anything_else_at_the_start_closes_at_once(first: bytes) -> None:
    step = authentication().received(first, 0)
    assert isinstance(step, Close)
    assert (step.reply, step.is_delayed) == (b"", False)


def test_api_versions_is_answered_once() -> None:
    machine = authentication()
    assert machine.received(frame(SOFTWARE, 0), 0) == PassOn()
    assert isinstance(machine.received(frame(SOFTWARE, 0), 0), Close)


def test_api_versions_that_is_answered_with_an_error_may_be_repeated() -> None:
    machine = authentication()
    too_new = bytearray(frame(SOFTWARE, 4))
    struct.pack_into(">h", too_new, 2, 99)
    assert machine.received(bytes(too_new), 0) == PassOn()
    nameless = frame(ApiVersionsRequest(client_software_name="", client_software_version=""), 3)
    assert machine.received(nameless, 0) == PassOn()
    no_cluster = ApiVersionsRequest(client_software_name="test", client_software_version="1", node_id=1)
    assert machine.received(frame(no_cluster, 5), 0) == PassOn()
    assert machine.received(frame(SOFTWARE, 3), 0) == PassOn()
    assert isinstance(machine.received(frame(SOFTWARE, 3), 0), Close)


# -- sessions with an end (KIP-368) -----------------------------------------------------------------------------------


def test_a_session_ends() -> None:
    machine = authentication(max_session_ms=3000)
    assert login(machine, now_ms=100).session_lifetime_ms == 3000
    assert machine.needs_watching
    assert machine.received(frame(MetadataRequest(), 12), 3100) == PassOn()
    assert isinstance(machine.received(frame(MetadataRequest(), 12), 3101), Close)


def test_the_lifetime_is_the_shorter_of_both_limits() -> None:
    lifetimes = []
    for limit in (0, 3000, 60_000):
        machine = authentication(limit)
        machine.received(handshake("OAUTHBEARER"), 0)
        step = run(machine, machine.received(authenticate(b"n,,\x01auth=Bearer alice\x01\x01"), 0))
        lifetimes.append(sent(step, SaslAuthenticateResponse, 2).session_lifetime_ms)
    assert lifetimes == [5000, 3000, 5000]


def test_a_client_authenticates_again_even_after_the_end() -> None:
    machine = authentication(max_session_ms=3000)
    login(machine)
    for now_ms in (2000, 9000):
        assert login(machine, now_ms=now_ms).session_lifetime_ms == 3000
        assert machine.session is not None
        assert machine.session.ends_at_ms == now_ms + 3000


def test_a_client_authenticates_again_at_most_once_a_second() -> None:
    machine = authentication(max_session_ms=3000)
    login(machine, now_ms=0)
    login(machine, now_ms=500)
    assert machine.received(handshake("PLAIN"), 1499) == PassOn(), "the router answers with error 34"
    login(machine, now_ms=1500)


def test_nobody_else_takes_a_session_over() -> None:
    machine = authentication(max_session_ms=3000)
    login(machine)
    machine.received(handshake("PLAIN"), 2000)
    answer = refused(machine.received(authenticate(b"\0bob\0secret"), 2000), SaslAuthenticateResponse, 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"


def test_a_refusal_of_a_second_authentication_names_it() -> None:
    machine = authentication(max_session_ms=3000)
    machine.received(handshake("SCRAM-SHA-512"), 0)
    client = ScramClient(ScramMechanism.SCRAM_SHA_512, "alice", "secret", "client")
    token: bytes | None = client.first()
    while token is not None:
        token = client.step(sent(machine.received(authenticate(token), 0), SaslAuthenticateResponse, 2).auth_bytes)
    machine.received(handshake("SCRAM-SHA-512"), 2000)
    answer = refused(machine.received(authenticate(b"n,,n=bob,r=x"), 2000), SaslAuthenticateResponse, 2)
    assert "during re-authentication" in answer.error_message


def test_another_mechanism_closes_with_the_next_token() -> None:
    machine = authentication(max_session_ms=3000)
    login(machine)
    assert sent(machine.received(handshake("OAUTHBEARER"), 2000), SaslHandshakeResponse, 1).error_code == 0
    step = machine.received(authenticate(b"n,,\x01auth=Bearer alice\x01\x01"), 2000)
    assert isinstance(step, Close)
    assert (step.reply, step.is_delayed) == (b"", True)


def test_no_request_is_handled_while_a_client_authenticates_again() -> None:
    machine = authentication(max_session_ms=3000)
    login(machine)
    machine.received(handshake("PLAIN"), 2000)
    assert isinstance(machine.received(frame(FetchRequest(), 12), 2000), Close)
