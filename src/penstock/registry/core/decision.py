"""What a request comes to: records that must be in the topic before the answer is given."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.registry.core.records import SchemasRecord


class Decision(NamedTuple):
    records: tuple[SchemasRecord, ...]
    answer: Any
