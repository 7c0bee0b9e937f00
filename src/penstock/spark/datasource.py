"""`format("penstock")`: topics as Spark sees them, in batch and in streams.

Spark makes an instance on the driver, pickles it, and asks it for readers and writers in processes of its own: so it
holds the options and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from collections.abc import MutableMapping

NAME = "penstock"
SCHEMA = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
HEADERS = ", headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


class PenstockDataSource(DataSource):
    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        return NAME

    # -- reading

    def schema(self) -> str:
        return SCHEMA + (HEADERS if self.options.get("includeHeaders", "false").lower() == "true" else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.reader import BatchReader

        return BatchReader(dict(self.options), schema.fieldNames())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from penstock.spark.reader import StreamReader

        return StreamReader(dict(self.options), schema.fieldNames())

    # -- writing
