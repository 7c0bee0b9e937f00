"""The formats that Penstock has a sink for, and the fields that a pipeline's file needs for each."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

GROUP = "penstock.sinks"
"""The entry point group for sinks of other packages."""

VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
HISTORY = (VALID_FROM, VALID_TO, IS_CURRENT)
"""The columns that a table with `history` has besides those of the rows."""


@dataclass(frozen=True, slots=True)
class SinkFormat:
    home: str
    """`module:class`, imported when it is used."""
    needs: tuple[str, ...] = ()
    """Required fields in the file."""
    takes: tuple[str, ...] = ()
    """Fields that it uses, in addition to those of all sinks."""
    package: str = ""
    """The required Python package."""
    extra: str = ""
    """The extra that installs it."""
    origin_or_key: bool = False
    """Rows without a record of their own need a key."""
    appends: bool = False
    """Without a key, rows are added and never replaced."""
    adds_columns: bool = False
    """Its table can get columns that it did not have."""
    table_is_index: bool = False
    """`table` is the name of an index, in which a dot has no meaning."""


_KEYED = ("key", "history", "history_time")

_FILES = SinkFormat(
    "files:FileSink", needs=("path",), takes=("path", "partition_by", "roll_bytes", "roll_every"), appends=True
)

ANY_FORMAT = SinkFormat("spark:SparkSink", takes=("path", "partition_by"))

SINK_FORMATS = {
    **dict.fromkeys(("parquet", "json", "csv", "orc", "text"), _FILES),
    "console": SinkFormat("spark:ConsoleSink"),
    "delta": SinkFormat(
        "delta:DeltaSink",
        ("path",),
        ("path", "partition_by", *_KEYED),
        "deltalake",
        "pipelines",
        appends=True,
        adds_columns=True,
    ),
    "iceberg": SinkFormat(
        "iceberg:IcebergSink",
        ("table",),
        ("table", "partition_by", *_KEYED),
        "pyiceberg",
        "iceberg",
        appends=True,
        adds_columns=True,
    ),
    "postgres": SinkFormat(
        "postgres:PostgresSink", ("table",), ("table", "on_error", *_KEYED), "psycopg", "postgres", appends=True
    ),
    "cassandra": SinkFormat("cassandra:CassandraSink", ("table",), ("table", "on_error"), "cassandra", "cassandra"),
    "elasticsearch": SinkFormat(
        "elasticsearch:ElasticsearchSink",
        ("table",),
        ("table", "key", "on_error"),
        "elastic_transport",
        "elasticsearch",
        origin_or_key=True,
        table_is_index=True,
    ),
    "snowflake": SinkFormat(
        "snowflake:SnowflakeSink", ("table",), ("table", "key"), "snowflake.connector", "snowflake", appends=True
    ),
}


def missing_package(format: str) -> str:  # noqa: A002  # as files call it
    """What to install before a sink can be used; empty if nothing."""
    kind = SINK_FORMATS.get(format)
    if kind is None or not kind.package or _installed(kind.package):
        return ""
    return f'{format} needs the package {kind.package.partition(".")[0]}; pip install "penstock[{kind.extra}]"'


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
