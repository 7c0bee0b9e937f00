"""Plug-ins for passwords: the file that is read again, entry points, and the arguments of --add-scram."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import pytest

from penstock.broker.authentication import listener_authentication
from penstock.broker.authentication.authenticators import load_authenticator
from penstock.broker.authentication.listener_authentication import ListenerAuthentications
from penstock.broker.authentication.password_file import PasswordFile, hash_password
from penstock.broker.metadata.scram_arguments import BadScramArgument, scram_record_of
from penstock.metadata.image import EMPTY_IMAGE
from penstock.model.errors import KafkaError
from penstock.security.credentials import ScramMechanism, new_credential
from penstock.settings.node import NodeSettings
from penstock.simulator.twins.clock import SimulatedClock, SimulatedRandomness
from penstock.simulator.twins.loop import SimulatedLoop, simulate


def write(path: str, users: Mapping[str, str], extra: str = "") -> None:
    """As an editor does: a new file in the place of the old one."""
    lines = [f"{user}:{hash_password(password, b'salt')}\n" for user, password in users.items()]
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write("# users\n\n" + "".join(lines) + extra)
    os.replace(f"{path}.new", path)


def test_a_password_file_is_read_again(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "passwords")
    write(path, {"alice": "one"})
    check = load_authenticator("password-file", {"path": path})
    assert check("alice", "one")
    assert not check("alice", "two")
    assert not check("bob", "one")
    write(path, {"alice": "two", "bob": "three"})
    assert check("alice", "two")
    assert check("bob", "three")
    assert not check("alice", "one")


def test_a_malformed_file_leaves_the_users_as_they_were(
    tmp_path: os.PathLike[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = os.path.join(tmp_path, "passwords")
    write(path, {"alice": "one"})
    check = PasswordFile({"path": path})
    write(path, {"bob": "two"}, "carol:plain text password\n")
    assert check("alice", "one")
    assert not check("bob", "two")
    os.unlink(path)
    assert check("alice", "one")
    assert "line 4 is not" in caplog.text
    assert "plain text password" not in caplog.text


@pytest.mark.parametrize("line", ["x:$scrypt$n=15,r=8,p=1$AAAA$AAAA", "x:$scrypt$n=9999999,r=99,p=1$AAAA$AAAA", "x:y"])
def test_lines_that_are_refused(tmp_path: os.PathLike[str], line: str) -> None:
    path = os.path.join(tmp_path, "passwords")
    write(path, {}, line)
    with pytest.raises(KafkaError, match="line 3"):
        load_authenticator("password-file", {"path": path})


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(KafkaError, match=r"password-file\.path is not set"):
        load_authenticator("password-file", {})
    with pytest.raises(KafkaError, match="nowhere"):
        load_authenticator("password-file", {"path": "/nowhere/passwords"})


def test_a_plug_in_of_another_package(tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch) -> None:
    info = os.path.join(tmp_path, "directory_service-1.0.dist-info")
    os.mkdir(info)
    with open(os.path.join(info, "METADATA"), "w", encoding="ascii") as file:
        file.write("Metadata-Version: 2.1\nName: directory-service\nVersion: 1.0\n")
    with open(os.path.join(info, "entry_points.txt"), "w", encoding="ascii") as file:
        file.write("[penstock.authenticators]\ndirectory = directory_service:authenticator\n")
    with open(os.path.join(tmp_path, "directory_service.py"), "w", encoding="ascii") as file:
        file.write(
            "def authenticator(options):\n    return lambda user, password: password == options['suffix'] + user\n"
        )
    monkeypatch.setattr(sys, "path", [os.fspath(tmp_path), *sys.path])
    check = load_authenticator("directory", {"suffix": "the "})
    assert check("alice", "the alice")
    assert not check("alice", "the bob")


def test_an_unknown_plug_in() -> None:
    with pytest.raises(KafkaError, match=r"there are: .*password-file"):
        load_authenticator("ldap", {})


# -- --add-scram ------------------------------------------------------------------------------------------------------


def test_users_on_the_command_line() -> None:
    record = scram_record_of("SCRAM-SHA-512=[name=alice,password=secret,iterations=5000]", read_password=str)
    made = new_credential(ScramMechanism.SCRAM_SHA_512, "secret", record.salt, 5000)
    assert (record.name, record.mechanism, record.iterations) == ("alice", 2, 5000)
    assert (record.stored_key, record.server_key) == (made.stored_key, made.server_key)


def test_a_password_that_is_read_and_one_that_is_salted_already() -> None:
    record = scram_record_of("SCRAM-SHA-256=[name=alice]", read_password=lambda user: f"{user}s password")
    made = new_credential(ScramMechanism.SCRAM_SHA_256, "alices password", record.salt)
    assert record.stored_key == made.stored_key
    salted = 'SCRAM-SHA-256=[name="alice",iterations=4096,salt="c2FsdA==",saltedpassword="AAAA"]'
    assert scram_record_of(salted, read_password=str).salt == b"salt"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "PLAIN=[name=a,password=secret]",
        "SCRAM-SHA-256=[password=secret]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=10]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=99999]",
        "SCRAM-SHA-256=[name=a,name=b,password=secret]",
        "SCRAM-SHA-256=[name=a,colour=blue,password=secret]",
        "SCRAM-SHA-256=[name=a,saltedpassword=AAAA]",
        "SCRAM-SHA-256=[name=a,salt=!,password=secret]",
    ],
)
def test_arguments_that_are_refused_without_their_secrets(text: str) -> None:
    with pytest.raises(BadScramArgument) as refused:
        scram_record_of(text, read_password=str)
    assert "secret" not in str(refused.value)


def test_bearer_tokens_need_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_authentication, "find_spec", lambda name: None)
    settings = NodeSettings.from_properties(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "SASL_PLAINTEXT://:9092",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "penstock.sasl.oauthbearer.allow.unsecured.tokens": "true",
        }
    )

    async def program(loop: SimulatedLoop) -> None:
        authentications = ListenerAuthentications(
            settings,
            loop=loop,
            clock=SimulatedClock(elapsed=loop.time),
            randomness=SimulatedRandomness("seed"),
            image=lambda: EMPTY_IMAGE,
        )
        with pytest.raises(KafkaError, match=r"pip install 'penstock\[security\]'"):
            authentications.gates_of(settings.endpoints[0])

    simulate(program)
