"""Records of the topic `_schemas`, in the JSON that Confluent's registry writes.

    {"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}
    {"subject":"orders-value","version":1,"id":17,"schema":"...","deleted":false}

A soft deletion rewrites the value with `deleted: true`, a permanent one is a tombstone. `DELETE_SUBJECT` softly deletes
all versions up to one. The other types are CONFIG and MODE (without a subject: of the default context), CONTEXT,
CLEAR_SUBJECT and NOOP.

Our NOOP carries a value, which Confluent's registry ignores: the highest id given in each context. Compaction removes
deleted schemas and the ids in them; without the note, an id could be given to a second schema after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

TENANT: Final = "default"

SCHEMA: Final = "SCHEMA"
CONFIG: Final = "CONFIG"
MODE: Final = "MODE"
DELETE_SUBJECT: Final = "DELETE_SUBJECT"
CLEAR_SUBJECT: Final = "CLEAR_SUBJECT"
CONTEXT: Final = "CONTEXT"
NOOP: Final = "NOOP"
ASSOCIATION: Final = "ASSOC"  # of newer registries: which topic a subject belongs to; we have none


class SchemasRecord(NamedTuple):
    """A record before it is encoded, or after it was decoded; without a value it is a tombstone."""

    key: Mapping[str, Any]
    value: Mapping[str, Any] | None

    def encoded(self) -> tuple[bytes, bytes | None]:
        return _encode(self.key), None if self.value is None else _encode(self.value)


class UnreadableRecord(ValueError):
    """A record of the topic that is not of this format."""


def schema_key(subject: str, version: int) -> dict[str, Any]:
    return {"keytype": SCHEMA, "subject": subject, "version": version, "magic": 1}


def scoped_key(keytype: str, subject: str | None) -> dict[str, Any]:
    """The key of a record about a subject, a context, or (None) the default context."""
    named = {} if subject is None else {"subject": subject}
    return {"keytype": keytype, **named, "magic": 0}


def context_record(context: str) -> SchemasRecord:
    named = {"tenant": TENANT, "context": context}
    return SchemasRecord({"keytype": CONTEXT, **named, "magic": 0}, named)


def noop(highest_ids: Mapping[str, int]) -> SchemasRecord:
    return SchemasRecord({"keytype": NOOP, "magic": 0}, {"maxIds": dict(highest_ids)})


def decode(key: bytes | None, value: bytes | None) -> SchemasRecord:
    try:
        decoded = json.loads(key or b"")
        content = None if not value else json.loads(value)
    except (ValueError, RecursionError) as error:
        raise UnreadableRecord(f"neither key nor value may be anything but JSON: {error}") from error
    if not isinstance(decoded, dict) or not (content is None or isinstance(content, dict)):
        raise UnreadableRecord("key and value must be JSON objects")
    return SchemasRecord(decoded, content)


def _encode(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
