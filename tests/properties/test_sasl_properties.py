"""Authentication under any order of requests and any bytes: no client logs in without a password, nothing breaks."""

from __future__ import annotations

import random
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.apis import API, ApiKey
from penstock.protocol.codec import encode
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.security.credentials import ScramMechanism, new_credential
from penstock.security.sasl.authentication import Authentication, Close, Mechanism, PassOn, Send, Verify
from penstock.security.sasl.bearer_tokens import BearerToken, InvalidToken
from penstock.security.sasl.exchange import AuthenticationFailed
from penstock.security.sasl.oauthbearer import OAuthBearerServer, parse_initial_response
from penstock.security.sasl.plain import PlainServer, known_users
from penstock.security.sasl.scram import ScramClient, ScramServer
from penstock.security.sasl.scram_messages import (
    escape,
    parse_client_final,
    parse_client_first,
    parse_server_final,
    parse_server_first,
    unescape,
)
from property_examples import examples

SHA_256 = ScramMechanism.SCRAM_SHA_256
CREDENTIAL = new_credential(SHA_256, "secret", b"salt")
RIGHT = b"\0alice\0secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")


def validate(token: str) -> BearerToken:
    if token != "right":
        raise InvalidToken("it is wrong")
    return BearerToken("alice", 2000, frozenset())


def machine(max_session_ms: int) -> Authentication:
    users = known_users({"alice": "secret"})
    scram = {"credential": lambda _: CREDENTIAL, "token": lambda _: None, "nonce": "server"}
    return Authentication(
        {
            "PLAIN": Mechanism(lambda: PlainServer(users), max_session_ms),
            "SCRAM-SHA-256": Mechanism(lambda: ScramServer(SHA_256, **scram), max_session_ms),  # type: ignore[arg-type]
            "OAUTHBEARER": Mechanism(lambda: OAuthBearerServer(validate), max_session_ms),
        },
        wall_clock_ms=lambda: 1000,
    )


def request(key: int, version: int, body: bytes) -> bytes:
    is_flexible = key in API and version >= API[key].flexible_from
    return struct.pack(">hhih", key, version, 1, -1) + (b"\0" if is_flexible else b"") + body


# A proof needs the password, so none is among the tokens: SCRAM logins are tested elsewhere.
tokens = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            RIGHT,
            b"\0alice\0wrong",
            b"n,,n=alice,r=x",
            b"c=biws,r=xserver,p=AAAA",
            b"n,,\x01auth=Bearer right\x01\x01",
            b"n,,\x01auth=Bearer wrong\x01\x01",
            b"\x01",
            b"",
        ]
    ),
)
SOFTWARE = ApiVersionsRequest(client_software_name="a", client_software_version="b")
frames = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda version: request(18, version, encode(SOFTWARE, min(version, 4))), st.integers(0, 6)),
    st.builds(
        lambda mechanism, version: request(17, version, encode(SaslHandshakeRequest(mechanism=mechanism), version)),
        st.sampled_from([*MECHANISMS, "GSSAPI"]),
        st.integers(0, 1),
    ),
    st.builds(
        lambda token, version: request(36, version, encode(SaslAuthenticateRequest(auth_bytes=token), version)),
        tokens,
        st.integers(0, 2),
    ),
    tokens,
    st.builds(request, st.sampled_from([int(key) for key in ApiKey]), st.integers(0, 20), st.binary(max_size=30)),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(frames, st.integers(0, 3000)), max_size=12), st.sampled_from([0, 1500]))
def test_only_a_password_or_a_token_opens_the_door(steps: list[tuple[bytes, int]], max_session_ms: int) -> None:
    authentication = machine(max_session_ms)
    is_over, now_ms, secrets_shown = False, 0, False
    for frame, elapsed_ms in steps:
        now_ms += elapsed_ms
        was_ready = authentication.is_ready
        former = authentication.session
        secrets_shown = secrets_shown or RIGHT in frame or b"Bearer right" in frame
        step = authentication.received(frame, now_ms)
        if isinstance(step, Verify):
            try:
                step = authentication.verified(step.work(), now_ms)
            except AuthenticationFailed as failure:
                step = authentication.verified(failure, now_ms)
        assert not is_over or isinstance(step, Close), "nothing is handled after a close"
        if isinstance(step, PassOn):
            assert was_ready or frame[:2] == b"\0\x12", "only ApiVersions passes before authentication"
            if was_ready and former is not None and former.ends_at_ms is not None:
                assert now_ms <= former.ends_at_ms, "nothing passes after the session's end"
        if isinstance(step, Send):
            assert struct.unpack_from(">i", step.frame) == (len(step.frame) - 4,)
        if isinstance(step, Close):
            is_over = True
            assert not authentication.is_ready
        assert authentication.session is None or secrets_shown
        assert former is None or authentication.session is not None


@settings(max_examples=12, deadline=None)
@given(
    st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=20),
    st.text(max_size=20),
    st.text(max_size=20),
    st.sampled_from(list(ScramMechanism)),
)
def test_scram_accepts_the_password_and_no_other(
    user: str, password: str, other: str, mechanism: ScramMechanism
) -> None:
    credential = new_credential(mechanism, password, b"some salt")

    def login(with_password: str) -> bool:
        server = ScramServer(mechanism, credential=lambda name: credential, token=lambda _: None, nonce="s3rv3r")
        client = ScramClient(mechanism, user, with_password, "cl1ent")
        token: bytes | None = client.first()
        assert parse_client_first(client.first()).user == user
        while token is not None:
            try:
                outcome = server.step(token)
            except AuthenticationFailed:
                return False
            token = client.step(outcome.token)  # type: ignore[union-attr]
        return True

    assert login(password)
    assert login(other) == (password.encode() == other.encode())


@given(st.text())
def test_names_are_escaped(name: str) -> None:
    assert unescape(escape(name)) == name


PARSERS = (parse_client_first, parse_client_final, parse_server_first, parse_server_final, parse_initial_response)
SAMPLES = (
    b"n,a=alice,n=alice,r=fyko+d2lbbFgONRv9qkxdawL,tokenauth=true",
    b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    b"n,a=bob,\x01auth=Bearer aaa.bbb.ccc\x01traceId=1\x01\x01",
)


def test_parsers_survive_a_many_mutations() -> None:
    """Every message is parsed or refused, whatever it is."""
    chance = random.Random(20)
    parsed = refused = 0
    for _ in range(8_000):
        message = bytearray(chance.choice(SAMPLES))
        for _ in range(chance.randrange(4)):
            position = chance.randrange(len(message) + 1)
            kind = chance.randrange(3)
            if kind == 0:
                message[position:position] = chance.choice((b",", b"=", b"\0", b"\x01", b"\xff", b"=2C", b"=,n="))
            elif kind == 1:
                del message[position : position + chance.randrange(5)]
            elif position < len(message):
                message[position] = chance.randrange(256)
        for parse in PARSERS:
            try:
                parse(bytes(message))
                parsed += 1
            except AuthenticationFailed:
                refused += 1
    assert parsed > 2000
    assert refused > 2000
