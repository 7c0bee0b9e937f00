"""Clients at a broker that asks for a login: the mechanisms with the libraries that people use, and wrong input."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client.errors import ClientError, NotAuthorized
from penstock.client.wire.admin import Admin
from penstock.client.wire.connection import Connection
from penstock.client.wire.login import login_from
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.frames import encode_request
from penstock.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.testing.nodes import RunningNode, start_node
from security.sasl_world import ADMIN_PASSWORD, NODE, SCRAM_MODULE, options

TOPIC = "greetings"
ALICE_PASSWORD = "alices password"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    directory = tmp_path_factory.mktemp("broker")
    with start_node(directory, properties=NODE, client_options=options()) as node:
        with Admin(node.bootstrap, options=options()) as admin:
            admin.topics.create(TOPIC, partitions=1)
            for mechanism in MECHANISMS[1:]:
                admin.users.set_password("alice", ALICE_PASSWORD, mechanism=mechanism)
        yield node


def login(mechanism: str) -> dict[str, str]:
    return options() if mechanism == "PLAIN" else options(mechanism, "alice", ALICE_PASSWORD)


def unsecured_token(subject: str, lifetime_s: int = 3600) -> str:
    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': subject, 'iat': now, 'exp': now + lifetime_s})}."


# -- our own client ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_client(broker: RunningNode, mechanism: str) -> None:
    with Admin(broker.bootstrap, options=login(mechanism)) as admin:
        assert TOPIC in [topic.name for topic in admin.topics.list()]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password(broker: RunningNode, mechanism: str) -> None:
    wrong = {**login(mechanism), "sasl.password": "a wrong one"}
    with Admin(broker.bootstrap, options=wrong) as admin, pytest.raises(NotAuthorized, match="Authentication failed"):
        admin.topics.list()
    assert "a wrong one" not in broker.log_text()


def test_a_client_that_does_not_log_in(broker: RunningNode) -> None:
    with (
        Admin(broker.bootstrap) as admin,
        pytest.raises(ClientError, match="closed the connection: it may ask for TLS"),
    ):
        admin.topics.list()


def test_a_user_is_removed(broker: RunningNode) -> None:
    with Admin(broker.bootstrap, options=options()) as admin:
        admin.users.set_password("mallory", "x", mechanism="SCRAM-SHA-256")
        with Admin(broker.bootstrap, options=options("SCRAM-SHA-256", "mallory", "x")) as mallory:
            mallory.topics.list()
        assert [user.name for user in admin.users.list()] == ["alice", "mallory"]
        admin.users.remove("mallory", mechanism="SCRAM-SHA-256")
        with pytest.raises(KafkaError) as caught:
            admin.users.remove("mallory", mechanism="SCRAM-SHA-256")
        assert caught.value.code is ErrorCode.RESOURCE_NOT_FOUND
    with (
        Admin(broker.bootstrap, options=options("SCRAM-SHA-256", "mallory", "x")) as mallory,
        pytest.raises(NotAuthorized),
    ):
        mallory.topics.list()


# -- delegation tokens ------------------------------------------------------------------------------------------------


def test_a_delegation_token(broker: RunningNode) -> None:
    with Admin(broker.bootstrap, options=login("SCRAM-SHA-512")) as admin:
        token = admin.tokens.create(renewers=["User:admin"], max_lifetime_ms=600_000)
        assert token.owner == "User:alice"
        assert [each.token_id for each in admin.tokens.list()] == [token.token_id]
    password = base64.b64encode(token.hmac).decode()
    with_token = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": (
            f'{SCRAM_MODULE} required username="{token.token_id}" password="{password}" tokenauth="true";'
        ),
    }
    with Admin(broker.bootstrap, options=with_token) as admin:
        assert TOPIC in [topic.name for topic in admin.topics.list()]
        with pytest.raises(KafkaError) as caught:  # a token does not make tokens
            admin.tokens.create()
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    with Admin(broker.bootstrap, options=options()) as admin:
        assert admin.tokens.renew(token.hmac, 60_000) <= token.max_at_ms
        admin.tokens.expire(token.hmac)
        assert admin.tokens.list() == []
    with Admin(broker.bootstrap, options=with_token) as admin, pytest.raises(NotAuthorized):
        admin.topics.list()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_tokens_in_every_version(broker: RunningNode, version: int) -> None:
    host, port = broker.host, broker.port
    with Connection(host, port, login=login_from(options())) as connection:
        request = CreateDelegationTokenRequest(max_lifetime_ms=60_000)
        made = connection.request(request, CreateDelegationTokenResponse, newest=version)
        assert (made.error_code, made.principal_name) == (0, "admin")
        assert made.token_requester_principal_name == ("admin" if version >= 3 else "")
        found = connection.request(
            DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse, newest=version
        )
        assert made.token_id in [token.token_id for token in found.tokens]
        end = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
        assert connection.request(end, ExpireDelegationTokenResponse, newest=version).error_code == 0


# -- wrong input ------------------------------------------------------------------------------------------------------


def talk(broker: RunningNode, *frames: bytes) -> bytes:
    """Send these bytes; return everything that the broker sends until it closes."""
    with socket.create_connection((broker.host, broker.port), 30) as connection:
        answer = b""
        try:
            for frame in frames:
                connection.sendall(frame)
            while data := connection.recv(65536):
                answer += data
        except ConnectionResetError:
            pass
        return answer


HANDSHAKE = encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 7, "test")


@pytest.mark.parametrize(
    "frames",
    [
        [b"GET / HTTP/1.1\r\n\r\n"],
        [struct.pack(">i", 524_289)],
        [struct.pack(">i", -1)],
        [struct.pack(">i", 0)],
        [b"\0\0\0\x03abc"],
        [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 600],  # TLS
        [encode_request(MetadataRequest(), 12, 7, "test")],
        [encode_request(SaslAuthenticateRequest(auth_bytes=b"\0admin\0x"), 2, 7, "test")],
    ],
)
def test_bytes_that_are_no_login_close_the_connection(broker: RunningNode, frames: list[bytes]) -> None:
    assert talk(broker, *frames) == b""


def test_requests_behind_a_failed_login_are_not_handled(broker: RunningNode) -> None:
    refused = encode_request(SaslAuthenticateRequest(auth_bytes=b"\0admin\0wrong"), 2, 8, "test")
    behind = encode_request(MetadataRequest(), 12, 9, "test")
    right = encode_request(SaslAuthenticateRequest(auth_bytes=f"\0admin\0{ADMIN_PASSWORD}".encode()), 2, 10, "test")
    answer = talk(broker, HANDSHAKE + refused + behind + right + behind)
    (length,) = struct.unpack_from(">i", answer)
    assert struct.unpack_from(">i", answer, 4) == (7,)
    second = answer[4 + length :]
    assert struct.unpack_from(">i", second) == (len(second) - 4,), "there are two answers"
    assert struct.unpack_from(">i", second, 4) == (8,)
    assert struct.unpack_from(">h", second, 9) == (ErrorCode.SASL_AUTHENTICATION_FAILED,)


def test_a_login_in_pieces_and_a_request_right_behind_it(broker: RunningNode) -> None:
    right = encode_request(SaslAuthenticateRequest(auth_bytes=f"\0admin\0{ADMIN_PASSWORD}".encode()), 2, 8, "test")
    stream = HANDSHAKE + right + encode_request(MetadataRequest(topics=[]), 12, 9, "test")
    with socket.create_connection((broker.host, broker.port), 30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for position in range(0, len(stream), 7):
            connection.sendall(stream[position : position + 7])
        seen: list[int] = []
        while len(seen) < 3:
            (length,) = struct.unpack(">i", _exactly(connection, 4))
            seen.append(struct.unpack_from(">i", _exactly(connection, length))[0])
    assert seen == [7, 8, 9]


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        assert more, "the broker closed"
        data += more
    return data


@pytest.mark.parametrize("count", [200, pytest.param(9_000, marks=pytest.mark.soak)])
def test_silent_connections_cost_little(broker: RunningNode, count: int) -> None:
    """Connections that announce half a megabyte and send a few bytes of it."""
    before = _resident_kib(broker.pid)
    connections = [socket.create_connection((broker.host, broker.port), 30) for _ in range(count)]
    try:
        for connection in connections:
            connection.sendall(struct.pack(">i", 500_000) + b"x" * 100)
        with Admin(broker.bootstrap, options=options()) as admin:
            admin.topics.list()
        assert _resident_kib(broker.pid) - before < 20_000 + 20 * count
    finally:
        for connection in connections:
            connection.close()


def _resident_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


# -- the commands -----------------------------------------------------------------------------------------------------


def run(broker: RunningNode, *arguments: str, config: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "penstock",
            *arguments,
            "--bootstrap-server",
            broker.bootstrap,
            "--command-config",
            config,
        ],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_commands(broker: RunningNode, tmp_path: os.PathLike[str]) -> None:
    config = os.path.join(tmp_path, "admin.properties")
    with open(config, "w", encoding="utf-8") as file:
        file.write("".join(f"{name}={value}\n" for name, value in options().items()))
    done = run(broker, "users", "set-password", "dora", config=config, stdin="doras password\n")
    assert done.returncode == 0, done.stderr
    listed = run(broker, "users", "list", "--json", config=config)
    assert {"name": "dora", "mechanisms": {"SCRAM-SHA-512": 8192}} in json.loads(listed.stdout)
    with Admin(broker.bootstrap, options=options("SCRAM-SHA-512", "dora", "doras password")) as admin:
        admin.topics.list()
    (token,) = json.loads(run(broker, "tokens", "create", "--max-lifetime", "1h", "--json", config=config).stdout)
    assert token["owner"] == "User:admin"
    hidden = json.loads(run(broker, "tokens", "list", "--json", config=config).stdout)
    assert [each["hmac"] for each in hidden if each["token_id"] == token["token_id"]] == [None]
    assert run(broker, "tokens", "expire", "--hmac-file", "-", config=config, stdin=token["hmac"]).returncode == 0
    assert run(broker, "users", "remove", "dora", config=config).returncode == 0
