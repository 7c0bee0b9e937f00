"""Contexts made from settings: what is accepted, what is refused, and how they are renewed while they are used."""

from __future__ import annotations

import datetime
import os
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.settings.tls import TlsSettings, tls_of_listener
from penstock.tls.authority import Authority, Issued
from penstock.tls.contexts import TlsContexts, client_context, openssl_name
from penstock.tls.stores import StoreError

NOW = datetime.datetime.now(datetime.UTC)
CA = Authority.create("Test CA", NOW)
OTHER_CA = Authority.create("Other CA", NOW)


def node(name: str = "node-1", *hosts: str, authority: Authority = CA) -> Issued:
    return authority.issue(name, hosts or ("localhost",), NOW)


def settings(tmp_path: Path, issued: Issued, **changes: str | bool | tuple[str, ...]) -> TlsSettings:
    (tmp_path / "node.pem").write_text(issued.pem)
    (tmp_path / "ca.pem").write_text(CA.certificate)
    stores = {
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": str(tmp_path / "node.pem"),
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": str(tmp_path / "ca.pem"),
    }
    return TlsSettings(**{**stores, **changes})  # type: ignore[arg-type]


def shake(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a connection after the handshake; ssl.SSLError of the end that refuses it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepted = server.wrap_bio(to_server, to_client, server_side=True)
    connected = client.wrap_bio(to_client, to_server, server_hostname=host)
    done: set[ssl.SSLObject] = set()
    for _ in range(10):
        for end in (connected, accepted):
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                continue
        if len(done) == 2:
            return accepted, connected
    raise AssertionError("the handshake does not end")


def certificate_name(end: ssl.SSLObject) -> str:
    certificate = end.getpeercert()
    assert certificate is not None
    subject = certificate["subject"]
    assert isinstance(subject, tuple)
    return str(subject[0][0][1])


def client(**changes: Any) -> ssl.SSLContext:
    return client_context(TlsSettings(ssl_truststore_certificates=CA.certificate, **changes))


def test_the_client_knows_whom_it_talks_to(tmp_path: Path) -> None:
    contexts = TlsContexts(settings(tmp_path, node()))
    _, connected = shake(contexts.accepting, client())
    assert certificate_name(connected) == "node-1"


def test_another_host_name_is_refused_unless_any_is_allowed(tmp_path: Path) -> None:
    contexts = TlsContexts(settings(tmp_path, node()))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake(contexts.accepting, client(), "elsewhere")
    shake(contexts.accepting, client(ssl_endpoint_identification_algorithm=""), "elsewhere")


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    contexts = TlsContexts(settings(tmp_path, node(authority=OTHER_CA)))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(contexts.accepting, client())


@pytest.mark.parametrize("wanted", ["none", "requested", "required"])
def test_certificates_of_clients(tmp_path: Path, wanted: str) -> None:
    contexts = TlsContexts(settings(tmp_path, node(), ssl_client_auth=wanted))
    alice = CA.issue("alice", (), NOW)
    with_certificate = client(ssl_keystore_key=alice.key, ssl_keystore_certificate_chain=alice.certificate)
    accepted, _ = shake(contexts.accepting, with_certificate)
    assert bool(accepted.getpeercert(binary_form=True)) == (wanted != "none")
    if wanted == "required":
        with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            shake(contexts.accepting, client())
    else:
        accepted, _ = shake(contexts.accepting, client())
        assert accepted.getpeercert(binary_form=True) is None
    if wanted != "none":
        mallory = OTHER_CA.issue("alice", (), NOW)
        with pytest.raises(ssl.SSLCertVerificationError):
            shake(
                contexts.accepting,
                client(ssl_keystore_key=mallory.key, ssl_keystore_certificate_chain=mallory.certificate),
            )


def test_pem_in_one_line_of_a_properties_file() -> None:
    issued = node()
    properties = {
        "ssl.keystore.key": issued.key.replace("\n", " "),
        "listener.name.tls.ssl.keystore.certificate.chain": issued.certificate.replace("\n", " "),
        "ssl.keystore.certificate.chain": "overridden",
        "ssl.truststore.certificates": CA.certificate.replace("\n", " "),
    }
    contexts = TlsContexts(tls_of_listener("TLS", properties))
    shake(contexts.accepting, client())


def test_client_certificates_on_a_listener_with_sasl_are_asked_for_by_its_own_setting_only() -> None:
    properties = {"ssl.client.auth": "required"}
    assert tls_of_listener("A", properties).ssl_client_auth == "required"
    assert tls_of_listener("A", properties, with_sasl=True).ssl_client_auth == "none"
    properties["listener.name.a.ssl.client.auth"] = "requested"
    assert tls_of_listener("A", properties, with_sasl=True).ssl_client_auth == "requested"


def test_a_changed_file_is_used_for_new_connections(tmp_path: Path) -> None:
    given = settings(tmp_path, node())
    contexts = TlsContexts(given)
    assert not contexts.renew()
    before = Path(given.ssl_keystore_location)
    renewed = CA.issue("node-1", ("localhost", "127.0.0.1"), NOW)
    before.write_text(renewed.pem)
    assert contexts.renew()
    assert not contexts.renew()
    _, connected = shake(contexts.accepting, client())
    expected = ssl.PEM_cert_to_DER_cert(renewed.certificate)
    assert connected.getpeercert(binary_form=True) == expected
    _, connected = shake(contexts.accepting, contexts.connecting)
    assert connected.getpeercert(binary_form=True) == expected


def test_changed_trust_is_used_for_new_connections_and_old_trust_is_forgotten(tmp_path: Path) -> None:
    given = settings(tmp_path, node(), ssl_client_auth="required")
    contexts = TlsContexts(given)
    alice = CA.issue("alice", (), NOW)
    with_certificate = client(ssl_keystore_key=alice.key, ssl_keystore_certificate_chain=alice.certificate)
    shake(contexts.accepting, with_certificate)
    Path(given.ssl_truststore_location).write_text(OTHER_CA.certificate)
    assert contexts.renew()
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(contexts.accepting, with_certificate)


def test_a_renewed_certificate_keeps_its_names(tmp_path: Path) -> None:
    given = settings(tmp_path, node("node-1", "localhost", "one"))
    contexts = TlsContexts(given)
    store = Path(given.ssl_keystore_location)
    store.write_text(node("node-2", "localhost", "one").pem)
    with pytest.raises(StoreError, match=r"the new certificate is of CN=node-2.*ssl\.allow\.dn\.changes"):
        contexts.renew()
    store.write_text(node("node-1", "localhost").pem)
    with pytest.raises(StoreError, match=r"lacks subject alternative names.*one.*ssl\.allow\.san\.changes"):
        contexts.renew()
    _, connected = shake(contexts.accepting, client())
    assert certificate_name(connected) == "node-1"
    os.unlink(store)
    with pytest.raises(StoreError, match="No such file"):
        contexts.renew()
    assert not contexts.renew()
    shake(contexts.accepting, client())


def test_stores_are_checked_before_they_are_used(tmp_path: Path) -> None:
    given = settings(tmp_path, node())
    contexts = TlsContexts(given)
    foreign = node(authority=OTHER_CA)
    inline = replace(
        given,
        ssl_keystore_location="",
        ssl_keystore_key=foreign.key,
        ssl_keystore_certificate_chain=foreign.certificate,
    )
    contexts.check(given, trusts_itself=True)
    contexts.check(inline, trusts_itself=False)
    with pytest.raises(StoreError, match=r"would not accept each other's certificates .*let them trust both"):
        contexts.check(inline, trusts_itself=True)
    both = replace(
        inline, ssl_truststore_location="", ssl_truststore_certificates=CA.certificate + OTHER_CA.certificate
    )
    contexts.check(both, trusts_itself=True)
    contexts.check(replace(both, ssl_client_auth="required"), trusts_itself=True)
    with pytest.raises(StoreError, match="of CN=node-2"):
        contexts.check(settings(tmp_path, node("node-2")), trusts_itself=False)
    _, connected = shake(contexts.accepting, client())
    assert certificate_name(connected) == "node-1"


def test_a_listener_without_a_certificate(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"set ssl\.keystore\.location"):
        TlsContexts(TlsSettings())


def test_versions_and_cipher_suites(tmp_path: Path) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    given = settings(tmp_path, node(), ssl_enabled_protocols=("TLSv1.2",), ssl_cipher_suites=(suite,))
    accepted, _ = shake(TlsContexts(given).accepting, client())
    assert accepted.version() == "TLSv1.2"
    assert accepted.cipher() == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2", 256)
    with pytest.raises(StoreError, match="no cipher suite TLS_NONSENSE_WITH_ROT13"):
        TlsContexts(settings(tmp_path, node(), ssl_cipher_suites=("TLS_NONSENSE_WITH_ROT13",)))
    only_new = settings(tmp_path, node(), ssl_cipher_suites=("TLS_AES_128_GCM_SHA256",))
    accepted, _ = shake(TlsContexts(only_new).accepting, client())
    assert accepted.version() == "TLSv1.3"


@pytest.mark.parametrize(
    ("standard", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_names_of_cipher_suites(standard: str, openssl: str) -> None:
    assert openssl_name(standard) == openssl
