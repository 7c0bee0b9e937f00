"""Decodes keys and values that are framed with schema ids of a registry, a batch at a time.

    read_table("127.0.0.1:9092", "orders", value=Avro(registry="http://127.0.0.1:8081"))

The schema given to `Avro` determines the columns; without one, the latest version of the topic's subject does. Each
record is read with the schema that it names, in its first bytes or in a header. The ids of a batch are found with
vector operations, so Python works once per schema, not once per record.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.arrow.avro_columns import AvroColumns
from penstock.arrow.avro_program import Unreadable
from penstock.arrow.decoding import BadRow
from penstock.arrow.errors import BadColumn
from penstock.records.columnar import Bytes, Longs, SpanColumn, Spans
from penstock.serializers.avro import Avro, parse_registered
from penstock.serializers.base import Context
from penstock.serializers.registered import HEADERS, PREFIX, Framing
from penstock.serializers.registry_client import Registered
from penstock.serializers.registry_http import RegistryError

_GUID: Final = 17  # a one, and the GUID
_NOT_FOUND: Final = 404

# Why a value is not read, in few words.
NO_ID: Final = "no schema id"
UNKNOWN_ID: Final = "unknown schema id"
UNREADABLE: Final = "not Avro of the schema"
MORE_FIELDS: Final = "fields that the schema lacks"


class Reason(NamedTuple):
    kind: str
    text: str


_NO_ID: Final = Reason(NO_ID, "no schema id: a value starts with a zero byte and the id of its schema")


class FramedRows(NamedTuple):
    """Which values of a column start with a schema id."""

    rows: Longs
    ids: Longs  # of each of them
    others: Longs  # the rows whose values do not


def framed_rows(buffer: Bytes, starts: Longs, lengths: Longs, candidates: Longs) -> FramedRows:
    is_framed = lengths[candidates] >= PREFIX.size
    is_framed[is_framed] = buffer[starts[candidates[is_framed]]] == 0
    if is_framed.all():
        rows, others = candidates, candidates[:0]
    else:
        rows, others = candidates[is_framed], candidates[~is_framed]
    ids = np.zeros(len(rows), np.int64)
    first = starts[rows]
    for place in range(1, PREFIX.size):
        ids = ids << 8 | buffer[first + place]
    return FramedRows(rows, ids, others)


def distinct(ids: Longs) -> list[int]:
    """Nearly always one: then nothing is sorted."""
    if len(ids) and (ids == ids[0]).all():
        return [int(ids[0])]
    return [int(each) for each in np.unique(ids)]


class RegisteredAvro:
    """The decoder of a column."""

    def __init__(
        self, avro: Avro[Any], topics: Sequence[str], *, is_key: bool = False, refuse_more: bool = False
    ) -> None:
        """`refuse_more`: refuse records whose schema has fields that the reader's lacks, instead of skipping these."""
        if avro.framing is None:
            raise BadColumn("only Avro with a registry is decoded by schema ids")
        self._avro = avro
        self._framing: Framing = avro.framing
        self._topics = topics
        self._is_key = is_key
        self._refuse_more = refuse_more
        self._columns: AvroColumns | None = None
        self._programs: dict[int | str, int | Reason] = {}  # or the reason why there is none

    @property
    def type(self) -> Any:
        return self.columns.type

    @property
    def columns(self) -> AvroColumns:
        if self._columns is None:
            try:
                self._columns = AvroColumns(self._reader())
            except (Unreadable, RecursionError) as error:
                raise BadColumn(f"{'key' if self._is_key else 'value'}: {error}") from error
        return self._columns

    def decode(self, buffer: Bytes, column: SpanColumn, topic: str) -> Any:
        """BadRow for the first row that cannot be read."""
        return self._first_bad(*self.read(buffer, column))

    def decode_spans(self, spans: Spans) -> Any:
        """The same, where a header may carry the id."""
        column = spans.keys if self._is_key else spans.values
        guids = self._guids_in_headers(spans) if spans.headers else {}
        return self._first_bad(*self.read(spans.buffer, column, guids))

    def read(
        self, buffer: Bytes, column: SpanColumn, guids: dict[str, Longs] | None = None
    ) -> tuple[Any, dict[int, Reason]]:
        """A row for each value, null where it is null or cannot be read, and the reasons of the latter.

        `guids`: rows whose schema is named by a header. RegistryError if the registry does not answer.
        """
        columns = self.columns
        starts, lengths = column.starts.astype(np.int64), column.lengths.astype(np.int64)
        bodies = starts + PREFIX.size
        programs = np.full(len(starts), columns.null_program, np.int64)
        reasons: dict[int, Reason] = {}
        by_prefix = lengths >= 0
        for guid, rows in (guids or {}).items():
            with_value = rows[lengths[rows] >= 0]
            by_prefix[with_value] = False
            bodies[with_value] = starts[with_value]
            self._use(guid, with_value, programs, reasons)
        framed = framed_rows(buffer, starts, lengths, np.flatnonzero(by_prefix))
        reasons.update(dict.fromkeys(framed.others.tolist(), _NO_ID))
        for schema_id in distinct(framed.ids):
            self._use(schema_id, framed.rows[framed.ids == schema_id], programs, reasons)
        array, malformed = columns.decode(buffer, bodies, starts + np.maximum(lengths, 0), programs)
        for row, reason in malformed.items():
            reasons[row] = Reason(UNREADABLE, f"{_named(row, framed, guids)}: {reason}")
        return array, reasons

    def _use(self, key: int | str, rows: Longs, programs: Longs, reasons: dict[int, Reason]) -> None:
        program = self._programs.get(key)
        if program is None:
            program = self._program(key)
        if isinstance(program, int):
            programs[rows] = program
        else:
            reasons.update(dict.fromkeys(rows.tolist(), program))

    def _program(self, key: int | str) -> int | Reason:
        client = self._framing.client
        try:
            found = client.by_id(key) if isinstance(key, int) else client.by_guid(key)
        except RegistryError as error:
            if error.status != _NOT_FOUND:
                raise
            return Reason(UNKNOWN_ID, str(error))  # it may be registered later: not remembered here
        if found.schema.type != "AVRO":
            text = f"{self._framing.described(found)} is {found.schema.type}, not AVRO"
            made: int | Reason = Reason(UNREADABLE, text)
        else:
            made = self._compiled(found)
        self._programs[key] = made
        return made

    def _compiled(self, found: Registered) -> int | Reason:
        try:
            writer = parse_registered(self._framing.client, found.schema)
            more = self.columns.more_fields(writer) if self._refuse_more else []
            if more:
                text = f"{self._framing.described(found)}: {MORE_FIELDS}: {', '.join(more)}"
                return Reason(MORE_FIELDS, text)
            return self.columns.compile(writer)
        except Unreadable as error:
            return Reason(UNREADABLE, f"{self._framing.described(found)}: {error}")

    def _reader(self) -> Any:
        if self._avro.schema is not None:
            return self._avro.schema
        if not self._topics:
            raise BadColumn("without a topic, Avro needs a schema")
        place = self._framing.place(Context(self._topics[0], self._is_key), None, None)
        return parse_registered(self._framing.client, place.schema)

    def _guids_in_headers(self, spans: Spans) -> dict[str, Longs]:
        """The rows that name their schema in a header, by GUID."""
        keys, values = spans.header_spans()
        name = np.frombuffer(HEADERS[self._is_key].encode(), np.uint8)
        found = np.flatnonzero((keys.lengths == len(name)) & (values.lengths >= _GUID))
        named = spans.buffer[keys.starts[found].astype(np.int64)[:, None] + np.arange(len(name))]
        found = found[(named == name).all(axis=1)]
        if not len(found):
            return {}
        carried = spans.buffer[values.starts[found].astype(np.int64)[:, None] + np.arange(_GUID)]
        rows = np.repeat(np.arange(len(spans)), spans.header_counts)[found]
        by_guid, which = np.unique(carried, axis=0, return_inverse=True)
        return {
            str(uuid.UUID(bytes=each[1:].tobytes())): rows[which.reshape(-1) == index]
            for index, each in enumerate(by_guid)
            if each[0] == 1
        }

    def _first_bad(self, array: Any, reasons: dict[int, Reason]) -> Any:
        if reasons:
            row = min(reasons)
            raise BadRow(row, reasons[row].text)
        return array


def _named(row: int, framed: FramedRows, guids: dict[str, Longs] | None) -> str:
    for guid, rows in (guids or {}).items():
        if row in rows:
            return f"schema GUID {guid}"
    return f"schema id {framed.ids[np.searchsorted(framed.rows, row)]}"
