"""Checks that produced records carry schema ids of their topic's subject, for topics that ask for it.

A key or value must start with a zero byte and an id that has a version under the subject `TOPIC-key` or `TOPIC-value`
of the registry, or its record must have the header of Confluent's serializers with the GUID of such a schema. Null
passes: it deletes a key. What follows the id is not read.

The check may wait for the registry. So it runs on threads of its own: neither the event loop nor the workers, which
flush logs and read cold records, stand still when a registry hangs. An id that belongs to a subject is remembered for
ever, one that does not for some seconds. While the registry does not answer, new ids are refused with an error that
clients retry, and only one request in a while waits to find out.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from penstock.io import threads
from penstock.model.errors import ErrorCode, KafkaError
from penstock.records.batch import BatchHeader
from penstock.records.record import Headers, iterate_spans, records_body
from penstock.records.validation import InvalidRecords
from penstock.settings.schema_validation import SchemaValidationSettings
from penstock.settings.topic import TopicSettings

if TYPE_CHECKING:
    from penstock.serializers.registry_client import RegistryClient

_PREFIX: Final = 5
_GUID: Final = 17
_UNKNOWN_S: Final = 5.0
_PAUSE_S: Final = 1.0
_TIMEOUT_S: Final = 5.0
_THREADS: Final = 2
_UNKNOWN_MAX: Final = 10_000
_HEADERS: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}


class SchemaValidation:
    def __init__(self, settings: SchemaValidationSettings, now: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._now = now
        self._lock = threading.Lock()
        self._client: RegistryClient | None = None
        self._known: set[tuple[str, bytes]] = set()
        self._unknown: dict[tuple[str, bytes], float] = {}
        self._failed: tuple[float, str] | None = None
        # Its threads start with the first check.
        self.executor = ThreadPoolExecutor(_THREADS, "penstock-schemas", threads.begin_worker)

    def check(
        self, topic: str, batch: bytearray, header: BatchHeader, settings: TopicSettings, *, max_size: int
    ) -> None:
        """InvalidRecords if a record has no schema id of the topic's subject. Blocks while the registry is asked."""
        checks_keys = settings.confluent_key_schema_validation
        checks_values = settings.confluent_value_schema_validation
        body = records_body(batch, 0, header, max_size=max_size)
        errors: list[tuple[int, str]] = []
        for index, span in enumerate(iterate_spans(body, header)):
            key, value_start, value_end, headers = span[5:]
            problem = ""
            if checks_keys and key is not None:
                problem = self._problem(topic, "key", key, headers)
            if checks_values and value_start >= 0 and not problem:
                # Only the beginning is needed; a value that ends earlier has no id.
                start = body[value_start : min(value_end, value_start + _PREFIX)]
                problem = self._problem(topic, "value", start, headers)
            if problem:
                errors.append((index, problem))
        if errors:
            summary = f"{len(errors)} of {header.count} records were refused: {errors[0][1]}"
            raise InvalidRecords(ErrorCode.INVALID_RECORD, summary, errors)

    def _problem(self, topic: str, part: str, data: bytes, headers: Headers) -> str:
        subject = f"{topic}-{part}"
        schema = data[:_PREFIX] if len(data) >= _PREFIX and data[0] == 0 else b""
        for name, carried in headers:
            if name == _HEADERS[part] and carried is not None and len(carried) >= _GUID and carried[0] == 1:
                schema = carried[:_GUID]
        if not schema:
            return f"the {part} has no schema id"
        if (subject, schema) in self._known or self._belongs(subject, schema):
            return ""
        return f"the {part} has {_shown(schema)}, which is not of the subject {subject}"

    def _belongs(self, subject: str, schema: bytes) -> bool:
        """Ask the registry, one thread at a time: the others find the answer."""
        key = (subject, schema)
        with self._lock:
            if key in self._known:
                return True
            since = self._unknown.get(key)
            if since is not None and self._now() - since < _UNKNOWN_S:
                return False
            if self._ask(subject, schema):
                self._known.add(key)
                return True
            if len(self._unknown) >= _UNKNOWN_MAX:
                self._unknown.clear()
            self._unknown[key] = self._now()
            return False

    def _ask(self, subject: str, schema: bytes) -> bool:
        from penstock.serializers.registry_http import RegistryError

        if self._failed is not None and self._now() - self._failed[0] < _PAUSE_S:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, self._failed[1])
        client = self._opened()
        try:
            if len(schema) == _PREFIX:
                schema_id = int.from_bytes(schema[1:], "big")
            else:
                schema_id = client.by_guid(str(uuid.UUID(bytes=schema[1:]))).id
            found = subject in client.subjects_of(schema_id)
        except RegistryError as error:
            if error.status == 404:
                return False
            self._failed = self._now(), str(error)
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        self._failed = None
        return found

    def _opened(self) -> RegistryClient:
        if self._client is None:
            from penstock.serializers.registry_client import RegistryClient

            url = self._settings.confluent_schema_registry_url
            if not url:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    "the topic checks schema ids, and this broker has no confluent.schema.registry.url",
                )
            user = self._settings.confluent_basic_auth_user_info
            options = {"basic.auth.user.info": user} if user else {}
            try:
                self._client = RegistryClient(url, options, timeout=_TIMEOUT_S, attempts=1)  # clients repeat
            except ValueError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"confluent.schema.registry.url: {error}") from error
        return self._client


def _shown(schema: bytes) -> str:
    if len(schema) == _PREFIX:
        return f"the schema id {int.from_bytes(schema[1:], 'big')}"
    return f"the schema GUID {uuid.UUID(bytes=schema[1:])}"
