"""A client of a Confluent-compatible schema registry: what serializers, Arrow, pipelines and brokers ask it.

An id stands for one schema for ever, and so does a version of a subject: both are remembered without a limit in time.
That an id is unknown is remembered for some seconds only, so that a topic full of foreign bytes does not become as many
requests, and a schema that is registered now is soon found. `latest` is asked again after `LATEST_S`.

Methods block while they wait for an answer, and any thread may call them; in asyncio, use `asyncio.to_thread`.
"""

from __future__ import annotations

import threading
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from penstock.serializers.registry_http import ATTEMPTS, RegistryError, RegistryHttp

SchemaType = Literal["AVRO", "PROTOBUF", "JSON"]

LATEST_S: Final = 60.0
_UNKNOWN_S: Final = 5.0
_UNKNOWN_MAX: Final = 10_000
_NOT_FOUND: Final = 404
_REFERENCES_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Reference:
    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as the registry stores it."""

    text: str
    type: SchemaType = "AVRO"
    references: tuple[Reference, ...] = ()

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"schema": self.text, "schemaType": self.type}
        if self.references:
            body["references"] = [
                {"name": each.name, "subject": each.subject, "version": each.version} for each in self.references
            ]
        return body


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema with its place in the registry; version 0 and no subject if it was found by its id."""

    schema: Schema
    id: int
    guid: str = ""
    subject: str = ""
    version: int = 0


class RegistryClient:
    def __init__(
        self,
        urls: str | Sequence[str],
        options: Mapping[str, str] | None = None,
        timeout: float = 10,
        attempts: int = ATTEMPTS,
    ) -> None:
        """`options`: `basic.auth.user.info`, `bearer.auth.token`, `ssl.ca.location`, ... by Confluent's names."""
        self._http = RegistryHttp(urls, options, timeout, attempts)
        self._lock = threading.Lock()
        self._by_id: dict[int, Registered] = {}
        self._by_guid: dict[str, Registered] = {}
        self._by_schema: dict[tuple[str, Schema, bool], Registered] = {}
        self._by_version: dict[tuple[str, int], Registered] = {}
        self._latest: dict[str, tuple[float, Registered]] = {}
        self._unknown: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"RegistryClient({self._http!r})"

    def close(self) -> None:
        self._http.close()

    def by_id(self, schema_id: int) -> Registered:
        """RegistryError with the status 404 for an id that the registry does not have."""
        found = self._by_id.get(schema_id)
        if found is None:
            answer = self._find(f"/schemas/ids/{schema_id}", f"no schema has the id {schema_id}")
            found = Registered(_schema(answer), schema_id, str(answer.get("guid") or ""))
            self._by_id[schema_id] = found
        return found

    def by_guid(self, guid: str) -> Registered:
        found = self._by_guid.get(guid)
        if found is None:
            answer = self._find(f"/schemas/guids/{guid}", f"no schema has the GUID {guid}")
            found = Registered(_schema(answer), int(answer.get("id") or 0), guid)
            self._by_guid[guid] = found
        return found

    def subjects_of(self, schema_id: int) -> list[str]:
        """The subjects that have a version with this id; none if the id is unknown."""
        try:
            answer = self._http.request("GET", f"/schemas/ids/{schema_id}/subjects")
        except RegistryError as error:
            if error.status == _NOT_FOUND:
                return []
            raise
        return [str(each) for each in answer]

    def name_of(self, schema_id: int) -> str:
        """For messages: the id, with the subjects and versions that have it as far as the registry tells."""
        try:
            places = self._http.request("GET", f"/schemas/ids/{schema_id}/versions")
            shown_places = ", ".join(f"{each['subject']} version {each['version']}" for each in places[:3])
        except (RegistryError, KeyError, TypeError):
            shown_places = ""
        return f"schema id {schema_id} ({shown_places})" if shown_places else f"schema id {schema_id}"

    def version(self, subject: str, version: int) -> Registered:
        found = self._by_version.get((subject, version))
        if found is None:
            found = self._version(subject, str(version))
            self._by_version[subject, version] = found
        return found

    def latest(self, subject: str, *, max_age: float = LATEST_S) -> Registered:
        """`max_age`: for how many seconds an answer counts."""
        known = self._latest.get(subject)
        if known is not None and time.monotonic() - known[0] < max_age:
            return known[1]
        found = self._version(subject, "latest")
        self._latest[subject] = time.monotonic(), found
        return found

    def subjects(self) -> list[str]:
        return [str(each) for each in self._http.request("GET", "/subjects")]

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> Registered:
        """The schema's place under the subject, new or not."""
        return self._place("/versions", subject, schema, normalize=normalize)

    def lookup(self, subject: str, schema: Schema, *, normalize: bool = False) -> Registered:
        """The same of a schema that must be registered already."""
        return self._place("", subject, schema, normalize=normalize)

    def references_of(self, schema: Schema) -> list[tuple[str, Schema]]:
        """All schemas that one refers to, directly or not, each with the name it is known by, dependencies first."""
        found: dict[str, Schema] = {}
        self._collect(schema, found, ())
        return list(found.items())

    def _collect(self, schema: Schema, found: dict[str, Schema], above: tuple[str, ...]) -> None:
        for each in schema.references:
            if each.name in above or len(found) > _REFERENCES_MAX:
                raise RegistryError(f"the references of {each.subject} version {each.version} lead back to themselves")
            if each.name not in found:
                referred = self.version(each.subject, each.version).schema
                self._collect(referred, found, (*above, each.name))
                found[each.name] = referred

    def _place(self, suffix: str, subject: str, schema: Schema, *, normalize: bool) -> Registered:
        key = (subject, schema, normalize)
        found = self._by_schema.get(key)
        if found is None:
            query = "?normalize=true" if normalize else ""
            path = f"/subjects/{_quoted(subject)}{suffix}{query}"
            answer = self._http.request("POST", path, schema.body())
            if "version" not in answer:  # registries before 8.0 answer a registration with the id alone
                answer = {**self._http.request("POST", f"/subjects/{_quoted(subject)}{query}", schema.body()), **answer}
            guid = str(answer.get("guid") or "")
            found = Registered(schema, int(answer["id"]), guid, subject, int(answer.get("version") or 0))
            self._by_schema[key] = found
            with self._lock:
                self._unknown.clear()
        return found

    def _version(self, subject: str, version: str) -> Registered:
        answer = self._http.request("GET", f"/subjects/{_quoted(subject)}/versions/{version}{_FORMAT}")
        return Registered(
            _schema(answer), int(answer["id"]), str(answer.get("guid") or ""), subject, int(answer["version"])
        )

    def _find(self, path: str, unknown: str) -> Any:
        with self._lock:
            since = self._unknown.get(path)
        if since is not None and time.monotonic() - since < _UNKNOWN_S:
            raise RegistryError(f"schema registry {self._http!r}: {unknown}", _NOT_FOUND, 40403)
        try:
            return self._http.request("GET", f"{path}{_FORMAT}")
        except RegistryError as error:
            if error.status != _NOT_FOUND:
                raise
            with self._lock:
                if len(self._unknown) >= _UNKNOWN_MAX:
                    self._unknown.clear()
                self._unknown[path] = time.monotonic()
            raise RegistryError(f"schema registry {self._http!r}: {unknown}", error.status, error.code) from None


_FORMAT: Final = "?format=serialized"
"""Protobuf as a file descriptor in base64, not as text; the other types have no such format and ignore it."""


def registry_of(given: str | RegistryClient) -> RegistryClient:
    return RegistryClient(given) if isinstance(given, str) else given


def _schema(answer: Any) -> Schema:
    references = answer.get("references") or ()
    return Schema(
        str(answer["schema"]),
        answer.get("schemaType") or "AVRO",
        tuple(Reference(str(each["name"]), str(each["subject"]), int(each["version"])) for each in references),
    )


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")
