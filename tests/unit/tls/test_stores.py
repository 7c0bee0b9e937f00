"""Stores made by Java's keytool and by OpenSSL are read as they were written; damaged ones get a clear error."""

from __future__ import annotations

import contextlib
import datetime
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from hypothesis import given
from hypothesis import strategies as st

from penstock.tls import jks
from penstock.tls.authority import Authority
from penstock.tls.stores import StoreError, certificates_from_pem, read_key_store, read_trust_store

needs_keytool = pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool (a JDK) is not installed")

NOW = datetime.datetime.now(datetime.UTC)
CA = Authority.create("Test CA", NOW)
NODE = CA.issue("node-1", ["localhost", "127.0.0.1"], NOW)
KEY = load_pem_private_key(NODE.key.encode(), None)
CERTIFICATE = x509.load_pem_x509_certificate(NODE.certificate.encode())
CA_CERTIFICATE = x509.load_pem_x509_certificate(CA.certificate.encode())


def numbers(key: object) -> ec.EllipticCurvePrivateNumbers:
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key.private_numbers()


def encrypted(password: str) -> str:
    return KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())).decode()


@pytest.mark.parametrize("password", [None, "geheim"])
def test_pem(tmp_path: Path, password: str | None) -> None:
    store = tmp_path / "node.pem"
    store.write_text((encrypted(password) if password else NODE.key) + NODE.certificate + CA.certificate)
    pair = read_key_store(store, "PEM", None, password)
    assert pair.chain == (CERTIFICATE, CA_CERTIFICATE)
    assert numbers(pair.key) == numbers(KEY)


def test_pem_with_the_wrong_password(tmp_path: Path) -> None:
    store = tmp_path / "node.pem"
    store.write_text(encrypted("geheim") + NODE.certificate)
    with pytest.raises(StoreError, match="its password is wrong"):
        read_key_store(store, "PEM", None, "falsch")
    with pytest.raises(StoreError, match="its password is not set"):
        read_key_store(store, "PEM", None, None)


def test_a_key_that_belongs_to_another_certificate(tmp_path: Path) -> None:
    store = tmp_path / "node.pem"
    store.write_text(NODE.key + CA.certificate)
    with pytest.raises(StoreError, match="does not belong to the first certificate"):
        read_key_store(store, "PEM", None, None)


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        read_trust_store(tmp_path / "none.pem", "PEM", None)


def pkcs12_store(path: Path) -> Path:
    assert isinstance(KEY, ec.EllipticCurvePrivateKey)
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"node", KEY, CERTIFICATE, [CA_CERTIFICATE], BestAvailableEncryption(b"geheim")
        )
    )
    return path


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_under_either_name(tmp_path: Path, kind: str) -> None:
    pair = read_key_store(pkcs12_store(tmp_path / "node.p12"), kind, "geheim", None)
    assert pair.chain == (CERTIFICATE, CA_CERTIFICATE)


def test_pkcs12_with_the_wrong_password(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the password is wrong"):
        read_key_store(pkcs12_store(tmp_path / "node.p12"), "PKCS12", "falsch", None)


def keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments], check=True, capture_output=True, timeout=60)


@needs_keytool
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_stores_of_keytool(tmp_path: Path, kind: str) -> None:
    source, store = pkcs12_store(tmp_path / "source.p12"), tmp_path / "store"
    key_password = "anders1" if kind == "JKS" else "geheim1"  # keytool allows two passwords in JKS only
    keytool(
        "-importkeystore", "-noprompt", "-srckeystore", str(source), "-srcstoretype", "PKCS12",
        "-srcstorepass", "geheim",
        "-destkeystore", str(store), "-deststoretype", kind, "-deststorepass", "geheim1", "-destkeypass", key_password,
        "-srcalias", "node",
    )  # fmt: skip
    pair = read_key_store(store, kind, "geheim1", key_password)
    assert pair.certificate == CERTIFICATE
    assert numbers(pair.key) == numbers(KEY)
    with pytest.raises(StoreError, match="password is wrong"):
        read_key_store(store, kind, "geheim2", key_password)
    if kind == "JKS":
        with pytest.raises(StoreError, match="password is wrong"):
            read_key_store(store, kind, "geheim1", None)

    (tmp_path / "ca.pem").write_text(CA.certificate)
    trust = tmp_path / "trust"
    keytool(
        "-importcert", "-noprompt", "-alias", "ca", "-file", str(tmp_path / "ca.pem"), "-keystore", str(trust),
        "-storetype", kind, "-storepass", "geheim1",
    )  # fmt: skip
    assert read_trust_store(trust, kind, "geheim1") == (CA_CERTIFICATE,)


@given(st.binary(max_size=200), st.one_of(st.none(), st.text(max_size=5)))
def test_any_bytes_are_read_or_refused(body: bytes, password: str | None) -> None:
    with contextlib.suppress(jks.JksError):
        jks.read(b"\xfe\xed\xfe\xed\0\0\0\2" + body, password)


@given(st.binary(max_size=100), st.text(max_size=5))
def test_any_protected_key_is_read_or_refused(protected: bytes, password: str) -> None:
    with pytest.raises(jks.JksError):
        jks.KeyEntry("node", protected, ()).decrypted(password)


def test_text_that_is_no_certificate() -> None:
    with pytest.raises(StoreError, match=r"ssl\.truststore\.certificates: it contains no PEM certificate"):
        certificates_from_pem("hello", source="ssl.truststore.certificates")
