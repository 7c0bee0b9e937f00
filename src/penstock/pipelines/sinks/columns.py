"""Compares the columns of rows with those of a table, as Arrow sees both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipelines.spec.problems import PipelineFailed, nearest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Every column is nullable: later rows may have fewer columns."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructField, StructType

    nullable = StructType([StructField(field.name, field.dataType) for field in frame.schema.fields])
    return to_arrow_schema(nullable, timezone="UTC")


def check_columns(rows: pa.Schema, table: pa.Schema, sink: str) -> None:
    """The files of a table are read with its schema, so they must be written with it."""
    for field in rows:
        if field.name not in table.names:
            way_out = 'add it to the table, choose "columns", or set the option mergeSchema'
            hint = f"{nearest(field.name, table.names)}; {way_out}"
            raise PipelineFailed(f'sink "{sink}": the table has no column "{field.name}"; {hint}')
        kind = table.field(field.name).type
        if _plain(kind) != _plain(field.type):
            hint = f"it is {field.type} here; CAST it in a step, or write to another table"
            raise PipelineFailed(f'sink "{sink}": column "{field.name}" of the table is {kind}, {hint}')


def _plain(kind: pa.DataType) -> str:
    """Without differences in the notation of a type: names of items, nullability."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{each.name}: {_plain(each.type)}' for each in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{_plain(kind.key_type)}, {_plain(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_plain(kind.value_type)}>"
    return str(kind).removeprefix("large_").removesuffix("_view")
