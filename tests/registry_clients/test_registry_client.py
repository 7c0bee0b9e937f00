"""The client of a registry: caches, retries, several addresses, authentication."""

from __future__ import annotations

import datetime
import os
import ssl
import threading
from pathlib import Path

import pytest

from penstock.client.errors import BadSetting
from penstock.client.registry import Registry
from penstock.client.secrets import SecretMissing
from penstock.serializers.registry_client import Reference, RegistryClient, Schema
from penstock.serializers.registry_http import RegistryError
from registry_server import FakeRegistry, fake_registry

TEXT = Schema('{"type":"string"}')


def test_schemas_are_asked_once(registry: FakeRegistry) -> None:
    client = RegistryClient(registry.url)
    first = client.register("a/b ü-value", TEXT)
    assert (first.id, first.version, first.subject) == (1, 1, "a/b ü-value")
    assert client.register("a/b ü-value", TEXT) is first
    assert client.by_id(1).schema == TEXT
    assert client.by_id(1).guid == first.guid
    assert client.by_guid(first.guid).schema == TEXT
    assert client.latest("a/b ü-value").id == client.latest("a/b ü-value").id == 1
    assert client.version("a/b ü-value", 1).schema == TEXT
    assert client.subjects_of(1) == client.subjects() == ["a/b ü-value"]
    assert client.subjects_of(7) == []
    assert client.name_of(1) == "schema id 1 (a/b ü-value version 1)"
    asked = [path for _, path in registry.requests]
    assert len(asked) == len(set(asked))
    client.close()


def test_an_unknown_id_is_not_asked_for_every_record(registry: FakeRegistry) -> None:
    client = RegistryClient(registry.url)
    for _ in range(3):
        with pytest.raises(RegistryError, match="no schema has the id 9") as caught:
            client.by_id(9)
        assert caught.value.status == 404
    assert len(registry.requests) == 1
    client.register("s", TEXT)  # what is registered now may be what was unknown
    with pytest.raises(RegistryError):
        client.by_id(9)
    assert len(registry.requests) == 3
    client.close()


def test_a_busy_registry_is_tried_again(registry: FakeRegistry) -> None:
    registry.failures = [503, 429]
    client = RegistryClient(registry.url)
    assert client.register("s", TEXT).id == 1
    assert len(registry.requests) == 3
    registry.failures = [500] * 10
    with pytest.raises(RegistryError, match=r"later \(50001\)") as caught:
        client.register("t", TEXT)
    assert caught.value.status == 500
    assert len(registry.requests) < 10
    client.close()


def test_a_refusal_is_not_repeated(registry: FakeRegistry) -> None:
    client = RegistryClient(registry.url)
    with pytest.raises(RegistryError, match=r"Subject 'gone' not found. \(40401\)") as caught:
        client.latest("gone")
    assert (caught.value.status, caught.value.code) == (404, 40401)
    assert len(registry.requests) == 1
    client.close()


def test_the_next_address_answers_while_one_is_down(registry: FakeRegistry) -> None:
    with fake_registry() as gone:
        url = gone.url
    client = RegistryClient([url, registry.url])
    assert client.register("s", TEXT).id == 1
    assert client.register("t", TEXT).id == 1
    with pytest.raises(RegistryError, match="Connection refused"):
        RegistryClient(url).subjects()
    client.close()


def test_a_connection_that_the_server_closed_is_replaced(registry: FakeRegistry) -> None:
    with fake_registry() as first:
        client = RegistryClient([first.url, registry.url])
        client.register("s", TEXT)
    assert client.register("t", TEXT).id == 1
    client.close()


def test_many_threads_share_a_client(registry: FakeRegistry) -> None:
    client = RegistryClient(registry.url)
    ids: list[int] = []

    def work(number: int) -> None:
        schema = Schema(f'{{"type":"string","n":{number}}}')
        ids.extend(client.register(f"s{each}", schema).id for each in range(10))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(set(ids)) == [1, 2, 3, 4]
    client.close()


def test_users_and_secrets(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SecretMissing):
        Registry(registry.url, {"basic.auth.user.info": "${secret:env:NO_SUCH_USER}"})
    monkeypatch.setenv("REGISTRY_USER", "ada:lovelace")
    client = Registry(registry.url, {"basic.auth.user.info": "${secret:env:REGISTRY_USER}"})
    client.subjects()
    client.close()
    in_url = Registry(registry.url.replace("//", "//ada:love%6Cace@"))
    in_url.subjects()
    assert "lovelace" not in repr(in_url)
    in_url.close()
    assert registry.authorizations == {"Basic YWRhOmxvdmVsYWNl"}


def test_a_profile_has_the_address(registry: FakeRegistry, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{tmp_path}/profiles.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            f'[prod]\nbootstrap.servers = "x:1"\nschema.registry.url = "{registry.url}"\n'
            'schema.registry.bearer.auth.token = "t0ken"\n[bare]\nbootstrap.servers = "x:1"\n'
        )
    os.chmod(path, 0o600)
    monkeypatch.setenv("PENSTOCK_PROFILES", path)
    client = Registry("@prod")
    assert client.subjects() == []
    assert registry.authorizations == {"Bearer t0ken"}
    client.close()
    with pytest.raises(BadSetting, match=r"schema\.registry\.url"):
        Registry("@bare")


def test_tls(tmp_path: Path) -> None:
    """The authority of `ssl.ca.location` is trusted and no other, and the server asks for our certificate."""
    pytest.importorskip("cryptography")
    from penstock.tls.authority import Authority

    now = datetime.datetime.now(datetime.UTC)
    authority = Authority.create("Test CA", now)
    (tmp_path / "ca.pem").write_text(authority.certificate)
    for name in ("server", "client"):
        (tmp_path / f"{name}.pem").write_text(authority.issue(name, ["127.0.0.1"], now).pem)
    (tmp_path / "other.pem").write_text(Authority.create("Other CA", now).certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(tmp_path / "server.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    options = {"ssl.ca.location": f"{tmp_path}/ca.pem", "ssl.certificate.location": f"{tmp_path}/client.pem"}
    with fake_registry(context) as registry:
        client = Registry(registry.url, options)
        assert client.register("s", TEXT).id == client.register("t", TEXT).id == 1
        client.close()
        with pytest.raises(RegistryError, match="certificate verify failed"):
            RegistryClient(registry.url, {"ssl.ca.location": f"{tmp_path}/other.pem"}, attempts=1).subjects()
        with pytest.raises(RegistryError):
            RegistryClient(registry.url, {"ssl.ca.location": f"{tmp_path}/ca.pem"}, attempts=1).subjects()
    with pytest.raises(BadSetting):
        Registry("https://x", {"ssl.ca.location": f"{tmp_path}/none.pem"})


@pytest.mark.parametrize("url", ["", "127.0.0.1:8081", "ftp://x"])
def test_addresses_that_cannot_be(url: str) -> None:
    with pytest.raises(BadSetting, match="address"):
        Registry(url)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(BadSetting, match=r"no option basic\.auth\.user"):
        Registry("http://x", {"basic.auth.user": "x"})


def test_references_that_lead_back_are_refused(registry: FakeRegistry) -> None:
    client = RegistryClient(registry.url)
    loop = Schema("{}", "JSON", (Reference("a", "a", 1),))
    client.register("a", loop)
    with pytest.raises(RegistryError, match="lead back"):
        client.references_of(loop)
    client.close()
