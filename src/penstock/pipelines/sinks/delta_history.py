"""Merges versions of rows into a Delta table (`histories`).

Spark reads the known versions of the keys of a batch from the table's files. What the versions are afterwards is merged
by key and time, in one commit, which contains (sink, batch).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.pipelines.sinks.destination import Destination
from penstock.pipelines.sinks.histories import versions
from penstock.pipelines.sinks.shaping import having
from penstock.pipelines.spec.problems import PipelineFailed
from penstock.pipelines.spec.sink_formats import VALID_FROM

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

GONE = "__gone"
"""Whether a known version ends to be one: a late row says the same earlier."""
_UNREADABLE = ("deletionVectors", "columnMapping")


def changed_versions(table: Any, new: DataFrame, to: Destination) -> DataFrame:
    """The versions of the keys of `new`, and those that are gone."""
    from pyspark.sql import functions as f

    known = _known(table, new, to)
    after = versions(known, new, to.key, to.history_time)
    if known is None:
        return after.withColumn(GONE, f.lit(False))
    gone = having(known, after, (*to.key, VALID_FROM), "left_anti")
    return after.withColumn(GONE, f.lit(False)).unionByName(gone.withColumn(GONE, f.lit(True)), True)


def apply(merging: Any, columns: Sequence[str]) -> None:
    """Executes a merge whose source are such rows."""
    values = {_quoted(name): f"s.{_quoted(name)}" for name in columns}
    (
        merging.when_matched_delete(f"s.{GONE}")
        .when_matched_update(values, f"NOT s.{GONE}")
        .when_not_matched_insert(values, f"NOT s.{GONE}")
        .execute()
    )


def _known(table: Any, new: DataFrame, to: Destination) -> DataFrame | None:
    from pyspark.sql.pandas.types import from_arrow_schema

    files = table.file_uris()
    if not files:
        return None
    for feature in table.protocol().reader_features or ():
        if feature in _UNREADABLE:
            raise PipelineFailed(f'sink "{to.sink}": "history" needs a table without {feature}')
    import pyarrow as pa

    schema: pa.Schema = pa.schema(table.schema().to_arrow())
    reader = new.sparkSession.read.schema(from_arrow_schema(schema)).options(basePath=to.path, timeZone="UTC")
    return having(reader.parquet(*files), new, to.key, "left_semi")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
