"""The model of a pipeline: the classes that files are bound to, and that Python programs construct.

    Pipeline(
        name="orders",
        sources={"orders": TopicSource(topic=("orders",), value=Decoding(format="json", schema="id BIGINT"))},
        steps={"large": Step(sql="SELECT * FROM orders WHERE id > 10")},
        sinks={"large": TopicSink(source="large", topic="orders.large")},
    )

These classes are the only declaration of the file's fields: the parser binds YAML to them, and the JSON Schema and the
reference in the documentation are generated from them (the text under a field is its documentation). Fields of a file
have the same names, except for `source`, which is `from` in files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from penstock.client.access import with_settings
from penstock.pipelines.spec.durations import Duration
from penstock.pipelines.spec.secrets import Secret

Options = dict[str, str | Secret]

FILE_NAMES = {"source": "from"}
"""Fields whose name in a file is a keyword of Python."""

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
METADATA_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
"""The columns that a topic's records have in addition to those of their values."""

_SECOND, _MINUTE, _TEN_MINUTES = Duration(1000), Duration(60_000), Duration(600_000)

Consequence = Literal["keep", "drop", "dead-letter", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A value that differs between environments or runs: `${name}` anywhere in the file."""

    type: Literal["string", "int", "float", "bool"] = "string"
    default: str | Secret | int | float | bool | None = None
    """Without it the parameter must be set."""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How bytes of a topic become columns."""

    format: Literal["bytes", "string", "json", "avro", "protobuf"] = "string"
    """`bytes` and `string` make one column, `value`; the others one for each field."""
    schema: str = ""
    """For json: columns as in CREATE TABLE, `id BIGINT NOT NULL, at TIMESTAMP`; for avro: a schema, as JSON."""
    schema_file: str = ""
    """The same in a file beside this one; for protobuf: a descriptor set, of `protoc --descriptor_set_out`."""
    message: str = ""
    """For protobuf: the full name of the message, `shop.Order`."""
    registry: str = ""
    """For json, avro and protobuf: the address of a schema registry, or `"@prod"` with `schema.registry.url`. Each
    record names the schema it was written with. Columns are those of the subject's latest version, unless there is a
    schema here."""
    subject: str = ""
    """With a registry: default, the first topic's name and `-value`."""
    options: Options = field(default_factory=dict)
    """For json: options of Spark's reader, such as `timestampFormat`."""
    registry_options: Options = field(default_factory=dict)
    """Of the registry: `basic.auth.user.info: ${secret:env:NAME}`, `ssl.ca.location`, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What is true of every row, and what becomes of rows of which it is not. NULL is not true."""

    that: str
    """A condition in SQL: `amount > 0`."""
    otherwise: Consequence = "dead-letter"
    """`keep` counts them, `drop` leaves them out, `dead-letter` sends the source's record to the dead-letter topic,
    `fail` stops the pipeline."""
    name: str = ""
    """For messages and counts; the condition itself, if it has none."""

    @property
    def title(self) -> str:
        return self.name or " ".join(self.that.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """How long rows may be late."""

    column: str
    """A column of type TIMESTAMP."""
    delay: Duration
    """Windows that ended this long before the latest time seen are final; rows for them are dropped and counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """Records of topics. Columns: those of the value, and `_key`, `_topic`, `_partition`, `_offset`, `_timestamp`,
    `_headers`."""

    SIGNS: ClassVar[tuple[str, ...]] = ("topic", "topic_pattern")

    topic: tuple[str, ...] = ()
    """One or several."""
    topic_pattern: str = ""
    """Instead: all topics whose names match this regular expression, also later ones."""
    value: Decoding = Decoding()
    key: Literal["string", "bytes"] = "string"
    """What the column `_key` holds."""
    on_error: Literal["drop", "dead-letter", "fail"] = "dead-letter"
    """What becomes of a record that does not decode."""
    evolution: Literal["ignore", "fail", "dead-letter", "add-columns"] = "ignore"
    """For json, and avro with a registry: what becomes of records with fields that the schema lacks. `add-columns`
    makes columns of them, for steps without state and sinks: of json with the types of their first values, of avro
    those of the latest version."""
    starting_offsets: str = "earliest"
    """Where the first run begins: `earliest`, `latest`, or JSON as for Spark's Kafka source. Later runs go on."""
    max_records: int | None = None
    """At most so many in a batch."""
    watermark: Watermark | None = None
    expect: tuple[Expectation, ...] = ()
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    bootstrap: str = ""
    """Of another cluster than the pipeline's."""
    options: Options = field(default_factory=dict)
    """Anything else that the source takes: `minPartitions`, `kafka.security.protocol`, ..."""

    def __post_init__(self) -> None:
        if self.value.registry and not self.value.subject and self.topic:
            object.__setattr__(self, "value", replace(self.value, subject=f"{self.topic[0]}-value"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSource:
    """Anything that Spark reads: files, JDBC, rate, or a format of the user's jars."""

    SIGNS: ClassVar[tuple[str, ...]] = ("format",)

    format: str
    mode: Literal["stream", "lookup", "snapshot", "incremental"] = "stream"
    """`stream`: rows as they come. `lookup`: a table to join with, read anew for every batch. `snapshot`: the whole
    table, once a run or trigger. `incremental`: rows whose `cursor` is beyond that of the last run."""
    path: str = ""
    schema: str = ""
    """Columns as in CREATE TABLE; streams of files need it, and with it `validate` knows the columns."""
    cursor: str = ""
    """For incremental: a column that only grows, such as an id or the time of the last change."""
    watermark: Watermark | None = None
    expect: tuple[Expectation, ...] = ()
    options: Options = field(default_factory=dict)


Source = TopicSource | FormatSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A table made from others: by a query in SQL, or by a function of Python."""

    sql: str = ""
    """A query of Spark SQL over sources and other steps."""
    python: str | Callable[..., Any] = ""
    """`module:function`: takes the DataFrames of `from`, in that order, and returns one."""
    source: tuple[str, ...] = ()
    """For python: the sources and steps it takes. SQL says so itself."""
    stateful: bool = False
    """It aggregates, joins streams or keeps state, and so needs a query of its own. Of SQL this is seen, unless an
    aggregate is a function of the user's."""
    keeps_source_row: bool = False
    """For python: whether each of its rows stems from one row that it was given and still has all hidden columns (as
    after `withColumn` and `filter`, not after `select`). Only then its rows can become dead letters."""
    output: Literal["append", "update", "complete", ""] = ""
    """Of a step with state, when its rows are written: `append` when they are final, `update` whenever they change,
    `complete` all of them every time. Default: `append` below a watermark, else `update`."""
    expect: tuple[Expectation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How rows become bytes."""

    format: Literal["json", "string", "bytes", "avro", "protobuf"] = "json"
    """`json`, `avro` and `protobuf` take all columns but the metadata; `string` and `bytes` one."""
    column: str = ""
    """For string and bytes: an expression of SQL."""
    schema: str = ""
    schema_file: str = ""
    message: str = ""
    registry: str = ""
    """For json, avro and protobuf: records start with the id of their schema in this registry, as Confluent's
    serializers write them. A schema here is registered when the pipeline starts; without one the subject's latest
    version is used."""
    subject: str = ""
    """With a registry: default, the topic's name and `-value`."""
    registry_options: Options = field(default_factory=dict)
    """Of the registry: `basic.auth.user.info: ${secret:env:NAME}`, `ssl.ca.location`, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    """Records in topics, exactly once: all topics and dead letters of a query's batch become visible together, or not
    at all."""

    SIGNS: ClassVar[tuple[str, ...]] = ("topic", "topic_expression")

    source: str
    """A step or a source."""
    topic: str = ""
    topic_expression: str = ""
    """Instead: the topic of each row, in SQL."""
    key: str = ""
    """In SQL; written as text unless it is binary. Without it records have no key."""
    value: Encoding = Encoding()
    headers: dict[str, str] = field(default_factory=dict)
    """Their values in SQL."""
    delivery: Literal["exactly-once", "at-least-once"] = "exactly-once"
    options: Options = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.value.registry and not self.value.subject and self.topic:
            object.__setattr__(self, "value", replace(self.value, subject=f"{self.topic}-value"))

    @property
    def bootstrap(self) -> str:
        """Of another cluster than the pipeline's, or empty."""
        return str(self.options.get("kafka.bootstrap.servers", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSink:
    """Anything else that is written to: files (parquet, json, csv, ...), delta, iceberg, postgres, cassandra,
    elasticsearch, snowflake, console, what an installed package brings (entry point `penstock.sinks`), or any format of
    Spark's."""

    SIGNS: ClassVar[tuple[str, ...]] = ("format",)

    source: str
    """A step or a source."""
    format: str
    path: str = ""
    partition_by: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """Default: all but the metadata of records."""
    table: str = ""
    """Of a database: where rows go, `schema.table`; of Elasticsearch: the index."""
    key: tuple[str, ...] = ()
    """Of a database: columns by which a row takes the place of an earlier one. Without it rows are added."""
    history: bool = False
    """Of a table with a key: keep every version of a row, with `valid_from`, `valid_to` and `is_current`."""
    history_time: str = ""
    """The column with the time from which a version is valid. Default: when it is written."""
    on_error: Literal["fail", "drop", "dead-letter", ""] = ""
    """Of a database: what becomes of rows that it refuses. Default: `dead-letter` where rows still have their record,
    else `fail`."""
    roll_bytes: int | None = None
    """Of files: rows are gathered until there are about so many bytes, and only then shown, in files of this size."""
    roll_every: Duration | None = None
    """Of files: ... or until the first of them has waited this long. Without both a batch is shown when it is done."""
    options: Options = field(default_factory=dict)


Sink = TopicSink | FormatSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What happens after a query fails."""

    attempts: int = 10
    """Failures in a row until the pipeline gives up; 0: it stops at the first."""
    backoff: Duration = _SECOND
    """Before the first attempt; twice as long before each further one."""
    backoff_max: Duration = _MINUTE
    healthy_after: Duration = _TEN_MINUTES
    """A query that ran this long starts counting anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """Where records go that do not decode or break an expectation."""

    topic: str = ""
    """Default: the pipeline's name and `.dead-letters`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySettings:
    """One of the queries that the pipeline runs as; `penstock pipeline graph` shows which there are."""

    trigger: Duration | None = None
    after: tuple[str, ...] = ()
    """With --once: queries that must have ended before it starts. Topics in between are known without being said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTest:
    """Rows in, rows expected: `penstock pipeline test`."""

    name: str
    given: dict[str, list[Any]] | list[dict[str, list[Any]]]
    """Rows of each source, as one batch or as several. Of a topic: `{key: ..., value: ..., timestamp: ...}`."""
    expect: dict[str, list[Any]] = field(default_factory=dict)
    """Rows of each sink, in any order; of a row only the fields that are mentioned are compared."""
    dead_letters: list[Any] = field(default_factory=list)
    """`{topic: ..., offset: ..., reason: ...}`, also `field`, `key`, `value`, `partition`, `timestamp`: the reason is a
    part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """From topics to topics, to tables, and from tables to topics, as one file."""

    name: str
    """Its identity: checkpoints, transactions and groups are kept by it."""
    description: str = ""
    parameters: dict[str, Parameter] = field(default_factory=dict)
    environments: dict[str, Any] = field(default_factory=dict)
    """What differs: `parameters`, and any other fields of this file, merged over it by --env."""
    bootstrap: str = DEFAULT_BOOTSTRAP
    """Brokers of the cluster; or a profile with its brokers and settings: `"@prod"`."""
    client: Options = field(default_factory=dict)
    """Settings of the cluster's clients by Kafka's names: `security.protocol`, `sasl.mechanism`, ... A secret is a
    reference: `sasl.password: ${secret:env:NAME}`."""
    checkpoints: str = "checkpoints"
    """Any path that Hadoop knows; a relative one is beside this file. A query's is `<checkpoints>/<name>/<query>`."""
    trigger: Duration | None = None
    """The time between batches; without it the next begins when the last has ended."""
    sources: dict[str, Source] = field(default_factory=dict)
    steps: dict[str, Step] = field(default_factory=dict)
    sinks: dict[str, Sink] = field(default_factory=dict)
    queries: dict[str, QuerySettings] = field(default_factory=dict)
    dead_letters: DeadLetters = DeadLetters()
    restart: Restart = Restart()
    spark: dict[str, str] = field(default_factory=dict)
    """Settings of the Spark session."""
    tests: tuple[PipelineTest, ...] = ()

    @property
    def cluster(self) -> str:
        """The brokers with the settings of their clients; ClientError if a secret among these is no reference."""
        return self.at(self.bootstrap)

    def at(self, bootstrap: str) -> str:
        """Other brokers with the same settings of clients, unless the text refers to settings of its own."""
        settings = {name: str(value) for name, value in self.client.items()}
        return bootstrap if "@" in bootstrap and bootstrap != self.bootstrap else with_settings(bootstrap, settings)

    @property
    def dead_letter_topic(self) -> str:
        return self.dead_letters.topic or f"{self.name}.dead-letters"
