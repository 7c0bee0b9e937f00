"""Values of server.properties that are in files and in the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.server_properties import read_server_properties
from penstock.model.errors import ErrorCode, KafkaError
from penstock.settings.explain import BrokerLayers, explain_broker
from penstock.settings.node import NodeSettings

PACKAGE = "org.apache.kafka.common.config.provider"
MINIMAL = "node.id=1\nprocess.roles=broker,controller\n"


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "node.properties").write_text("password=from a file\nkey: ${env:OTHER}\n")
    (tmp_path / "secrets" / "token").write_text("from a directory")
    monkeypatch.setenv("HEAP_OF_SECRETS", "from the environment")
    monkeypatch.delenv("OTHER", raising=False)
    return tmp_path / "secrets"


def read(directory: Path, *lines: str) -> dict[str, str]:
    providers = {"file": "FileConfigProvider", "dir": "DirectoryConfigProvider", "env": "EnvVarConfigProvider"}
    classes = [f"config.providers.{name}.class={PACKAGE}.{each}" for name, each in providers.items()]
    path = directory / "server.properties"
    path.write_text(MINIMAL + "\n".join(["config.providers=file,dir,env", *classes, *lines]))
    return read_server_properties(str(path))


def refusal(directory: Path, *lines: str) -> str:
    with pytest.raises(KafkaError) as caught:
        read(directory, *lines)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value.message


def test_values_come_from_files_directories_and_the_environment(secrets: Path) -> None:
    found = read(
        secrets,
        f"ssl.keystore.password=${{file:{secrets}/node.properties:password}}",
        f"ssl.key.password=${{file:{secrets}/node.properties:key}}",
        f"delegation.token.secret.key=${{dir:{secrets}:token}}",
        "log.dirs=/data/${env:HEAP_OF_SECRETS}/and ${env:HEAP_OF_SECRETS}",
        "ssl.principal.mapping.rules=RULE:^CN=(.*)$/${other:x}$1/",
    )
    assert found["ssl.keystore.password"] == "from a file"
    assert found["ssl.key.password"] == "${env:OTHER}"  # a value is not read again for references
    assert found["delegation.token.secret.key"] == "from a directory"
    assert found["log.dirs"] == "/data/from the environment/and from the environment"
    assert found["ssl.principal.mapping.rules"] == "RULE:^CN=(.*)$/${other:x}$1/"


def test_secrets_are_not_described(secrets: Path) -> None:
    lines = (
        f"ssl.key.password=${{file:{secrets}/node.properties:password}}",
        f"listener.name.clients.ssl.key.password=${{file:{secrets}/node.properties:password}}",
    )
    settings = NodeSettings.from_properties(read(secrets, *lines))
    assert settings.ssl_key_password == "from a file"
    layers = BrokerLayers(settings.properties, {}, {"listener.name.clients.ssl.keystore.password": "from a file"})
    described = explain_broker(layers)
    assert {each.name for each in described} >= {"ssl.key.password", "config.providers"}
    assert "from a file" not in repr(described)
    assert "from a file" not in repr(settings.notices)
    assert not settings.notices


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ssl.key.password=${env:OTHER}", "${env:OTHER}: there is no such variable"),
        ("ssl.key.password=${env:a:OTHER}", "has no path"),
        ("ssl.key.password=${file:/nowhere:key}", "ssl.key.password: ${file:/nowhere:key}: No such file or directory"),
        ("ssl.key.password=${file:SECRETS/node.properties:other}", "the file has no such key"),
        ("ssl.key.password=${file:key}", "it needs a path and a key"),
        ("ssl.key.password=${dir:SECRETS:../secrets/token}", "the name of a file in the directory"),
        ("config.providers.env.class=org.example.Vault", "config.providers.env.class: there are only"),
        ("config.providers=file,dir,env,vault", "config.providers.vault.class: there are only"),
        (
            "config.providers.file.param.allowed.paths=/run/secrets\nlog.dirs=${file:SECRETS/node.properties:password}",
            "allowed.paths does not allow this path",
        ),
        (
            "config.providers.env.param.allowlist.pattern=KAFKA_.*\nlog.dirs=${env:HEAP_OF_SECRETS}",
            "allowlist.pattern does not allow this variable",
        ),
    ],
)
def test_a_value_that_is_not_there_is_refused(secrets: Path, line: str, message: str) -> None:
    text = refusal(secrets, line.replace("SECRETS/", f"{secrets}/").replace("SECRETS:", f"{secrets}:"))
    assert message in text
    assert "from" not in text.replace(str(secrets), "")


def test_a_reference_to_no_provider_is_noticed() -> None:
    settings = NodeSettings.from_properties(
        {"node.id": "1", "process.roles": "broker,controller", "ssl.key.password": "${file:/a:b}"}
    )
    assert settings.ssl_key_password == "${file:/a:b}"  # as in Kafka
    assert any("config.providers does not name" in notice for notice in settings.notices)


def test_only_the_principal_builder_that_we_have_is_accepted() -> None:
    minimal = {"node.id": "1", "process.roles": "broker,controller"}
    builder = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    NodeSettings.from_properties({**minimal, "principal.builder.class": builder})
    for name in ("principal.builder.class", "listener.name.clients.principal.builder.class"):
        with pytest.raises(KafkaError, match="asks for a principal builder in Java"):
            NodeSettings.from_properties({**minimal, name: "org.example.Builder"})
