"""`evolution: add-columns`: fields of JSON that a source's schema lacks become columns in the batch they appear in.

Added columns are stored beside the checkpoint before they are used, so that a column keeps its type for ever, even if
the query is killed: a repeated batch finds the columns that it added. The type is that of the first values: BOOLEAN,
BIGINT, DOUBLE or STRING; objects and arrays are STRING, as JSON. Records with later values of another type become dead
letters. To get another type, declare the column: a schema overrides what was stored.

Only records that decode add columns, and only fields that can be columns are added: not a name that differs from
another only in case, nor one that is not a valid name in SQL. Steps with state do not see added columns: the shape of
their state must not change.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from penstock.pipelines.engine.decoding import ERROR, decoded
from penstock.pipelines.sinks.hadoop_files import Files
from penstock.pipelines.spec import schemas
from penstock.pipelines.spec.model import METADATA_COLUMNS, TopicSource
from penstock.pipelines.spec.sql import SOURCE_ROW
from penstock.serializers.registered import PREFIX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS_MAX = 100
"""Added to a source at most. A stream whose field names are data would add columns without end."""
NOTE = "columns.json"
_SAMPLE_ROWS = 1000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BIGINT = range(-(2**63), 2**63)

logger = logging.getLogger("penstock.pipelines")


class Notes(Protocol):
    """Stores the added columns: name and type, in order."""

    def read(self) -> dict[str, str]: ...

    def write(self, columns: dict[str, str]) -> None: ...


class Evolution:
    """Of one source of one query."""

    def __init__(self, source: TopicSource, directory: str, notes: Notes) -> None:
        self._declared = source
        self._directory = directory
        self._notes = notes
        self._added: dict[str, str] | None = None

    def source_for(self, batch: DataFrame) -> TopicSource:
        """The source with all columns that the records of this batch have."""
        if self._added is None:
            self._added = self._notes.read()
        while True:
            source = self._source(self._added)
            known = [*schemas.columns_of_values(source.value, self._directory)]
            more = added_columns(known, self._added, _unknown(batch, source, known, self._directory))
            if not more:
                return source
            self._added = {**self._added, **more}
            self._notes.write(self._added)
            logger.info("columns added: %s", ", ".join(f"{name} {kind}" for name, kind in more.items()))

    def _source(self, added: Mapping[str, str]) -> TopicSource:
        value = self._declared.value
        text = schemas.text(value, self._directory).strip().rstrip(",")
        declared = {name.lower() for name in schemas.json_columns(value, self._directory)}
        more = [f", `{name}` {kind}" for name, kind in added.items() if name.lower() not in declared]
        return replace(self._declared, value=replace(value, schema=text + "".join(more), schema_file=""))


def added_columns(known: Iterable[str], added: Mapping[str, str], texts: Iterable[str]) -> dict[str, str]:
    """The columns, with their types, that records (JSON objects) have in addition to the known ones, up to the limit.
    `added` is all that was added before."""
    taken = {name.lower() for name in (*known, *METADATA_COLUMNS)}
    found: dict[str, list[Any]] = {}
    for text in texts:
        for name, value in _object(text).items():
            if value is not None and name.lower() not in taken and _NAME.fullmatch(name) and not name.startswith("__"):
                found.setdefault(name, []).append(value)
    columns: dict[str, str] = {}
    for name, values in found.items():
        if len(added) + len(columns) >= COLUMNS_MAX:
            logger.warning("%d columns were added; more of them are passed over", COLUMNS_MAX)
            break
        if name.lower() not in {other.lower() for other in columns}:
            columns[name] = type_of(values)
    return columns


def type_of(values: Iterable[Any]) -> str:
    """The narrowest type that holds all of these values of JSON."""
    kinds = {_kind(value) for value in values}
    if kinds == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    return kinds.pop() if len(kinds) == 1 else "STRING"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if value in _BIGINT else "STRING"
    return "DOUBLE" if isinstance(value, float) else "STRING"


def _object(text: str) -> dict[str, Any]:
    """Spark reads some JSON that Python does not; its fields are found in other records."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _unknown(batch: DataFrame, source: TopicSource, known: list[str], directory: str) -> list[str]:
    """Values of some records that decode, each with a column to add."""
    from pyspark.sql import functions as f

    taken = [name.lower() for name in (*known, *METADATA_COLUMNS)]

    def is_more(name: Column) -> Column:
        fits = ~f.lower(name).isin(taken) & name.rlike(f"^{_NAME.pattern}$") & ~name.startswith("__")
        return fits & f.call_function("get_json_object", f.col("text"), f.concat(f.lit("$."), name)).isNotNull()

    rows = decoded(batch, source, directory).filter(f.col(ERROR).isNull())
    value = f.col(f"{SOURCE_ROW}.value")
    if source.value.registry:
        value = f.substring(value, PREFIX.size + 1, 2**31 - 1)
    texts = rows.select(value.cast("string").alias("text"))
    wanted = texts.filter(f.exists(f.expr("json_object_keys(text)"), is_more))
    return [row["text"] for row in wanted.limit(_SAMPLE_ROWS).collect()]


class RegisteredColumns:
    """The same for Avro with a registry: the columns of the latest version.

    It is asked for every batch, after the batch is known: a schema is registered before the first record that has it.
    Nothing is stored, as the registry keeps the versions.
    """

    def __init__(self, source: TopicSource) -> None:
        self._declared = source

    def source_for(self, batch: DataFrame) -> TopicSource:
        value = self._declared.value
        return replace(self._declared, value=replace(value, schema=schemas.registered_text(value, newest=True)))


class CheckpointNotes:
    """Stores them in the directory of a query's checkpoint."""

    def __init__(self, files: Files, checkpoint: str) -> None:
        self._files = files
        self._checkpoint = checkpoint

    def read(self) -> dict[str, str]:
        if NOTE not in self._files.names(self._checkpoint):
            return {}
        columns: dict[str, str] = self._files.read_note(f"{self._checkpoint}/{NOTE}")
        return columns

    def write(self, columns: dict[str, str]) -> None:
        self._files.write_note(f"{self._checkpoint}/{NOTE}", columns)


class MemoryNotes:
    """For tests."""

    def __init__(self) -> None:
        self._columns: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        return self._columns

    def write(self, columns: dict[str, str]) -> None:
        self._columns = columns
