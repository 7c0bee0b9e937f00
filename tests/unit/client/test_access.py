"""References in bootstrap addresses, files and profiles with client settings, and what librdkafka gets of them."""

from __future__ import annotations

import datetime
from pathlib import Path

import confluent_kafka
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from penstock.client.access import Access, Reference, completed, open_access, parse_reference, with_source
from penstock.client.errors import BadSetting
from penstock.client.librdkafka.security import settings_of, with_librdkafka_names
from penstock.tls.authority import Authority, Issued

NOW = datetime.datetime.now(datetime.UTC)
SECRET = "correct horse"
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{SECRET}";'
FILE = f"""
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={JAAS[:70]}\\
    {JAAS[70:]}
ssl.truststore.type=PEM
ssl.truststore.location=/etc/ca.pem
ssl.endpoint.identification.algorithm=
key.serializer=org.example.Serializer
"""


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "profiles.toml"
    path.write_text(
        """
[prod]
bootstrap.servers = "one:9093,two:9093"
security.protocol = "SSL"
"ssl.truststore.type" = "PEM"
config = "prod.properties"

[bare]
security.protocol = "SSL"
"""
    )
    (tmp_path / "prod.properties").write_text(FILE)
    for each in tmp_path.iterdir():
        each.chmod(0o600)
    monkeypatch.setenv("PENSTOCK_PROFILES", str(path))
    return path


@pytest.mark.parametrize(
    "text",
    [
        "one:1,two:2",
        "@prod",
        "one:1@prod",
        "@/etc/x.properties",
        "@./x",
        "one:1@?security.protocol=SSL&ssl.protocol=TLS",
    ],
)
def test_a_reference_is_its_text(text: str) -> None:
    assert str(parse_reference(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one:1@", "after @ comes the name of a profile"),
        ("@pr od", "a profile's name is made of"),
        (f"one:1@?sasl.password={SECRET}", "sasl.password is a secret"),
        (f"one:1@prod?sasl.jaas.config={SECRET}", "sasl.jaas.config is a secret"),
        (f"@?ssl.keystore.key={SECRET}", "ssl.keystore.key is a secret"),
    ],
)
def test_a_reference_contains_no_secret(text: str, message: str) -> None:
    with pytest.raises(BadSetting, match=message) as refusal:
        parse_reference(text)
    assert SECRET not in str(refusal.value)


def test_a_profile_has_settings_of_its_own_and_of_a_file(profiles: Path) -> None:
    access = open_access("@prod", {"client.id": "me"})

    assert access.bootstrap == "one:9093,two:9093"
    assert access.properties["security.protocol"] == "SSL"  # overrides the file
    assert access.properties["sasl.jaas.config"] == JAAS
    assert access.properties["client.id"] == "me"
    assert SECRET not in repr(access)
    assert open_access("three:1@prod").bootstrap == "three:1"
    assert completed("@prod", "four:1") == "@prod"
    assert completed("@bare", "four:1") == "four:1@bare"
    assert with_source("one:1", "prod") == str(Reference("one:1", "prod"))


@pytest.mark.parametrize("name", ["profiles.toml", "prod.properties"])
def test_files_of_profiles_are_private(profiles: Path, name: str) -> None:
    path = profiles.parent / name
    path.chmod(0o640)
    with pytest.raises(BadSetting, match=f"other users can reach it: chmod 600 {path}"):
        open_access("@prod")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@test", "has no profile test; there are: bare, prod"),
        ("@bare", "@bare has no bootstrap.servers"),
        ("@/no/such/file", "/no/such/file: No such file"),
    ],
)
def test_what_cannot_be_resolved(profiles: Path, text: str, message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        open_access(text)


def test_librdkafka_gets_its_own_names(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(FILE)

    assert settings_of(open_access(f"one:1@{path}")) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": SECRET,
        "ssl.ca.location": "/etc/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    own = {"ssl.ca.location": "/etc/other.pem", "linger.ms": 5, "ssl.keystore.location": "/etc/key.p12"}
    assert with_librdkafka_names(own) == own


def pkcs12_store(issued: Issued, password: str) -> bytes:
    key = load_pem_private_key(issued.key.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(issued.certificate.encode())
    encryption = BestAvailableEncryption(password.encode())
    return pkcs12.serialize_key_and_certificates(b"key", key, certificate, None, encryption)


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])  # JKS is Java's default, and the file may be of the other type
def test_librdkafka_gets_stores_in_memory(tmp_path: Path, kind: str) -> None:
    authority = Authority.create("CA", NOW)
    path = tmp_path / "keys.p12"
    path.write_bytes(pkcs12_store(authority.issue("client", [], NOW), SECRET))
    found = settings_of(
        Access(
            "one:1",
            {
                "security.protocol": "SSL",
                "ssl.truststore.certificates": authority.certificate.replace("\n", " "),
                "ssl.keystore.type": kind,
                "ssl.keystore.location": str(path),
                "ssl.keystore.password": SECRET,
            },
        )
    )

    assert set(found) == {"security.protocol", "ssl.ca.pem", "ssl.key.pem", "ssl.certificate.pem"}
    confluent_kafka.Producer({"bootstrap.servers": "127.0.0.1:1", **found})  # it reads the key and the certificates


def test_librdkafka_has_no_delegation_tokens() -> None:
    by_token = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": JAAS.replace(";", ' tokenauth="true";')}
    with pytest.raises(BadSetting, match="cannot log in with a delegation token") as refusal:
        with_librdkafka_names(by_token)
    assert SECRET not in str(refusal.value)
