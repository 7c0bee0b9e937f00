"""Merges the rows of a batch into a Delta table by key: a row replaces the row with the same key.

Executors write the rows as Parquet beside the table. The driver reads them in pieces and merges them in one commit,
which contains (sink, batch), so a batch is merged once. NULL is a key like any other, as in GROUP BY.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.pipelines.sinks import delta_history
from penstock.pipelines.sinks.columns import arrow_schema
from penstock.pipelines.sinks.destination import Destination
from penstock.pipelines.sinks.hadoop_files import Files
from penstock.pipelines.spec.problems import PipelineFailed, nearest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_ORDER, _NEWNESS = "__order", "__newness"
_TARGET, _SOURCE = "t", "s"
_READ_AHEAD = 1  # batches and files that wait in the driver's memory


def predicate(key: Sequence[str]) -> str:
    """Whether a row of the table has the key of a new one."""
    columns = ('"' + name.replace('"', '""') + '"' for name in key)
    return " AND ".join(f"({_TARGET}.{column} IS NOT DISTINCT FROM {_SOURCE}.{column})" for column in columns)


def check_key(columns: Sequence[str], key: Sequence[str], sink: str) -> None:
    for name in key:
        if name not in columns:
            raise PipelineFailed(
                f'sink "{sink}": "key" names "{name}", and rows have no such column; {nearest(name, columns)}'
            )


def last_of_each_key(frame: DataFrame, key: Sequence[str]) -> DataFrame:
    """Of rows with the same key the last one: a merge refuses two."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    newest_first = Window.partitionBy(*(f.col("`" + name.replace("`", "``") + "`") for name in key)).orderBy(
        f.col(_ORDER).desc()
    )
    ordered = frame.withColumn(_ORDER, f.monotonically_increasing_id())
    newest = ordered.withColumn(_NEWNESS, f.row_number().over(newest_first)).filter(f.col(_NEWNESS) == 1)
    return newest.drop(_ORDER, _NEWNESS)


def merge(
    table: Any,
    rows: DataFrame,
    key: Sequence[str],
    to: Destination,
    stages: str,
    storage: Mapping[str, str],
    commit: Any,
) -> None:
    """`rows` have each key once. `stages`: a directory below that of the table. `commit`: what the commit contains."""
    files = Files(rows.sparkSession, to.path)
    stage = f"{stages}/{uuid.uuid4().hex}"
    rows.write.mode("overwrite").parquet(stage)
    root, within = files.qualified(stage), stage.removeprefix(to.path).strip("/")
    written = [each.removeprefix(root).strip("/") for each in sorted(files.under(stage))]
    names = [f"{within}/{each}" for each in written if not each.rpartition("/")[2].startswith(("_", "."))]
    source = _reader(names, arrow_schema(rows), to.path, storage)
    merging = table.merge(source, predicate(key), source_alias=_SOURCE, target_alias=_TARGET, commit_properties=commit)
    if to.history:
        delta_history.apply(merging, [name for name in rows.columns if name != delta_history.GONE])
    else:
        merging.when_matched_update_all().when_not_matched_insert_all().execute()
    files.delete(stage)


def _reader(names: Sequence[str], schema: pa.Schema, path: str, storage: Mapping[str, str]) -> pa.RecordBatchReader:
    """With the file system that deltalake has for the table, which need not be Spark's."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow import dataset
    from pyarrow.fs import PyFileSystem

    system = PyFileSystem(DeltaStorageHandler(path, dict(storage) or None))
    found = dataset.dataset(list(names), schema=schema, filesystem=system, format="parquet")
    return found.scanner(batch_readahead=_READ_AHEAD, fragment_readahead=_READ_AHEAD).to_reader()
