"""`format("penstock")`: the Spark data source and sink for topics, for batch and streaming queries.

Spark creates an instance on the driver, pickles it, and requests readers and writers from it in other processes. The
instance therefore holds only the options. It reports wrong options when Spark asks for the schema: when the query is
defined, before anything runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.source.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import MutableMapping

NAME = "penstock"
COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


class PenstockDataSource(DataSource):
    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        return NAME

    # -- reading

    def schema(self) -> StructType:
        from penstock.spark.source.options import source_options

        options = source_options(self.options)
        return StructType(
            [StructField(name, kind) for name, kind in COLUMNS.items() if name != "headers" or options.include_headers]
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.source.options import batch_options
        from penstock.spark.source.reader import BatchReader

        return BatchReader(batch_options(self.options), _columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from penstock.spark.source.options import stream_options
        from penstock.spark.source.reader import StreamReader

        return StreamReader(stream_options(self.options), _columns(schema))

    # -- writing

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.sink.writer import batch_sink

        return batch_sink(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from penstock.spark.sink.writer import stream_sink

        return stream_sink(self.options, schema, overwrite=overwrite)


def _columns(schema: StructType) -> list[str]:
    """A schema given by the user may omit columns, which saves work, and may list them in any order; nothing else."""
    for found in schema.fields:
        kind = COLUMNS.get(found.name)
        if kind is None:
            raise BadOption(f"there is no column {found.name!r} in a topic; there are {', '.join(COLUMNS)}")
        if found.dataType != kind:
            raise BadOption(
                f"column {found.name!r} is of type {kind.simpleString()}, not {found.dataType.simpleString()}"
            )
    return schema.fieldNames()
