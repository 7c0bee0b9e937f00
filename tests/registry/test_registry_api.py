"""The REST API of a real process: confluent-kafka's client, every endpoint, and bad input."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from narrowing import expect, present
from registry_nodes import Reply, ask, record_schema

Name = Callable[[str], str]


@pytest.fixture
def client(registry_url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry_url}) as opened:
        yield opened


def register(url: str, subject: str, schema: str, **more: object) -> Reply:
    return ask(url, "POST", f"/subjects/{urllib.parse.quote(subject, safe='')}/versions", {"schema": schema, **more})


def test_confluents_client(client: SchemaRegistryClient, unique_topic: Name) -> None:
    subject, user = unique_topic("orders"), unique_topic("user")
    first = Schema(record_schema("Order", "id"), "AVRO")
    second = Schema(record_schema("Order", "id", optional=("count",)), "AVRO")
    schema_id = client.register_schema(subject, first)
    assert client.register_schema(user, first) == schema_id
    assert client.get_schema(schema_id).schema_type == "AVRO"
    assert client.lookup_schema(subject, first).version == 1
    assert client.test_compatibility(subject, second)
    assert not client.test_compatibility(subject, Schema('"string"', "AVRO"))
    assert client.register_schema(subject, second) != schema_id
    assert client.get_versions(subject) == [1, 2]
    assert client.get_latest_version(subject).version == 2
    assert subject in client.get_subjects()
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(subject, Schema(record_schema("Order", "other"), "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    client.set_compatibility(subject, "FULL")
    assert client.get_compatibility(subject) == "FULL"
    using = json.dumps({"type": "record", "name": "Basket", "fields": [{"name": "order", "type": "Order"}]})
    basket = Schema(using, "AVRO", [SchemaReference("Order", subject, 1)])
    basket_id = client.register_schema(unique_topic("basket"), basket)
    (reference,) = present(client.get_schema(basket_id).references)
    assert reference.subject == subject
    assert client.delete_version(user, 1) == 1
    assert client.delete_subject(user, permanent=True) == [1]
    assert user not in client.get_subjects()


def test_every_reading_endpoint(registry_url: str, unique_topic: Name) -> None:
    subject = unique_topic("reading") + "/with slash"
    quoted = urllib.parse.quote(subject, safe="")
    schema = record_schema(unique_topic("Read").replace("-", "_"), "a")
    made = register(registry_url, subject, schema).content
    ids = f"/schemas/ids/{made['id']}"

    def get(path: str) -> object:
        reply = ask(registry_url, "GET", path)
        assert reply.status == 200, reply
        return reply.content

    assert get("/") == {}
    assert sorted(expect(list, get("/schemas/types"))) == ["AVRO", "JSON", "PROTOBUF"]
    assert json.loads(expect(dict, get(ids))["schema"]) == json.loads(schema)
    assert expect(dict, get(f"{ids}?fetchMaxId=True"))["maxId"] >= made["id"]
    assert get(f"{ids}/schema") == json.loads(schema)
    assert get(f"{ids}/subjects") == [subject]
    assert get(f"{ids}/versions") == [{"subject": subject, "version": 1}]
    assert expect(dict, get(f"/schemas/guids/{made['guid']}"))["guid"] == made["guid"]
    assert get(f"/schemas/guids/{made['guid']}/ids") == [{"context": ".", "id": made["id"]}]
    assert [each["id"] for each in expect(list, get(f"/schemas?subjectPrefix={quoted}"))] == [made["id"]]
    for version in ("1", "latest", "-1"):
        assert expect(dict, get(f"/subjects/{quoted}/versions/{version}"))["id"] == made["id"]
    assert get(f"/subjects/{quoted}/versions/1/schema") == json.loads(schema)
    assert get(f"/subjects/{quoted}/versions/1/referencedby") == []
    assert get(f"/subjects?subjectPrefix={quoted}") == [subject]
    assert "." in expect(list, get("/contexts"))
    assert get("/mode") == {"mode": "READWRITE"}
    assert expect(dict, get(f"/config/{quoted}?defaultToGlobal=True"))["compatibilityLevel"] == "BACKWARD"
    assert "scope" in expect(dict, get("/v1/metadata/id"))
    assert "version" in expect(dict, get("/v1/metadata/version"))


def test_settings_and_deletion_over_http(registry_url: str, unique_topic: Name) -> None:
    subject = unique_topic("settings")

    def request(method: str, path: str, body: object = None) -> tuple[int, object]:
        reply = ask(registry_url, method, path, body)
        return reply.status if reply.status == 200 else reply.code, reply.content

    assert request("PUT", f"/config/{subject}", {"compatibility": "full"})[1] == {"compatibility": "FULL"}
    assert request("GET", f"/config/{subject}")[1] == {"compatibilityLevel": "FULL"}
    assert request("DELETE", f"/config/{subject}")[1] == {"compatibilityLevel": "FULL"}
    assert request("GET", f"/config/{subject}")[0] == 40408
    assert request("PUT", f"/config/{subject}", {"compatibility": "odd"})[0] == 42203
    assert request("PUT", f"/mode/{subject}", {"mode": "odd"})[0] == 42204
    assert request("GET", f"/mode/{subject}")[0] == 40409
    assert request("PUT", f"/mode/{subject}", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert register(registry_url, subject, '"int"').code == 42205
    assert request("DELETE", f"/mode/{subject}") == (200, {"mode": "READONLY"})
    register(registry_url, subject, '"int"')
    assert request("DELETE", f"/subjects/{subject}/versions/1?permanent=True")[0] == 40407
    assert request("DELETE", f"/subjects/{subject}/versions/latest") == (200, 1)
    assert request("GET", f"/subjects/{subject}/versions")[0] == 40401
    assert request("GET", f"/subjects/{subject}/versions?deleted=True")[1] == [1]
    assert request("DELETE", f"/subjects/{subject}?permanent=TRUE") == (200, [1])
    assert request("DELETE", f"/subjects/{subject}")[0] == 40401


def test_contexts_in_names_and_base_urls(registry_url: str, unique_topic: Name) -> None:
    context, subject = f".{unique_topic('ctx')}", "orders"
    made = register(registry_url, f":{context}:{subject}", '"string"').content
    assert made["id"] == 1
    base = f"{registry_url}/contexts/{context}"
    path = urllib.parse.urlsplit(base).path
    assert ask(base, "GET", f"{path}/subjects").content == [f":{context}:{subject}"]
    assert ask(base, "GET", f"{path}/schemas/ids/1").content["guid"] == made["guid"]
    assert ask(base, "POST", f"{path}/subjects/{subject}/versions", {"schema": '"int"'}).code == 409
    assert context in ask(registry_url, "GET", "/contexts").content
    assert ask(registry_url, "GET", f"/schemas/ids/1?subject=:{context}:").content["guid"] == made["guid"]


def test_protobuf_as_text_and_base64(registry_url: str, unique_topic: Name) -> None:
    subject = unique_topic("proto")
    text = 'syntax = "proto3";\npackage shop;\n\nmessage Order {\n  int32 id = 1;\n}\n'
    made = register(registry_url, subject, text, schemaType="PROTOBUF").content
    assert made["schemaType"] == "PROTOBUF"
    serialized = ask(registry_url, "GET", f"/schemas/ids/{made['id']}?format=serialized").content["schema"]
    again = register(registry_url, subject, serialized, schemaType="PROTOBUF").content
    assert (again["id"], again["version"]) == (made["id"], 1)
    assert "message Order" in ask(registry_url, "GET", f"/subjects/{subject}/versions/1").content["schema"]


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/nothing", None, 404),
        ("GET", "/associations/resources/lkc-1/orders", None, 404),
        ("PATCH", "/config", None, 405),
        ("GET", "/schemas/ids/x", None, 404),
        ("GET", "/schemas/ids/99999999", None, 40403),
        ("GET", "/schemas/guids/..%2F..%2Fetc%2Fpasswd", None, 40403),
        ("GET", "/subjects/none/versions/0", None, 42202),
        ("GET", "/subjects/none/versions/x", None, 42202),
        ("GET", "/subjects/none/versions/1", None, 40401),
        ("POST", "/subjects/bad/versions", b"{", 400),
        ("POST", "/subjects/bad/versions", b"\xff\xfe", 400),
        ("POST", "/subjects/bad/versions", DEEP.encode(), 400),
        ("POST", "/subjects/bad/versions", b"", 400),
        ("POST", "/subjects/bad/versions", [], 422),
        ("POST", "/subjects/bad/versions", {}, 42201),
        ("POST", "/subjects/bad/versions", {"schema": DEEP}, 42201),
        ("POST", "/subjects/bad/versions", {"schema": "{}", "schemaType": "XML"}, 42201),
        ("POST", "/subjects/bad/versions", {"schema": '{"type":"nothing"}'}, 42201),
        ("POST", "/subjects/bad/versions", {"schema": "x" * 2_000_000}, 42201),
        ("POST", "/subjects/bad/versions", {"schema": "x" * 10_000_000}, 42209),
        ("POST", "/subjects/a%00b/versions", {"schema": '"int"'}, 42208),
        ("POST", "/subjects/__GLOBAL/versions", {"schema": '"int"'}, 42208),
        ("POST", "/compatibility/subjects/none/versions/7", {"schema": '"int"'}, 40402),
        ("POST", "/subjects/none", {"schema": '"int"'}, 40401),
    ],
)
def test_bad_input_is_refused_with_a_code(registry_url: str, method: str, path: str, body: object, code: int) -> None:
    reply = ask(registry_url, method, path, body)
    assert 400 <= reply.status < 500
    assert reply.code == code


def test_content_types(registry_url: str) -> None:
    body = json.dumps({"schema": '"int"'}).encode()
    wrong = ask(registry_url, "POST", "/subjects/t/versions", body, {"content-type": "text/html"})
    assert (wrong.status, wrong.code) == (415, 415)
    assert ask(registry_url, "GET", "/subjects", headers={"accept": "text/html"}).code == 406
    for accepted in ("application/vnd.schemaregistry.v1+json", "application/json; q=0.5, text/html", "*/*"):
        assert ask(registry_url, "GET", "/subjects", headers={"accept": accepted}).status == 200


def test_odd_subjects_are_only_names(registry_url: str, unique_topic: Name) -> None:
    for name in ("'; DROP TABLE schemas; --", "../../etc/passwd", "a b?c#d%e", "ünïcode-☃"):
        subject = f"{unique_topic('odd')}{name}"
        assert register(registry_url, subject, '"int"').content["version"] == 1
        quoted = urllib.parse.quote(subject, safe="")
        assert ask(registry_url, "GET", f"/subjects/{quoted}/versions/1").content["subject"] == subject


def test_an_unknown_subject_is_compatible(registry_url: str, unique_topic: Name) -> None:
    path = f"/compatibility/subjects/{unique_topic('none')}/versions"
    assert ask(registry_url, "POST", f"{path}/latest", {"schema": '"int"'}).content == {"is_compatible": True}
    verbose = ask(registry_url, "POST", f"{path}?verbose=True", {"schema": "{"}).content
    assert not verbose["is_compatible"] and verbose["messages"]
