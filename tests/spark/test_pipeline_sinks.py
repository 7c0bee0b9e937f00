"""Sinks of pipelines on Spark: all of them stand what `penstock.testing.sinks` asks, and what each promises besides."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from google.protobuf import descriptor_pb2

from elasticsearch_server import elasticsearch_server
from history_cases import BATCHES
from iceberg_rest import rest_catalog
from penstock.arrow import read_table, write_table
from penstock.pipelines.check.codecs import codec
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine.runner import Runner
from penstock.pipelines.sinks import Destination, SinkUnavailable
from penstock.pipelines.sinks.delta import DeltaSink
from penstock.pipelines.sinks.elasticsearch import ElasticsearchSink
from penstock.pipelines.sinks.files import FileSink
from penstock.pipelines.sinks.iceberg import IcebergSink
from penstock.pipelines.sinks.postgres import PostgresSink
from penstock.pipelines.spec.model import Encoding
from penstock.pipelines.spec.problems import PipelineFailed
from penstock.testing.sinks import COLUMNS, SinkCase, check_sink
from postgres_server import PostgresServer, postgres_server
from spark.cassandra_server import cassandra_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.testing import Cluster

FLAT = tuple(name for name in COLUMNS if name not in ("raw", "tags", "nested"))
NewTopic = Callable[..., str]
OLDER = "the checkpoint is older than what is written: batch 2 comes after 3 was written"


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.mark.parametrize(
    "kind", ["parquet", pytest.param("json", marks=pytest.mark.soak), pytest.param("csv", marks=pytest.mark.soak)]
)
def test_files(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    columns = FLAT if kind == "csv" else tuple(COLUMNS)
    options = {"header": "true", "escape": '"'} if kind == "csv" else {}
    path = str(tmp_path / "table")
    to = Destination("shop", "orders", "lake", path, ("flag",), options, format=kind)
    schema = ", ".join(f"{name} {COLUMNS[name]}" for name in columns)

    def read() -> list[dict[str, Any]]:
        reader = spark.read.format(kind).schema(schema).options(**options)
        frame = (reader.option("multiLine", "true") if kind == "csv" else reader).load(path)
        return [_python(row.asDict(recursive=True)) for row in frame.collect()]

    texts = ("plain", 'it\'s "quoted", with a comma', "two\nlines", "žluťoučký 🐎")
    check_sink(spark, SinkCase(open=lambda: FileSink(to), read=read, keyed=False, columns=columns, texts=texts))
    with pytest.raises(PipelineFailed, match=OLDER):
        FileSink(to).write(spark.range(1), 2)


def test_files_are_rolled(spark: SparkSession, tmp_path: Path) -> None:
    """Batches are gathered and shown as one file; a restart forgets none of them, and the end of the query shows the
    rest."""
    to = Destination("shop", "orders", "lake", str(tmp_path / "t"), (), {}, format="json", roll_bytes=6000)

    def shown() -> list[int]:
        return sorted(path.read_text().count("\n") for path in (tmp_path / "t").glob("part-*.json"))

    def rows(count: int) -> DataFrame:
        """Of twenty bytes each."""
        return spark.range(count).selectExpr("id", "repeat('x', 3) AS text")

    sink = FileSink(to)
    for batch in range(2):
        sink.write(rows(100), batch)
    sink = FileSink(to)  # as after a kill
    sink.write(rows(100), 1)
    assert shown() == []
    sink.write(rows(100), 2)
    assert shown() == [300]
    sink.write(rows(7), 3)
    assert shown() == [300]
    sink.close()
    assert shown() == [7, 300]
    FileSink(to).write(rows(7), 3)
    assert shown() == [7, 300]


def test_delta(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    to = Destination("shop", "orders", "lake", path, ("flag",), {"optimizeEvery": "4", "vacuumHours": "0"})

    def read() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
        return rows

    check_sink(spark, SinkCase(open=lambda: DeltaSink(to), read=read, keyed=False))

    assert "OPTIMIZE" in [commit["operation"] for commit in DeltaTable(path).history()]
    with pytest.raises(PipelineFailed, match=OLDER):
        DeltaSink(to).write(spark.range(1), 2)
    with pytest.raises(PipelineFailed, match='column "id" of the table is int64, it is string here; CAST it'):
        DeltaSink(to).write(spark.sql("SELECT 'x' AS id"), 9)


def test_delta_tables_of_others(spark: SparkSession, tmp_path: Path) -> None:
    """A table that exists keeps its partitions, and its rules hold."""
    for before, named in (("p", ()), (None, ("p",))):
        path = str(tmp_path / f"partitioned-{before}")
        write_deltalake(path, pa.table({"id": [1], "p": ["x"]}), partition_by=before)
        DeltaSink(Destination("shop", "orders", "lake", path, named)).write(spark.sql("SELECT 2L AS id, 'y' AS p"), 0)
        DeltaSink(Destination("shop", "orders", "lake", path, named)).write(spark.sql("SELECT 3L AS id"), 1)
        rows = DeltaTable(path).to_pyarrow_table().to_pylist()
        assert sorted((row["id"], row["p"]) for row in rows) == [(1, "x"), (2, "y"), (3, None)]

    path = str(tmp_path / "ruled")
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("amount", pa.int64())])
    DeltaTable.create(path, columns).alter.add_constraint({"positive": "amount > 0"})
    sink = DeltaSink(Destination("shop", "orders", "lake", path))
    for rows, message in (
        ("SELECT 1L AS id, 1L AS amount UNION ALL SELECT NULL, 1L", "1 rows break NOT NULL of id"),
        ("SELECT 1L AS id, -1L AS amount", r"1 rows break the constraint positive \(amount > 0\) of the table"),
        ("SELECT 1L AS amount", 'column "id" of the table is NOT NULL, and is missing'),
    ):
        with pytest.raises(PipelineFailed, match=message):
            sink.write(spark.sql(rows), 0)
    sink.write(spark.sql("SELECT 1L AS id, 1L AS amount"), 0)
    sink.write(spark.sql("SELECT 1L AS id, 1L AS amount WHERE false"), 1)
    assert DeltaTable(path).to_pyarrow_table().to_pylist() == [{"id": 1, "amount": 1}]


def test_versions_in_partitions_of_time(spark: SparkSession, tmp_path: Path) -> None:
    """What is read from the table and written to it again is as it was, in every time zone."""
    path = str(tmp_path / "table")
    to = Destination("shop", "orders", "lake", path, ("on",), key=("id",), history=True, history_time="at")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        for batch in range(3):
            times = f"TIMESTAMP '2026-05-01 0{batch}:00:00Z' AS at, TIMESTAMP '2026-05-01 00:00:00Z' AS on"
            DeltaSink(to).write(spark.sql(f"SELECT 1L AS id, {batch} AS n, {times}"), batch)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))

    rows = DeltaTable(path).to_pyarrow_table().sort_by("n").to_pylist()
    assert [(row["n"], row["on"]) for row in rows] == [
        (n, datetime.datetime(2026, 5, 1, tzinfo=datetime.UTC)) for n in range(3)
    ]


def test_delta_with_a_key(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    to = Destination("shop", "orders", "lake", path, ("flag",), {"optimizeEvery": "4"}, key=("id",))

    def read() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
        return rows

    check_sink(spark, SinkCase(open=lambda: DeltaSink(to), read=read, keyed=True))

    assert not list((tmp_path / "table" / "_penstock").glob("*/*"))  # nothing staged is left


@pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=pytest.mark.soak)])
def test_counts_that_change_are_in_a_table_once(
    kind: str, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """NULL is a group, too."""
    options = request.getfixturevalue("iceberg") if kind == "iceberg" else {}
    place = f"table: shop.totals, options: {json.dumps(options)}" if kind == "iceberg" else "path: totals"
    (tmp_path / "orders").mkdir()
    file = tmp_path / "totals.yaml"
    file.write_text(f"{TOTALS}  totals: {{from: totals, format: {kind}, {place}, key: customer}}\n")
    loaded, _ = load_checked(str(file))
    for number, customers in enumerate(("ann bob ann", "ann ")):
        rows = ({"customer": each or None, "amount": 1} for each in customers.split(" "))
        (tmp_path / "orders" / f"{number}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        Runner(loaded, spark).run_once()
    delta = str(tmp_path / "totals")
    table = (
        DeltaTable(delta).to_pyarrow_table().to_pylist() if kind == "delta" else _iceberg_rows(options, "shop.totals")
    )
    assert {row["customer"]: row["orders"] for row in table} == {"ann": 3, "bob": 1, None: 1}
    assert len(table) == 3


TOTALS = """\
name: totals
restart: {attempts: 0}
sources:
  orders: {format: json, mode: stream, path: orders, schema: "customer STRING, amount INT"}
steps:
  totals: {sql: "SELECT customer, count(*) AS orders FROM orders GROUP BY customer"}
sinks:
"""


@pytest.fixture
def iceberg(tmp_path: Path) -> dict[str, str]:
    """The options of a sink."""
    pytest.importorskip("pyiceberg", reason="no pyiceberg here: pip install pyiceberg")
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}


def _iceberg_rows(options: dict[str, str], table: str) -> list[dict[str, Any]]:
    from pyiceberg.catalog import load_catalog

    rows: list[dict[str, Any]] = load_catalog(None, **options).load_table(table).scan().to_arrow().to_pylist()
    return rows


def test_iceberg(spark: SparkSession, iceberg: dict[str, str]) -> None:
    """A batch that was written is known when all snapshots but the last are gone, too."""
    from pyiceberg.catalog import load_catalog

    to = Destination("shop", "orders", "lake", options=iceberg, table="shop.orders", partition_by=("flag",))

    def read() -> list[dict[str, Any]]:
        return _iceberg_rows(iceberg, "shop.orders")

    check_sink(spark, SinkCase(open=lambda: IcebergSink(to), read=read, keyed=False))

    table = load_catalog(None, **iceberg).load_table("shop.orders")
    assert len(table.spec().fields) == 1
    before = len(read())
    table.maintenance.expire_snapshots().older_than(datetime.datetime.now() + datetime.timedelta(days=1)).commit()
    IcebergSink(to).write(spark.sql("SELECT 1L AS id"), 3)
    assert len(read()) == before
    with pytest.raises(PipelineFailed, match=OLDER):
        IcebergSink(to).write(spark.sql("SELECT 1L AS id"), 2)
    with pytest.raises(PipelineFailed, match='column "id" of the table is int64, it is string here; CAST it'):
        IcebergSink(to).write(spark.sql("SELECT 'x' AS id"), 9)
    with pytest.raises(PipelineFailed, match='the table has no column "txt"; did you mean "text"'):
        IcebergSink(to).write(spark.sql("SELECT 1L AS id, 'x' AS txt"), 9)
    grows = replace(to, options={**iceberg, "mergeSchema": "true"})
    IcebergSink(grows).write(spark.sql("SELECT 900L AS id, CAST(1 AS SMALLINT) AS extra"), 9)
    assert [row["id"] for row in read() if row["extra"] == 1] == [900]


def test_iceberg_with_a_key(spark: SparkSession, iceberg: dict[str, str]) -> None:
    """A process that was taken for dead writes nothing, and says who was faster."""
    to = Destination("shop", "orders", "lake", options=iceberg, table="shop.orders", key=("id",))

    def read() -> list[dict[str, Any]]:
        return _iceberg_rows(iceberg, "shop.orders")

    check_sink(spark, SinkCase(open=lambda: IcebergSink(to), read=read, keyed=True))

    before = len(read())
    slow = IcebergSink(to)
    table = slow._table(None)  # as it is now
    IcebergSink(to).write(spark.sql("SELECT 900L AS id, 'fast' AS text"), 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slow, "_table", lambda schema: table)
        with pytest.raises(SinkUnavailable, match="another writer changed the table"):
            slow.write(spark.sql("SELECT 900L AS id, 'slow' AS text UNION ALL SELECT 901L, 'slow'"), 4)
    assert [row["text"] for row in read() if row["id"] >= 900] == ["fast"]
    assert len(read()) == before + 1


def test_iceberg_in_a_rest_catalog(spark: SparkSession, iceberg: dict[str, str]) -> None:
    rows = spark.sql("SELECT id, 'a' AS text FROM range(3)")
    with rest_catalog(iceberg) as catalog:
        options = {"type": "rest", "uri": catalog.address, "token": catalog.token}
        to = Destination("shop", "orders", "lake", options=options, table="shop.orders", key=("id",))
        for _ in range(2):
            IcebergSink(to).write(rows, 0)
        IcebergSink(to).write(spark.sql("SELECT 2L AS id, 'b' AS text"), 1)
        assert sorted((row["id"], row["text"]) for row in _iceberg_rows(iceberg, "shop.orders")) == [
            (0, "a"),
            (1, "a"),
            (2, "b"),
        ]
        catalog.status = 503
        with pytest.raises(SinkUnavailable, match="not now"):
            IcebergSink(to).write(rows, 2)
        stranger = replace(to, options={**options, "token": "t0psecret"})
        with pytest.raises(PipelineFailed, match="who is it") as told:
            IcebergSink(stranger).write(rows, 2)
        assert not isinstance(told.value, SinkUnavailable)
        assert "t0psecret" not in str(told.value)
    with pytest.raises(SinkUnavailable, match="Connection"):  # refused or, while the socket is closed, reset
        IcebergSink(to).write(rows, 2)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_history(kind: str, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Every batch is written twice."""
    options = request.getfixturevalue("iceberg") if kind == "iceberg" else {}
    path = str(tmp_path / "table")
    to = Destination(
        "shop", "orders", "lake", path, (), options, table="shop.o", key=("id",), history=True, history_time="at"
    )
    opened = DeltaSink if kind == "delta" else IcebergSink
    for number, (law, rows, expected) in enumerate(BATCHES):
        for _ in range(2):
            opened(to).write(spark.createDataFrame(rows, "id BIGINT, name STRING, at TIMESTAMP"), number)
        found = DeltaTable(path).to_pyarrow_table().to_pylist() if kind == "delta" else _iceberg_rows(options, "shop.o")
        columns = ("id", "name", "valid_from", "valid_to", "is_current")
        versions = [tuple(row[name] for name in columns) for row in found]
        assert sorted(versions, key=lambda row: (row[0], row[2])) == expected, law


@pytest.mark.soak  # what its statements do is tested without Spark (tests/pipelines), and the whole below
def test_postgres(spark: SparkSession, postgres: PostgresServer) -> None:
    """The table is made by the first batch."""
    postgres.query("CREATE SCHEMA shop")
    to = Destination("shop", "orders", "table", options=postgres.options, table='shop.The "Orders"', key=("id",))
    columns = ", ".join(f'"{name}"' for name in COLUMNS)

    def read() -> list[dict[str, Any]]:
        rows = postgres.query(f'SELECT {columns} FROM shop."The ""Orders"""')
        return [dict(zip(COLUMNS, row, strict=True)) for row in rows]

    check_sink(spark, SinkCase(open=lambda: PostgresSink(to), read=read, keyed=True))

    assert postgres.query("SELECT relname FROM pg_class WHERE relname LIKE 'penstock_stage%'") == []


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_elasticsearch(spark: SparkSession, tmp_path: Path) -> None:
    columns = tuple(name for name in COLUMNS if name != "raw")
    with elasticsearch_server(str(tmp_path)) as server:
        to = Destination("shop", "orders", "search", options={"hosts": server.address}, table="orders", key=("id",))

        def read() -> list[dict[str, Any]]:
            rows = server.documents("orders").values()
            return [
                {
                    **row,
                    "exact": row["exact"] and Decimal(str(row["exact"])),
                    "day": row["day"] and datetime.date.fromisoformat(row["day"]),
                    "at": row["at"] and datetime.datetime.fromisoformat(row["at"]),
                }
                for row in rows
            ]

        check_sink(spark, SinkCase(open=lambda: ElasticsearchSink(to), read=read, keyed=True, columns=columns))
        mapping = server.request("GET", "orders/_mapping")["orders"]["mappings"]["properties"]
        assert {name: mapping[name]["type"] for name in ("id", "number", "flag", "day", "at")} == {
            "id": "long",
            "number": "float",
            "flag": "boolean",
            "day": "date",
            "at": "date",
        }


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore")  # of what the driver does with asyncore
def test_cassandra(spark: SparkSession, tmp_path: Path) -> None:
    columns = tuple(name for name in COLUMNS if name != "nested")
    with cassandra_server(str(tmp_path)) as options:
        from penstock.pipelines.sinks.cassandra import CassandraSink, connected

        with connected(options) as session:
            session.execute(
                "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
            )
            session.execute(
                "CREATE TABLE shop.orders (id bigint PRIMARY KEY, text text, number double, small int, exact decimal, "
                "flag boolean, day date, at timestamp, raw blob, tags list<text>)"
            )
        to = Destination("shop", "orders", "table", options=options, table="shop.orders", refusals=True)

        def read() -> list[dict[str, Any]]:
            with connected(options) as session:
                return [
                    _python(row._asdict()) for row in session.execute(f"SELECT {', '.join(columns)} FROM shop.orders")
                ]

        check_sink(spark, SinkCase(open=lambda: CassandraSink(to), read=read, keyed=True, columns=columns))

        refused = CassandraSink(to).write(spark.sql("SELECT 7L AS id, 'x' AS number"), 9)
        assert len(refused) == 1
        assert "number" in refused[0].reason
        with pytest.raises(PipelineFailed, match=r'table shop.orders has no column "txt"; did you mean "text"'):
            CassandraSink(to).write(spark.sql("SELECT 7L AS id, 'x' AS txt"), 9)
    with pytest.raises(SinkUnavailable, match="Cassandra"):
        CassandraSink(to).write(spark.sql("SELECT 7L AS id"), 9)


PIPELINE = """\
name: {unique}
bootstrap: {bootstrap}
checkpoints: {place}/checkpoints
restart: {{attempts: 3, backoff: 10ms}}
sources:
  orders:
    topic: {orders}
    value: {{format: protobuf, schema_file: shop.desc, message: shop.Order}}
  payments:
    topic: {payments}
    value: {{format: json, schema: "id BIGINT, amount DOUBLE"}}
  prices: {{format: json, mode: snapshot, path: prices.json, schema: "id BIGINT, price DOUBLE"}}
steps:
  paid: {{sql: "SELECT o.id, o.name, p.amount FROM orders o JOIN payments p ON o.id = p.id"}}
sinks:
  copies: {{from: orders, topic: {copies}, value: {{format: protobuf, schema_file: shop.desc, message: shop.Order}}}}
  shown: {{from: orders, format: console}}
  listed: {{from: orders, format: listing, options: {{file: "{place}/listed"}}}}
  table: {{from: orders, format: postgres, table: narrow, key: id, options: {{{server}}}}}
  paid: {{from: paid, format: json, path: paid, roll_every: 1h}}
  prices: {{from: prices, topic: {prices}}}
dead_letters: {{topic: {dead}}}
"""

LISTING = """\
from penstock.pipelines.sinks import Sink

class Listing(Sink):
    def write(self, frame, batch):
        with open(self.destination.options["file"], "w") as file:
            file.writelines(f"{batch} {row.id} {row.name}\\n" for row in frame.orderBy("id").collect())
"""


@pytest.mark.soak
def test_a_pipeline_to_everywhere(
    spark: SparkSession,
    cluster: Cluster,
    postgres: PostgresServer,
    new_topic: NewTopic,
    unique_topic: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Protobuf in and out, the console, a sink of another package, a database that refuses a row, two streams joined, a
    snapshot."""
    _package(tmp_path / "installed", monkeypatch)
    postgres.query("CREATE TABLE narrow (id bigint PRIMARY KEY, name varchar(4))")
    (tmp_path / "shop.desc").write_bytes(_descriptors())
    (tmp_path / "prices.json").write_text('{"id": 1, "price": 9.5}\n{"id": 2, "price": 3.5}\n')
    topics = {name: new_topic() for name in ("orders", "payments", "copies", "prices", "dead")}
    coding = codec(Encoding(format="protobuf", schema_file="shop.desc", message="shop.Order"), str(tmp_path))
    orders = [coding.encode(_Row(id=number, name=name)) for number, name in ((1, "ann"), (2, "beatrice"), (3, "carl"))]
    write_table(cluster.bootstrap, topics["orders"], pa.table({"value": orders}))
    payments = ['{"id": 1, "amount": 9.5}', '{"id": 3, "amount": 1}', '{"id": 4, "amount": 1}']
    write_table(cluster.bootstrap, topics["payments"], pa.table({"value": payments}))
    server = ", ".join(f'{name}: "{value}"' for name, value in postgres.options.items())
    file = tmp_path / "everywhere.yaml"
    names = {"unique": unique_topic("everywhere"), "bootstrap": cluster.bootstrap, "place": tmp_path, "server": server}
    file.write_text(PIPELINE.format(**names, **topics))
    loaded, warnings = load_checked(str(file))
    assert warnings == []

    Runner(loaded, spark).run_once()

    def values(topic: str) -> list[Any]:
        rows: list[Any] = read_table(cluster.bootstrap, topics[topic], columns=["value", "headers"]).to_pylist()
        return rows

    assert sorted(coding.decode(row["value"])[0]["name"] for row in values("copies")) == ["ann", "beatrice", "carl"]
    assert (tmp_path / "listed").read_text() == "0 1 ann\n0 2 beatrice\n0 3 carl\n"
    assert "beatrice" in capfd.readouterr().out
    assert postgres.query("SELECT * FROM narrow ORDER BY id") == [(1, "ann"), (3, "carl")]
    (letter,) = values("dead")
    headers = {each["key"]: each["value"].decode() for each in letter["headers"]}
    assert letter["value"] == orders[1]
    assert headers["dead-letter.reason"] == 'sink "table": value too long for type character varying(4)'
    assert headers["dead-letter.offset"] == "1"
    paid = [json.loads(line) for path in (tmp_path / "paid").glob("*.json") for line in path.read_text().splitlines()]
    assert sorted((row["id"], row["name"], row["amount"]) for row in paid) == [(1, "ann", 9.5), (3, "carl", 1.0)]
    assert sorted(json.loads(row["value"])["price"] for row in values("prices")) == [3.5, 9.5]


class _Row(dict[str, Any]):
    """As a row of Spark's, as far as encoders look at it."""

    def __init__(self, **values: Any) -> None:
        super().__init__(values)

    def asDict(self, recursive: bool = False) -> dict[str, Any]:  # noqa: N802  # as Spark calls it
        return dict(self)


def _descriptors() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    order.field.add(name="name", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


def _package(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pip would install it: a sink of somebody else's."""
    about = place / "penstock_listing-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: penstock-listing\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[penstock.sinks]\nlisting = penstock_listing:Listing\n")
    (place / "penstock_listing.py").write_text(LISTING)
    monkeypatch.syspath_prepend(str(place))


def _python(row: dict[str, Any]) -> dict[str, Any]:
    def value(given: Any) -> Any:
        if isinstance(given, datetime.datetime):
            return given.replace(tzinfo=datetime.UTC)
        if type(given).__name__ == "Date":  # Cassandra's
            return given.date()
        return bytes(given) if isinstance(given, bytearray) else given

    return {name: value(given) for name, given in row.items()}
