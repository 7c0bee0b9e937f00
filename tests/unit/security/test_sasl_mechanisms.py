"""The mechanisms against the vectors of their RFCs, and against wrong input."""

from __future__ import annotations

import base64

import pytest

from penstock.security.credentials import ScramCredential, ScramMechanism, new_credential
from penstock.security.principal import Principal
from penstock.security.sasl.bearer_tokens import BearerToken, InvalidToken
from penstock.security.sasl.exchange import Accepted, AuthenticationFailed, Challenge, Verification
from penstock.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer, parse_initial_response
from penstock.security.sasl.plain import PlainClient, PlainServer, known_users
from penstock.security.sasl.scram import ScramClient, ScramServer, TokenCredential

SHA_256 = ScramMechanism.SCRAM_SHA_256
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = new_credential(SHA_256, "pencil", SALT)
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
ALICE = Principal("User", "alice")


def scram_server(credential: ScramCredential | None = PENCIL, token: TokenCredential | None = None) -> ScramServer:
    return ScramServer(SHA_256, credential=lambda _: credential, token=lambda _: token, nonce=SERVER_NONCE)


# -- SCRAM ----------------------------------------------------------------------------------------------------------


def test_the_vector_of_rfc_7677() -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    server = scram_server()
    first = client.first()
    assert first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = server.step(first)
    assert challenge == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert isinstance(challenge, Challenge)
    final = client.step(challenge.token)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    accepted = server.step(final)
    assert isinstance(accepted, Accepted)
    assert accepted.token == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert accepted.principal == Principal("User", "user")
    assert client.step(accepted.token) is None


def test_a_credential_shows_no_key() -> None:
    assert "keys hidden" in repr(PENCIL)
    assert base64.b64encode(PENCIL.stored_key).decode() not in repr(PENCIL)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"y,,n=user,r=abc",  # the client supports channel binding
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=x,n=user,r=abc",  # a mandatory extension
        b"n,,n=us=er,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=abc,=x",
        b"n,,n=us\xc3\xa9r,r=abc",
        b"n,,n=user,r=abc\n",
        b"c=biws,r=abc,p=AAAA",  # a later message
    ],
)
def test_a_first_message_without_the_format(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        scram_server().step(message)


@pytest.mark.parametrize(
    "final",
    [
        b"c=biws,r=foreign,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"c=eSws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=AAAA",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    ],
)
def test_a_wrong_final_message(final: bytes) -> None:
    server = scram_server()
    server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    with pytest.raises(AuthenticationFailed) as refused:
        server.step(final)
    assert refused.value.public is None
    with pytest.raises(AuthenticationFailed):  # and the exchange is over
        server.step(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        )


def test_an_unknown_user_is_refused_without_details() -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        scram_server(None).step(b"n,,n=user,r=abc")
    assert refused.value.public is None


def test_another_authorization_id() -> None:
    assert isinstance(scram_server().step(b"n,a=user,n=user,r=abc"), Challenge)
    with pytest.raises(AuthenticationFailed) as refused:
        scram_server().step(b"n,a=root,n=user,r=abc")
    assert "authorization id" in (refused.value.public or "")


def test_a_credential_with_few_iterations() -> None:
    weak = new_credential(SHA_256, "pencil", SALT, 1000)
    with pytest.raises(AuthenticationFailed):
        scram_server(weak).step(b"n,,n=user,r=abc")


def test_a_delegation_token_logs_in_as_its_owner() -> None:
    password = base64.b64encode(b"the hmac").decode()
    derived: list[str] = []

    def derive() -> ScramCredential:
        derived.append("once")
        return new_credential(SHA_256, password, SALT)

    server = scram_server(None, TokenCredential(ALICE, 5000, derive))
    client = ScramClient(SHA_256, "token-id", password, CLIENT_NONCE, extensions={"tokenauth": "true"})
    outcome = server.step(client.first())
    assert isinstance(outcome, Verification)
    assert not derived, "the derivation is left to a thread"
    challenge = outcome.work()
    assert isinstance(challenge, Challenge)
    accepted = server.step(client.step(challenge.token) or b"")
    assert isinstance(accepted, Accepted)
    assert (accepted.principal, accepted.expires_at_ms, accepted.by_token) == (ALICE, 5000, True)
    assert client.step(accepted.token) is None


def test_an_unknown_delegation_token() -> None:
    with pytest.raises(AuthenticationFailed):
        scram_server().step(b"n,,n=nothing,r=abc,tokenauth=true")


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",  # a foreign nonce
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",  # nothing from the server
        b"r=rOprNGfwEbeRWgbNEkqOxyz,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1",
        b"r=rOprNGfwEbeRWgbNEkqOxyz,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=999999999",
        b"e=other-error",
        b"",
    ],
)
def test_a_client_refuses_a_wrong_challenge(challenge: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE).step(challenge)


def test_a_client_refuses_a_server_that_does_not_know_the_credential() -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    challenge = scram_server().step(client.first())
    assert isinstance(challenge, Challenge)
    client.step(challenge.token)
    with pytest.raises(AuthenticationFailed, match="signature"):
        client.step(b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


# -- PLAIN ----------------------------------------------------------------------------------------------------------


def test_plain_users() -> None:
    users = known_users({"alice": "secret", "bob": "p\0q"})
    assert PlainServer(users).step(PlainClient("alice", "secret").first()) == Accepted(b"", ALICE)
    assert PlainServer(users).step(b"alice\0alice\0secret") == Accepted(b"", ALICE)


@pytest.mark.parametrize(
    ("message", "public"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0secret", "Authentication failed: Invalid username or password"),
        (b"\0alice\0\xff\xfe", "Authentication failed: Invalid username or password"),
        (b"root\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (
            b"root\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0a\0b\0c\0d\0e", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
)
def test_plain_refusals_in_kafkas_words(message: bytes, public: str) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        PlainServer(known_users({"alice": "secret"})).step(message)
    assert refused.value.public == public
    assert "wrong" not in str(refused.value).split("or a wrong")[0], "no secret in the log"


def test_a_check_that_may_block_is_left_to_a_thread() -> None:
    calls: list[str] = []

    def check(user: str, password: str) -> bool:
        calls.append(user)
        return password == "right"

    outcome = PlainServer(check, may_block=True).step(b"\0alice\0right")
    assert isinstance(outcome, Verification)
    assert not calls
    assert outcome.work() == Accepted(b"", ALICE)


def test_plain_is_one_message() -> None:
    server = PlainServer(known_users({"alice": "secret"}))
    server.step(b"\0alice\0secret")
    with pytest.raises(AuthenticationFailed):
        server.step(b"\0alice\0secret")


# -- OAUTHBEARER ----------------------------------------------------------------------------------------------------


def validate(token: str) -> BearerToken:
    if token != "good.token.":
        raise InvalidToken("it is bad")
    return BearerToken("alice", 9000, frozenset())


def test_a_good_token() -> None:
    outcome = OAuthBearerServer(validate).step(OAuthBearerClient(lambda: "good.token.", {"traceId": "7"}).first())
    assert isinstance(outcome, Verification)
    assert outcome.work() == Accepted(b"", ALICE, 9000)


def test_a_refusal_has_to_be_acknowledged() -> None:
    server, client = OAuthBearerServer(validate), OAuthBearerClient(lambda: "bad")
    outcome = server.step(client.first())
    assert isinstance(outcome, Verification)
    challenge = outcome.work()
    assert challenge == Challenge(b'{"status":"invalid_token"}')
    assert isinstance(challenge, Challenge)
    answer = client.step(challenge.token)
    assert answer == b"\x01"
    with pytest.raises(AuthenticationFailed) as refused:
        server.step(answer)
    assert refused.value.public == '{"status":"invalid_token"}'


def test_the_authorization_id_is_the_subject() -> None:
    outcome = OAuthBearerServer(validate).step(b"n,a=bob,\x01auth=Bearer good.token.\x01\x01")
    assert isinstance(outcome, Verification)
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        outcome.work()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01key1=x\x01\x01",
        b"n,,\x01auth=Bearer \xc3\xa9\x01\x01",
    ],
)
def test_a_first_oauth_message_without_the_format(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        OAuthBearerServer(validate).step(message)


def test_extensions_and_escapes() -> None:
    parsed = parse_initial_response(b"n,a=a=2Cb=3Dc,\x01auth=bearer  abc==\x01traceId=1 2\x01\x01")
    assert parsed == ("a,b=c", "abc==", {"traceId": "1 2"})
