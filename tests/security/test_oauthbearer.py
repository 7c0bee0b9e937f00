"""Signed bearer tokens at a real broker: keys in a file that its issuer changes, our client and librdkafka's."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

from penstock.client.errors import NotAuthorized
from penstock.client.wire.admin import Admin
from penstock.testing.nodes import start_node

pytest.importorskip("joserfc", reason="the extra penstock[security] is not installed")


def test_signed_tokens(tmp_path: os.PathLike[str]) -> None:
    from confluent_kafka import Producer
    from joserfc import jwt
    from joserfc.jwk import RSAKey

    key, stranger = (RSAKey.generate_key(2048, {"kid": kid}) for kid in ("ours", "ours"))
    keys, token_file = (os.path.join(tmp_path, name) for name in ("jwks.json", "token"))
    with open(keys, "w", encoding="ascii") as file:
        json.dump({"keys": [key.as_dict(private=False)]}, file)

    def token(signer: Any = key, **changes: Any) -> str:
        now = int(time.time())
        claims = {"sub": "alice", "aud": "kafka", "iss": "tests", "iat": now, "exp": now + 3600, **changes}
        return jwt.encode({"alg": "RS256", "kid": "ours"}, claims, signer)

    def admin_with(text: str) -> Admin:
        with open(token_file, "w", encoding="ascii") as file:
            file.write(text + "\n")
        return Admin(node.bootstrap, options=client)

    with open(token_file, "w", encoding="ascii") as file:
        file.write(token())
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "tests",
    }
    client = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"file://{token_file}",
    }
    with start_node(os.path.join(tmp_path, "node"), properties=properties, client_options=client) as node:
        with admin_with(token()) as admin:
            admin.topics.create("t", partitions=1)
        now = int(time.time())
        for bad in (token(stranger), token(exp=now - 100), token(aud="other"), token(iss="other"), "not.a.token"):
            with admin_with(bad) as admin, pytest.raises(NotAuthorized, match="invalid_token"):
                admin.topics.list()
            assert bad not in node.log_text()
        delivered: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (token(), time.time() + 3600),
            }
        )
        producer.produce("t", b"hello", on_delivery=lambda error, _: delivered.append(error))
        assert producer.flush(30) == 0
        assert delivered == [None]
