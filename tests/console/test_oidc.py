"""Sign-in at an OpenID provider: the checks one by one, and all of it with a small provider and a real broker."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from console_process import running_console
from penstock.client.errors import BadSetting
from penstock.client.librdkafka.security import with_librdkafka_names
from penstock.client.wire.login import ACCESS_TOKEN
from penstock.console.observe.oidc import OpenIdProvider
from penstock.console.server.oidc import come_back, go, open_provider
from penstock.console.server.sessions import Session, Sessions
from penstock.console.settings import ConsoleSettings, check
from penstock.console.views import oidc
from penstock.console.views.oidc import Client, Pending, SignInFailed
from penstock.testing.nodes import start_node

pytest.importorskip("joserfc", reason="the extra `security` is not installed")

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PENDING = Pending("the state", "the nonce", "the verifier", 100.0, "http://127.0.0.1/sign-in/back")
CLIENT = Client("https://issuer", "console", "openid kafka", "s=e:c ret")


class FakeProvider:
    """As much of a provider as a console asks for. `changes` are of the identity token's claims."""

    def __init__(self) -> None:
        from joserfc.jwk import RSAKey

        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        self.stranger = RSAKey.generate_key(2048, {"kid": "one"})
        self.changes: dict[str, Any] = {}
        self.signer = self.key
        self.lasts_s = 3600
        self.codes: dict[str, dict[str, str]] = {}
        self.errors: list[str] = []
        self.authorization: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                if path == "/authorize":
                    given = {name: values[0] for name, values in parse_qs(query).items()}
                    code = f"code-{len(outer.codes)}"
                    outer.codes[code] = given
                    self.send_response(302)
                    back = urlencode({"code": code, "state": given["state"]})
                    self.send_header("location", f"{given['redirect_uri']}?{back}")
                    self.end_headers()
                    return
                self.answer(outer.document(path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                outer.authorization.append(self.headers["authorization"])
                self.answer(outer.tokens({name: values[0] for name, values in parse_qs(body).items()}))

            def answer(self, document: Any) -> None:
                self.send_response(200 if document is not None else 400)
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name there
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def document(self, path: str) -> Any:
        endpoints = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.url, **{name: f"{self.url}/{each}" for name, each in endpoints.items()}}
        return {"keys": [self.key.as_dict(private=False)]} if path == "/keys" else None

    def tokens(self, given: dict[str, str]) -> Any:
        """A code counts once, and only with the verifier of its challenge."""
        asked = self.codes.pop(given["code"], None)
        if asked is None:
            return None
        digest = hashlib.sha256(given["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]:
            return None
        if (given["client_id"], given["redirect_uri"]) != (asked["client_id"], asked["redirect_uri"]):
            return None
        claims = {"aud": asked["client_id"], "nonce": asked["nonce"], **self.changes}
        access = {"aud": "kafka", "exp": int(time.time()) + self.lasts_s}
        tokens = {"id_token": self.token(**claims), "access_token": self.token(**access)}
        return {"token_type": "Bearer", "expires_in": self.lasts_s, **tokens}

    def token(self, **claims: Any) -> str:
        from joserfc import jwt

        now = int(time.time())
        every = {"iss": self.url, "sub": "ada", "iat": now, "exp": now + 600, **claims}
        return jwt.encode({"alg": "RS256", "kid": "one"}, every, self.signer)


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    fake = FakeProvider()
    thread = threading.Thread(target=fake.server.serve_forever)
    thread.start()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()
    thread.join()


def signed_in(fake: FakeProvider, tamper: dict[str, str] | None = None) -> oidc.Identity:
    """All of the flow without a browser."""
    session = Session("id", "csrf")
    ours = OpenIdProvider(Client(fake.url, "console"))
    where = go(ours, session, "http://127.0.0.1:1/sign-in/back")

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *arguments: Any, **more: Any) -> None:
            return None

    try:
        urllib.request.build_opener(Stay).open(where, timeout=30)
    except urllib.error.HTTPError as answer:
        back = answer.headers["location"]
    given = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
    try:
        return come_back(ours, session, {**given, **(tamper or {})})
    finally:
        assert session.pending is None, "a sign-in that was begun counts once"


def test_who_it_is(provider: FakeProvider) -> None:
    found = signed_in(provider)
    assert found.user == "ada"
    assert 3500 < found.lasts_s <= 3600
    assert found.access_token not in repr(found)
    assert provider.authorization == [None]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nonce": "another"}, "of another sign-in"),
        ({"nonce": None}, "of another sign-in"),
        ({"aud": "another"}, "audience"),
        ({"aud": ["console", "another"]}, "for another client"),
        ({"azp": "another"}, "for another client"),
        ({"iss": "https://evil"}, "issuer"),
        ({"exp": 1000}, "expired"),
        ({"sub": ""}, "sub"),
    ],
)
def test_identity_tokens_that_are_refused(provider: FakeProvider, changes: dict[str, Any], says: str) -> None:
    provider.changes = changes
    with pytest.raises(SignInFailed, match=says):
        signed_in(provider)


def test_tampering_is_refused(provider: FakeProvider) -> None:
    with pytest.raises(SignInFailed, match="not begun here"):
        signed_in(provider, {"state": "guessed"})
    with pytest.raises(SignInFailed, match="answered 400"):
        signed_in(provider, {"code": "guessed"})
    with pytest.raises(SignInFailed, match="refused: access_denied"):
        signed_in(provider, {"error": "access_denied"})
    provider.signer = provider.stranger
    with pytest.raises(SignInFailed, match="signature is wrong"):
        signed_in(provider)
    provider.signer, provider.lasts_s = provider.key, -1
    with pytest.raises(SignInFailed, match="has expired"):
        signed_in(provider)


def test_what_is_checked_without_a_provider() -> None:
    for given, now in (
        ({}, 101.0),
        ({"state": "x", "code": "c"}, 101.0),
        ({"state": "the state", "code": "c"}, 10_000.0),
    ):
        with pytest.raises(SignInFailed):
            oidc.returned(PENDING, given, now)
    with pytest.raises(SignInFailed):
        oidc.returned(None, {"state": "", "code": "c"}, 0)
    assert oidc.returned(PENDING, {"state": "the state", "code": "c"}, 101.0) == "c"
    form, headers = oidc.token_request(CLIENT, PENDING, "c")
    assert form["code_verifier"] == "the verifier"
    assert base64.b64decode(headers["authorization"].split()[1]) == b"console:s%3De%3Ac+ret"
    assert "ret" not in repr(CLIENT)
    assert "verifier" not in repr(PENDING)
    for document in (
        {},
        None,
        {"issuer": "https://other"},
        {"issuer": "https://i", "token_endpoint": "http://elsewhere/"},
    ):
        with pytest.raises(SignInFailed):
            oidc.parse_provider("https://i", document)
    for tokens in (None, {}, {"token_type": "mac"}, {"token_type": "Bearer", "id_token": "x"}):
        with pytest.raises(SignInFailed):
            oidc.parse_tokens(tokens)
    for access, lasts in (("opaque", None), ("opaque", -5.0)):
        with pytest.raises(SignInFailed):
            oidc.expiry_of(access, 0.0, lasts)
    assert oidc.expiry_of("opaque", 0.0, 60.0) == 60.0


def test_settings_are_checked() -> None:
    settings = ConsoleSettings(bootstrap="h:1", oidc_issuer="https://i", oidc_client_id="console")
    assert open_provider(replace(settings, oidc_issuer=None)) is None
    for wrong in (replace(settings, oidc_issuer="http://i"), replace(settings, oidc_secret_file="/nothing/like/that")):
        with pytest.raises(BadSetting):
            open_provider(wrong)
    with pytest.raises(BadSetting, match="--oidc-client-id"):
        check(replace(settings, oidc_client_id=""))


def test_a_session_ends_with_its_token() -> None:
    sessions = Sessions()
    session = sessions.begin("ada")
    session.expires = time.monotonic() + 1000
    assert sessions.find(session.identity) is session
    session.expires = time.monotonic()
    assert sessions.users() == set()
    assert sessions.find(session.identity) is None


def test_librdkafka_gets_the_token() -> None:
    found = with_librdkafka_names({"sasl.mechanism": "OAUTHBEARER", ACCESS_TOKEN: "a.e30.c"})
    assert ACCESS_TOKEN not in found
    assert found["oauth_cb"](None)[0] == "a.e30.c"


def test_the_console_acts_with_the_users_token(browser: Browser, provider: FakeProvider, tmp_path: Path) -> None:
    keys, own_token = tmp_path / "jwks.json", tmp_path / "token"
    keys.write_text(json.dumps(provider.document("/keys")))
    own_token.write_text(provider.token(sub="operator", aud="kafka", exp=int(time.time()) + 3600))
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": provider.url,
    }
    operator = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"file://{own_token}",
    }
    options = ("--oidc-issuer", provider.url, "--oidc-client-id", "console")
    with (
        start_node(str(tmp_path / "node"), properties=properties, client_options=operator) as node,
        running_console(tmp_path, node.bootstrap, *options) as console,
    ):
        context = browser.new_context(base_url=console.address)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto("/topics")
        page.wait_for_url("**/sign-in")
        assert page.locator("input[type=password]").count() == 0
        provider.changes = {"nonce": "replayed"}
        page.click("text=Sign in at 127.0.0.1")
        page.wait_for_selector(".flash.error:has-text('of another sign-in')")
        assert page.goto("/sign-in/back?code=x&state=y").url.endswith("/sign-in")  # type: ignore[union-attr]
        provider.changes = {}
        page.click("text=Sign in at 127.0.0.1")
        page.wait_for_selector(".user:has-text('ada')")
        page.goto("/topics")
        page.click("text=Create a topic")
        page.fill("#create input[name=name]", "made-by-token")
        page.click("#create button")
        page.wait_for_selector("text=Topic made-by-token is created.")
        page.goto("/topics/made-by-token/produce")
        page.fill("textarea[name=value]", "hello")
        page.click("text=Send >> nth=0")
        page.wait_for_selector("text=The record is written.")
        page.goto("/topics/made-by-token/messages")
        page.wait_for_selector("#rows tr:has-text('hello')")
        page.click("text=Sign out")
        page.wait_for_url("**/sign-in")
        context.close()
        lines = [json.loads(line) for line in console.audit_lines()]
        log = node.log_text()
    assert [(line["user"], line["action"], line["result"][:7]) for line in lines] == [
        (None, "sign-in", "refused"),
        (None, "sign-in", "refused"),
        ("ada", "sign-in", "ok"),
        ("ada", "topic.create", "ok"),
        ("ada", "record.produce", "ok"),
        ("ada", "sign-out", "ok"),
    ]
    assert "eyJ" not in (tmp_path / "audit.jsonl").read_text() + log
