"""The formats that Penstock has a sink for, and the fields and options that a pipeline's file has for each."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from penstock.pipelines.spec.options import Declared, Option, numbers, texts, words

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
    options: Declared | None = None
    """The options it takes; None if only Spark knows them."""


_LIBPQ = """
host hostaddr dbname user password passfile require_auth channel_binding client_encoding options application_name
fallback_application_name replication gssencmode requiressl sslnegotiation sslcompression sslcert sslkey sslkeylogfile
sslpassword sslcertmode sslrootcert sslcrl sslcrldir sslsni requirepeer ssl_min_protocol_version
ssl_max_protocol_version min_protocol_version max_protocol_version krbsrvname gsslib gssdelegation service
servicefile scram_client_key
scram_server_key oauth_issuer oauth_client_id oauth_client_secret oauth_scope port
"""
_LEVELS = words("ANY ONE TWO THREE QUORUM ALL LOCAL_QUORUM EACH_QUORUM SERIAL LOCAL_SERIAL LOCAL_ONE")
_KEYED = ("key", "history", "history_time")

_FILES = SinkFormat(
    "files:FileSink", needs=("path",), takes=("path", "partition_by", "roll_bytes", "roll_every"), appends=True
)

ANY_FORMAT = SinkFormat("spark:SparkSink", takes=("path", "partition_by"))

SINK_FORMATS = {
    **dict.fromkeys(("parquet", "json", "csv", "orc", "text"), _FILES),
    "console": SinkFormat(
        "spark:ConsoleSink", options=Declared((Option("numRows", "number"), Option("truncate", "truth")))
    ),
    "delta": SinkFormat(
        "delta:DeltaSink",
        ("path",),
        ("path", "partition_by", *_KEYED),
        "deltalake",
        "pipelines",
        appends=True,
        adds_columns=True,
        options=Declared(
            (Option("optimizeEvery", "number"), Option("mergeSchema", "truth"), Option("vacuumHours", "number")),
            passes_on=True,
        ),
    ),
    "iceberg": SinkFormat(
        "iceberg:IcebergSink",
        ("table",),
        ("table", "partition_by", *_KEYED),
        "pyiceberg",
        "iceberg",
        appends=True,
        adds_columns=True,
        options=Declared(
            (
                *texts("catalog uri warehouse credential token scope"),
                Option("type", choices=("rest", "sql", "glue", "hive", "dynamodb", "bigquery", "in-memory")),
                Option("mergeSchema", "truth"),
            ),
            passes_on=True,
        ),
    ),
    "postgres": SinkFormat(
        "postgres:PostgresSink",
        ("table",),
        ("table", "on_error", *_KEYED),
        "psycopg",
        "postgres",
        appends=True,
        options=Declared(
            (
                Option("dsn"),
                *texts(_LIBPQ),
                *numbers(
                    "connect_timeout keepalives keepalives_idle keepalives_interval keepalives_count tcp_user_timeout"
                ),
                Option("sslmode", choices=("disable", "allow", "prefer", "require", "verify-ca", "verify-full")),
                Option("load_balance_hosts", choices=("disable", "random")),
                Option(
                    "target_session_attrs",
                    choices=("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
                ),
            )
        ),
    ),
    "cassandra": SinkFormat(
        "cassandra:CassandraSink",
        ("table",),
        ("table", "on_error"),
        "cassandra",
        "cassandra",
        options=Declared(
            (
                *texts("hosts username password datacenter"),
                Option("port", "number"),
                Option("consistency", choices=tuple(_LEVELS)),
            )
        ),
    ),
    "elasticsearch": SinkFormat(
        "elasticsearch:ElasticsearchSink",
        ("table",),
        ("table", "key", "on_error"),
        "elastic_transport",
        "elasticsearch",
        origin_or_key=True,
        table_is_index=True,
        options=Declared((*texts("hosts api_key username password ca_certs"), Option("verify_certs", "truth"))),
    ),
    "snowflake": SinkFormat(
        "snowflake:SnowflakeSink",
        ("table",),
        ("table", "key"),
        "snowflake.connector",
        "snowflake",
        appends=True,
        options=Declared(
            texts("account user password warehouse database schema role authenticator token private_key_file host"),
            passes_on=True,
        ),
    ),
}


def option_names(format: str) -> tuple[str, ...]:  # noqa: A002  # as files call it
    """The options of a sink of ours."""
    declared = SINK_FORMATS[format].options
    return () if declared is None else declared.names


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
