"""Our messages against the definitions in Kafka's own jars, field by field."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, TypeGuard

import pytest

from clients.drivers.java import class_path, newest_clients
from penstock.protocol import messages
from penstock.protocol.apis import API, ApiKey
from penstock.protocol.declaration import Message, TypedField, VersionRange
from penstock.protocol.primitives import Scalar, Variable
from spark.connector_jars import broker_jars

FOLDERS = ("common/message/", "common/metadata/")
_COMMENT = re.compile(r'^((?:[^"/\n]|"(?:[^"\\]|\\.)*")*?)//.*$', re.MULTILINE)
_KAFKAS_JAR = re.compile(r"kafka-(?!streams).*\.jar")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def declared_messages() -> dict[str, type[Message]]:
    found: dict[str, type[Message]] = {}
    for module in pkgutil.iter_modules(messages.__path__):
        members = vars(importlib.import_module(f"{messages.__name__}.{module.name}"))
        found |= {name: member for name, member in members.items() if is_message(member)}
    return found


def is_message(member: object) -> TypeGuard[type[Message]]:
    """And no struct inside one."""
    return isinstance(member, type) and issubclass(member, Message) and member.__schema__.versions is not None


@cache
def definitions() -> dict[str, dict[str, Any]]:
    """By name, from every jar of Kafka's tools and clients; those of the newest clients count. The messages of
    Kafka Streams' own are no business of brokers."""
    tools = [path for path in class_path().split(":") if _KAFKAS_JAR.fullmatch(os.path.basename(path))]
    return read_definitions((*tools, *newest_clients()))


@cache
def broker_definitions() -> dict[str, dict[str, Any]]:
    """By name, from the jars of the broker: no client has the records of the metadata log. Skips without them."""
    return read_definitions(path for path in broker_jars() if _KAFKAS_JAR.fullmatch(os.path.basename(path)))


def read_definitions(jars: Iterable[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path in jars:
        with zipfile.ZipFile(path) as jar:
            for name in jar.namelist():
                if name.startswith(FOLDERS) and name.endswith(".json"):
                    definition = json.loads(_COMMENT.sub(r"\1", jar.read(name).decode()))
                    found[definition["name"]] = definition
    return found


def snake_case(name: str) -> str:
    return _WORD.sub("_", name.replace("KRaft", "Kraft")).lower()


def within(text: str, versions: VersionRange) -> tuple[int, int] | None:
    """The part of a range of versions that the message has; None if there is none."""
    first, last = VersionRange.parse(text)
    first, last = max(first, versions.first), min(last, versions.last)
    return (first, last) if first <= last else None


def versions_of(field: dict[str, Any]) -> str:
    versions: str = field.get("versions") or field["taggedVersions"]
    return versions


def ours_within(ours: VersionRange, versions: VersionRange) -> tuple[int, int] | None:
    first, last = max(ours.first, versions.first), min(ours.last, versions.last)
    return (first, last) if first <= last else None


def type_of(field: TypedField) -> str:
    kind = field.type
    name = kind.name if isinstance(kind, Scalar | Variable) else "struct"
    return f"[]{name}" if field.is_array else name


def differences(
    cls: type[Message], fields: list[dict[str, Any]], structs: dict[str, Any], versions: VersionRange, where: str
) -> Iterator[str]:
    theirs = {snake_case(field["name"]): field for field in fields if within(versions_of(field), versions)}
    ours = {field.name: field for field in cls.__schema__.fields if ours_within(field.versions, versions)}
    if list(ours) != list(theirs):
        yield f"{where}: fields {list(ours)}, Kafka has {list(theirs)}"
    for name in ours.keys() & theirs.keys():
        yield from field_differences(ours[name], theirs[name], structs, versions, f"{where}.{name}")


def field_differences(
    ours: TypedField, theirs: dict[str, Any], structs: dict[str, Any], versions: VersionRange, where: str
) -> Iterator[str]:
    kind = theirs["type"]
    element = kind.removeprefix("[]")
    fields = theirs.get("fields") or structs.get(element)
    wanted = kind if fields is None else kind.replace(element, "struct")
    if kind == "string" and theirs.get("flexibleVersions") == "none":
        wanted = "int16 string"
    if type_of(ours) != wanted:
        yield f"{where}: {type_of(ours)}, Kafka has {wanted}"
    if ours_within(ours.versions, versions) != within(versions_of(theirs), versions):
        yield f"{where}: versions {ours.versions}, Kafka has {versions_of(theirs)}"
    nullable = within(theirs.get("nullableVersions", "none"), versions)
    if wanted != "records" and ours_within(ours.nullable, versions) != nullable:
        yield f"{where}: nullable {ours.nullable}, Kafka has {theirs.get('nullableVersions')}"
    if ours.tag != theirs.get("tag"):
        yield f"{where}: tag {ours.tag}, Kafka has {theirs.get('tag')}"
    if fields is None and not kind.startswith("[]") and default_of(theirs) != ours.default:
        yield f"{where}: default {ours.default!r}, Kafka has {theirs.get('default')!r}"
    if fields is not None:
        assert isinstance(ours.type, type)
        # A struct that several messages share has its fields in all versions: the field that contains it decides.
        present = ours_within(ours.versions, versions)
        if present is not None:
            yield from differences(ours.type, fields, structs, VersionRange(*present), where)


def default_of(field: dict[str, Any]) -> Any:
    text, kind = field.get("default"), field["type"]
    if text == "null":
        return None
    if kind == "bool":
        return str(text).lower() == "true" if text is not None else False
    if kind == "string":
        return text or ""
    if kind == "bytes":
        return b""
    if kind == "records":
        return None
    if kind == "uuid":
        return bytes(16)
    if kind == "float64":
        return float(text or 0)
    return int(str(text), 0) if text not in (None, "") else 0


@pytest.mark.parametrize("name", sorted(declared_messages()))
def test_a_message_is_declared_as_kafka_defines_it(name: str) -> None:
    definition = definitions().get(name) or broker_definitions().get(name)
    if definition is None:
        pytest.skip("it is not defined in these releases of Apache Kafka")
    cls = declared_messages()[name]
    schema = cls.__schema__
    assert schema.versions is not None
    structs = {each["name"]: each["fields"] for each in definition.get("commonStructs", ())}
    valid = VersionRange.parse(definition["validVersions"])
    versions = VersionRange(max(valid.first, schema.versions.first), min(valid.last, schema.versions.last))
    found = list(differences(cls, definition["fields"], structs, versions, name))
    if schema.key is not None and schema.key != definition.get("apiKey"):
        found.append(f"{name}: key {schema.key}, Kafka has {definition.get('apiKey')}")
    flexible = within(definition.get("flexibleVersions", "none"), versions)
    if ours_within(schema.flexible, versions) != flexible:
        found.append(f"{name}: flexible {schema.flexible}, Kafka has {definition.get('flexibleVersions')}")
    assert found == []


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_versions_and_listeners_are_kafkas(key: ApiKey) -> None:
    """The table of APIs is what docs/apis.md compares us with."""
    spec = API[key]
    definition = definitions()[spec.request.__name__]
    first, latest = VersionRange.parse(definition["validVersions"])
    stable = latest - 1 if definition.get("latestVersionUnstable") else latest
    assert (spec.min_version, spec.max_version, spec.latest_version) == (first, stable, latest)
    assert spec.listeners == set(definition["listeners"])
