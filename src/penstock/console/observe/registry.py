"""Schemas of a registry that speaks Confluent's API, to decode what its serializers wrote.

A schema never changes under its id, so it is asked for once. A registry that does not answer is not asked again for a
while: the bytes are then shown as they are.
"""

from __future__ import annotations

import io
import json
import threading
import time
import urllib.error
import urllib.request
from typing import Any

from penstock.console.views.decoding import Kind, SchemaDecoder
from penstock.serializers.registered import read_indexes
from penstock.serializers.registry_client import RegistryClient
from penstock.serializers.registry_http import RegistryError

_TIMEOUT_S = 3.0
_AGAIN_S = 30.0
_ANSWER_MAX = 4 * 1024 * 1024
_PREFIX = 5
_CLASSES_MAX = 1_000
_NOT_ASKED = object()


class SchemaRegistry:
    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._schemas: dict[int, tuple[str, Any] | None] = {}
        self._lock = threading.Lock()
        self._not_before = 0.0
        self._client = RegistryClient(self._url, timeout=_TIMEOUT_S, attempts=1)
        self._classes: dict[tuple[int, tuple[int, ...]], Any] = {}
        """Of Protobuf: by the id of the schema and the place of the message in its file."""

    def decode(self, data: bytes) -> tuple[Kind, Any] | None:
        number = int.from_bytes(data[1:_PREFIX])
        found = self._schema(number)
        if found is None:
            return None
        kind, schema = found
        try:
            if kind == "JSON":
                return "json-schema", json.loads(data[_PREFIX:])
            if kind == "AVRO":
                from fastavro import schemaless_reader

                return "avro", schemaless_reader(io.BytesIO(data[_PREFIX:]), schema, None)
            if kind == "PROTOBUF":
                return "protobuf", self._message(number, data[_PREFIX:])
        except Exception:  # noqa: BLE001 - whatever a schema does not fit, the bytes are shown instead
            return None
        return None

    def _message(self, number: int, data: bytes) -> Any:
        from penstock.console.observe.protobuf import document_of
        from penstock.serializers.protobuf import registered_class

        indexes, body = read_indexes(data)
        with self._lock:
            found = self._classes.get((number, indexes), _NOT_ASKED)
            if found is _NOT_ASKED:
                if time.monotonic() < self._not_before:
                    raise ValueError("the registry did not answer a moment ago")
                try:
                    found = registered_class(self._client, self._client.by_id(number).schema, indexes)
                except RegistryError:
                    self._not_before = time.monotonic() + _AGAIN_S
                    raise
                except (ValueError, TypeError, KeyError, ImportError):
                    found = None  # a schema that cannot be used, or a place that it does not have
                if len(self._classes) >= _CLASSES_MAX:
                    self._classes.clear()
                self._classes[number, indexes] = found
        if found is None:
            raise ValueError("the schema cannot be used")
        return document_of(found.FromString(body))

    def get(self, path: str) -> Any:
        """OSError or ValueError if the registry does not answer."""
        request = urllib.request.Request(self._url + path, headers={"accept": "application/json"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            return json.loads(answer.read(_ANSWER_MAX))

    def _schema(self, number: int) -> tuple[str, Any] | None:
        with self._lock:
            if number in self._schemas:
                return self._schemas[number]
            if time.monotonic() < self._not_before:
                return None
            try:
                answer = self.get(f"/schemas/ids/{number}")
                kind, text = answer.get("schemaType", "AVRO"), answer["schema"]
                self._schemas[number] = (kind, _parsed(kind, text))
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    self._not_before = time.monotonic() + _AGAIN_S
                    return None
                self._schemas[number] = None
            except (OSError, ValueError, KeyError):
                self._not_before = time.monotonic() + _AGAIN_S
                return None
            return self._schemas[number]


def schema_decoder(url: str | None) -> SchemaDecoder | None:
    return None if url is None else SchemaRegistry(url).decode


def _parsed(kind: str, text: str) -> Any:
    if kind != "AVRO":
        return text
    from fastavro import parse_schema

    return parse_schema(json.loads(text))
