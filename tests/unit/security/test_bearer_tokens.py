"""Bearer tokens: what is accepted, what is refused, and how keys are read."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.authentication.key_sets import DOCUMENT_BYTES_MAX, KeySet, read_url
from penstock.security.sasl.bearer_tokens import (
    BearerToken,
    Expectations,
    InvalidToken,
    parse_key_set,
    validate_signed,
    validate_unsecured,
)
from property_examples import examples

pytest.importorskip("joserfc", reason="the extra penstock[security] is not installed")

NOW = 1_800_000_000
EXPECTED = Expectations(audience=frozenset({"kafka", "other"}), issuer="https://issuer")
CLAIMS = {"sub": "alice", "iat": NOW - 10, "exp": NOW + 600, "aud": "kafka", "iss": "https://issuer"}


@cache
def key(kind: str = "RSA") -> Any:
    from joserfc.jwk import ECKey, OctKey, RSAKey

    if kind == "RSA":
        return RSAKey.generate_key(2048, {"kid": "rsa"})
    if kind == "EC":
        return ECKey.generate_key("P-256", {"kid": "ec"})
    return OctKey.import_key(b"k" * 32, {"kid": "oct"})


def document(*kinds: str) -> dict[str, Any]:
    return {"keys": [key(kind).as_dict(private=False) for kind in kinds]}


def signed(claims: dict[str, Any], kind: str = "RSA", **header: Any) -> str:
    from joserfc import jwt

    algorithm = {"RSA": "RS256", "EC": "ES256", "oct": "HS256"}[kind]
    return jwt.encode({"alg": algorithm, "kid": key(kind).kid, **header}, claims, key(kind), [algorithm])


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def validate(token: str, expected: Expectations = EXPECTED, *kinds: str, now: float = NOW) -> BearerToken:
    published = parse_key_set(document(*(kinds or ("RSA", "EC"))))

    def keys_for(kid: str | None) -> Any:
        return [each for each in published if kid is None or each.kid == kid]

    return validate_signed(token, keys_for, expected, now)


def test_a_good_token() -> None:
    for kind in ("RSA", "EC"):
        token = validate(signed({**CLAIMS, "scope": "read write"}, kind))
        assert token == BearerToken("alice", (NOW + 600) * 1000, frozenset({"read", "write"}))
    assert validate(signed({**CLAIMS, "aud": ["x", "other"], "scope": ["a"]})).scope == frozenset({"a"})


def test_a_token_without_a_key_id_is_checked_against_all_keys() -> None:
    from joserfc import jwt

    token = jwt.encode({"alg": "ES256"}, CLAIMS, key("EC"), ["ES256"])
    assert validate(token).subject == "alice"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": NOW - 31}, "expired"),
        ({"iat": NOW + 31}, "issued in the future"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"exp": None}, "no exp claim"),
        ({"iat": None}, "no iat claim"),
        ({"exp": "tomorrow"}, "no exp claim"),
        ({"exp": True}, "no exp claim"),
        ({"exp": 1e300}, "not a time"),
        ({"sub": None}, "no sub claim"),
        ({"sub": " "}, "no sub claim"),
        ({"sub": ["alice"]}, "no sub claim"),
        ({"aud": "somebody else"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": {"kafka": 1}}, "audience"),
        ({"iss": "https://other"}, "issuer"),
        ({"iss": None}, "issuer"),
    ],
)
def test_claims_that_are_refused(changes: dict[str, Any], reason: str) -> None:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    with pytest.raises(InvalidToken, match=reason):
        validate(signed(claims))


def test_the_clock_may_be_off_a_little() -> None:
    assert validate(signed({**CLAIMS, "exp": NOW - 29}))
    assert validate(signed({**CLAIMS, "iat": NOW + 29}))


def test_an_audience_needs_to_be_expected() -> None:
    anybody = Expectations()
    with pytest.raises(InvalidToken, match="audience"):
        validate(signed(CLAIMS), anybody)
    assert validate(signed({name: value for name, value in CLAIMS.items() if name != "aud"}), anybody)


def test_another_claim_names_the_principal() -> None:
    expected = Expectations(audience=EXPECTED.audience, subject_claim="client_id")
    assert validate(signed({**CLAIMS, "client_id": "batch"}), expected).subject == "batch"


def test_signatures_that_do_not_count() -> None:
    good = signed(CLAIMS)
    header, claims, signature = good.split(".")
    other = part({**CLAIMS, "sub": "root"})
    forged = [
        f"{header}.{other}.{signature}",
        f"{header}.{claims}.",
        f"{part({'alg': 'none'})}.{claims}.",
        f"{part({'alg': 'None'})}.{claims}.",
        f"{part({'alg': 'none', 'kid': 'rsa'})}.{claims}.{signature}",
        signed(CLAIMS, kid="ec"),  # the key of another algorithm
        signed(CLAIMS, kid="unknown"),
        signed(CLAIMS, "oct"),
        f"{part({'alg': 'RS256', 'kid': ['rsa']})}.{claims}.{signature}",
        f"{part({'alg': ['RS256'], 'kid': 'rsa'})}.{claims}.{signature}",
        f"{part(['RS256'])}.{claims}.{signature}",
        "",
        "a.b.c",
        "a.b",
    ]
    for token in forged:
        with pytest.raises(InvalidToken):
            validate(token, EXPECTED, "RSA", "EC")


def test_a_published_key_is_not_the_secret_of_an_hmac() -> None:
    """With `alg` HS256 and the public key as the secret, anybody could sign."""
    from joserfc import jwt
    from joserfc.jwk import OctKey

    public = key().as_pem(private=False)
    confused = jwt.encode(
        {"alg": "HS256", "kid": "rsa"}, CLAIMS, OctKey.import_key(base64.b64encode(public)), ["HS256"]
    )
    with pytest.raises(InvalidToken, match="algorithm"):
        validate(confused)


def test_unsecured_tokens() -> None:
    claims = {"sub": "alice", "iat": NOW, "exp": NOW + 5}
    assert validate_unsecured(f"{part({'alg': 'none'})}.{part(claims)}.", Expectations(), NOW).subject == "alice"
    for token in (
        signed(claims),
        f"{part({'alg': 'none'})}.{part(claims)}.AAAA",
        f"{part({'alg': 'none'})}.{part({**claims, 'exp': NOW - 100})}.",
        "nonsense",
    ):
        with pytest.raises(InvalidToken):
            validate_unsecured(token, Expectations(), NOW)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.one_of(st.text(max_size=200), st.binary(max_size=100).map(lambda data: base64.b64encode(data).decode())),
    st.data(),
)
def test_any_text_is_accepted_or_refused(text: str, data: st.DataObject) -> None:
    pieces = [text, part({"alg": "RS256", "kid": "rsa"}), part(CLAIMS), signed(CLAIMS).split(".")[2]]
    token = ".".join(data.draw(st.lists(st.sampled_from(pieces), max_size=4)))
    if token == ".".join(pieces[1:]):
        return
    for check in (validate, lambda given: validate_unsecured(given, EXPECTED, NOW)):
        with pytest.raises(InvalidToken):
            check(token)


# -- keys -------------------------------------------------------------------------------------------------------------


class Issuer:
    """Publishes keys, and counts who asks."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.answer: Callable[[], bytes] = lambda: json.dumps(document("RSA")).encode()
        self.asked = 0

    def read(self, _: str) -> bytes:
        self.asked += 1
        return self.answer()

    def key_set(self) -> KeySet:
        return KeySet(
            "https://issuer/jwks",
            now_ms=lambda: self.now_ms,
            refresh_ms=60_000,
            retry_ms=100,
            retry_max_ms=1000,
            read=self.read,
        )


def kids(keys: KeySet, kid: str | None = None) -> list[str | None]:
    return [each.kid for each in keys.keys_for(kid)]


def away() -> bytes:
    raise OSError("away")


def test_keys_are_read_once_and_again_after_the_refresh_time() -> None:
    issuer = Issuer()
    keys = issuer.key_set()
    for _ in range(100):
        assert kids(keys, "rsa") == ["rsa"]
    assert issuer.asked == 1
    issuer.now_ms = 60_000
    assert kids(keys) == ["rsa"]
    assert issuer.asked == 2


def test_a_new_key_is_found_at_once_but_invented_key_ids_are_no_load() -> None:
    issuer = Issuer()
    keys = issuer.key_set()
    assert kids(keys, "rsa") == ["rsa"]
    issuer.now_ms = 10_000
    issuer.answer = lambda: json.dumps(document("RSA", "EC")).encode()
    assert kids(keys, "ec") == ["ec"]
    for number in range(1000):
        assert kids(keys, f"invented {number}") == []
    assert issuer.asked == 2


def test_an_issuer_that_is_away() -> None:
    issuer = Issuer()
    issuer.answer = away
    keys = issuer.key_set()
    for _ in range(50):
        with pytest.raises(InvalidToken, match="not available"):
            keys.keys_for("rsa")
    assert issuer.asked == 1
    for issuer.now_ms in range(0, 10_000, 10):
        with pytest.raises(InvalidToken):
            keys.keys_for("rsa")
    assert issuer.asked <= 15
    issuer.now_ms += 1000
    issuer.answer = lambda: json.dumps(document("RSA")).encode()
    assert kids(keys, "rsa") == ["rsa"]


def test_an_issuer_that_does_not_answer_delays_one_login_only() -> None:
    issuer = Issuer()
    keys = issuer.key_set()
    assert kids(keys, "rsa") == ["rsa"]
    is_asked, may_answer, was_in_time = threading.Event(), threading.Event(), []

    def slow() -> bytes:
        is_asked.set()
        was_in_time.append(may_answer.wait(20))
        raise OSError("away")

    issuer.answer = slow
    issuer.now_ms = 60_000
    first = threading.Thread(target=kids, args=(keys, "rsa"))
    first.start()
    assert is_asked.wait(20)
    assert kids(keys, "rsa") == ["rsa"]
    assert kids(keys, "invented") == []
    may_answer.set()
    first.join()
    assert was_in_time == [True]


@pytest.mark.parametrize(
    "garbage",
    [b"", b"<html>", b"[]", b"{}", b'{"keys": 7}', b'{"keys": [7, {}, {"kty": "oct", "k": "AAAA"}]}', b"[" * 100_000],
)
def test_keys_stay_in_use_when_the_issuer_publishes_garbage(garbage: bytes) -> None:
    issuer = Issuer()
    keys = issuer.key_set()
    assert kids(keys) == ["rsa"]
    issuer.now_ms = 60_000
    issuer.answer = lambda: garbage
    assert kids(keys) == ["rsa"]
    assert issuer.asked == 2


def test_keys_in_a_file(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "with space.json")
    with open(path, "w", encoding="ascii") as file:
        json.dump(document("RSA"), file)
    assert json.loads(read_url(f"file://{path.replace(' ', '%20')}")) == document("RSA")
    with open(path, "w", encoding="ascii") as file:
        file.write(" " * (DOCUMENT_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="larger"):
        read_url(f"file://{path.replace(' ', '%20')}")
