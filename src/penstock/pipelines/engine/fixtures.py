"""Runs the tests of pipelines: rows in, rows and dead letters out, on Spark and without a broker.

Each batch of a test becomes a file of records, in the form of the topic source. Queries stream these files, one per
batch, through the same code that runs in production: decoding, steps, windows, watermarks, expectations. Their output
is collected and compared. Time is defined by the rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

from penstock.pipelines.check import codecs
from penstock.pipelines.check.analysis import analyse
from penstock.pipelines.check.query_plan import QueryPlan, plan
from penstock.pipelines.check.routes import Way, route
from penstock.pipelines.engine.batch import BatchPlan
from penstock.pipelines.engine.evolution import MemoryNotes, Notes
from penstock.pipelines.engine.failures import message_of
from penstock.pipelines.engine.one_scan import OUTPUT, NotOnePlan
from penstock.pipelines.engine.plain_rows import Instant, instant, plain_rows, text_of, with_instants
from penstock.pipelines.engine.prepared import Prepared, prepare
from penstock.pipelines.engine.query_input import PLAIN_CHECKPOINTS, ZONE, Sources, activate, query_input
from penstock.pipelines.engine.tables import Tables
from penstock.pipelines.spec.loading import Loaded
from penstock.pipelines.spec.model import (
    Encoding,
    FormatSource,
    Pipeline,
    PipelineTest,
    Source,
    TopicSink,
    TopicSource,
)
from penstock.pipelines.spec.problems import PipelineFailed
from penstock.spark.runtime.defaults import uses_rocksdb

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

RECORDS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_FIELDS = ("key", "value", "timestamp", "headers", "topic", "partition", "offset")
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_LETTER = "dead-letter."
_AT_ONCE = 2

_FOR_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",  # compiling costs more than processing a few rows
    "spark.sql.shuffle.partitions": "1",
    **PLAIN_CHECKPOINTS,
}


@dataclass(slots=True)
class TestResult:
    name: str
    differences: list[str] = field(default_factory=list)
    """Empty if it passed."""

    __test__ = False  # keeps pytest from collecting it


def run_tests(loaded: Loaded, session: SparkSession, names: Iterable[str] = ()) -> Iterator[TestResult]:
    wanted = set(names)
    return run_together(
        [(loaded, test) for test in loaded.pipeline.tests if not wanted or test.name in wanted], session
    )


def run_together(tests: Iterable[tuple[Loaded, PipelineTest]], session: SparkSession) -> Iterator[TestResult]:
    """In order. Planning keeps one core busy and a small batch hardly another: so Spark computes one test while the
    next is planned."""
    with ThreadPoolExecutor(_AT_ONCE, initializer=activate, initargs=(session,)) as threads:
        results = [threads.submit(run_test, loaded, session, test) for loaded, test in tests]
        try:
            for result in results:
                yield result.result()
        finally:
            for result in results:
                result.cancel()


def run_test(loaded: Loaded, session: SparkSession, test: PipelineTest) -> TestResult:
    """A test whose pipeline fails has failed, and the other tests still run."""
    from pyspark.errors import PySparkException

    try:
        written = pipeline_output(loaded, session, test.given)
    except (PySparkException, PipelineFailed) as error:
        return TestResult(test.name, [f"error: {message_of(error)}"])
    return TestResult(test.name, list(_differences(test, written)))


Given = dict[str, list[Any]] | list[dict[str, list[Any]]]


@dataclass(slots=True)
class PipelineOutput:
    """What a pipeline would write, in the form that tests use."""

    sinks: dict[str, list[Any]] = field(default_factory=dict)
    """Of topics: `{topic: ..., key: ..., value: ..., headers: ...}`; of others: rows, whose TIMESTAMPs are text in UTC
    that ends with `Z`."""
    dead_letters: list[Any] = field(default_factory=list)


def pipeline_output(loaded: Loaded, session: SparkSession, given: Given) -> PipelineOutput:
    """For rows of each source, as one batch or as several. The queries of a pipeline run at the same time: here they do
    not read what others write, and each of them mostly waits."""
    from pyspark.errors import PySparkException

    directory = tempfile.mkdtemp(prefix="penstock-test-")
    running: dict[str, StreamingQuery] = {}
    try:
        written = PipelineOutput({name: [] for name in loaded.pipeline.sinks})
        analysis = analyse(loaded.pipeline, loaded.directory)
        for query in plan(loaded.pipeline, analysis).values():
            has_state = query.input in loaded.pipeline.steps
            place = os.path.join(directory, query.name)
            sources = _Given(loaded.pipeline, loaded.directory, given, place, pauses=has_state)
            if not sources.feed(analysis.tables[query.input].sources):
                continue
            own = session.newSession()
            _configure(own, loaded.pipeline)
            batch_plan = BatchPlan(loaded.pipeline, analysis, query, loaded.directory, sources)
            frame = query_input(own, loaded.pipeline, analysis, query, loaded.directory, sources)
            way = route(loaded.pipeline, analysis, query).way
            started = _start(frame, loaded.pipeline, batch_plan, query, way, os.path.join(place, "checkpoint"), written)
            if started is not None:
                running[query.name] = started
        for name, each in running.items():
            try:
                each.awaitTermination()
            except PySparkException as error:
                raise PipelineFailed(f'query "{name}": {message_of(error)}') from error
        return written
    finally:
        for each in running.values():
            each.stop()
        shutil.rmtree(directory)


def _configure(session: SparkSession, pipeline: Pipeline) -> None:
    """The session may have been started for other pipelines, too."""
    for name, value in {**pipeline.spark, **_FOR_FEW_ROWS}.items():
        if name.startswith("spark.sql.") and session.conf.isModifiable(name):
            session.conf.set(name, value)
    session.conf.set(ZONE, "UTC")
    if uses_rocksdb(pipeline.spark):
        session.conf.set("fs.file.impl", "org.apache.hadoop.fs.LocalFileSystem")
        session.conf.set("fs.file.impl.disable.cache", "true")


def _start(
    frame: DataFrame,
    pipeline: Pipeline,
    plan: BatchPlan,
    query: QueryPlan,
    way: Way,
    checkpoint: str,
    written: PipelineOutput,
) -> StreamingQuery | None:
    """None for what has ended at once, because it is no stream."""

    def types_in(tables: Tables) -> Mapping[str, StructType]:
        sinks = ((name, pipeline.sinks[name]) for name in query.sinks)
        json_sinks = [name for name, sink in sinks if isinstance(sink, TopicSink) and sink.value.format == "json"]
        return {name: plan.row_type(tables, name) for name in json_sinks}

    def keep_records(rows: Iterable[Row], types: Mapping[str, StructType]) -> None:
        for row in rows:
            if row["sink"]:
                written.sinks[row["sink"]].append(_record_written(row, types.get(row["sink"])))
            else:
                written.dead_letters.append(_letter(row))

    def keep(batch: DataFrame, number: int) -> None:
        # Every use of a batch computes it again. Two tasks that compute the same state at the same time disturb each
        # other: only one of them makes the directory of the state store, and the other may find none.
        if query.input in pipeline.steps:
            batch = batch.persist()
        outputs = plan.outputs(batch)
        records: dict[str, DataFrame] = {}
        for name, rows in outputs.sinks.items():
            if isinstance(pipeline.sinks[name], TopicSink):
                records[name] = rows
            else:
                written.sinks[name] += plain_rows(rows)
        if outputs.dead_letters is not None:
            records[""] = outputs.dead_letters
        keep_records(_together(records), types_in(outputs.tables))
        batch.unpersist()

    if query.drive != "stream":
        keep(frame, 0)
        return None
    starting = frame.writeStream.foreachBatch(keep)
    if way != "batch by batch":
        with contextlib.suppress(NotOnePlan):
            prepared = prepare(plan, pipeline, query, frame)
            named, types = _named(prepared), types_in(prepared.tables)
            starting = named.writeStream.foreachBatch(lambda batch, number: keep_records(batch.collect(), types))
    starting = starting.outputMode(query.output_mode).option("checkpointLocation", checkpoint)
    return starting.trigger(availableNow=True).start()


def _named(prepared: Prepared) -> DataFrame:
    """Prepared records, with the name of their sink."""
    from pyspark.sql import functions as f

    names = f.array(*(f.lit(output.sink) for output in prepared.outputs))
    return prepared.rows.withColumn("sink", names[f.col(OUTPUT)])


def _together(records: dict[str, DataFrame]) -> list[Row]:
    """In one job: starting jobs is most of a test's cost."""
    from pyspark.sql import functions as f

    named = [frame.withColumn("sink", f.lit(name)) for name, frame in records.items()]
    return reduce(lambda above, below: above.union(below), named).collect() if named else []


class _Given(Sources):
    """The rows of a test in place of sources."""

    def __init__(self, pipeline: Pipeline, directory: str, given: Given, place: str, *, pauses: bool) -> None:
        super().__init__(pipeline, directory, "")
        self._place = place
        batches = given if isinstance(given, list) else [given]
        # Spark judges lateness by the watermark of the batch before the last: an empty batch between two lets it catch
        # up.
        self._batches = [batch for each in batches for batch in (each, {})][:-1] if pauses else batches

    def feed(self, names: Iterable[str]) -> bool:
        """Whether a query of these sources has something to read. Tables that are not given are read."""
        given = {name for batch in self._batches for name in batch}
        return any(name in given or not _is_stream(self._pipeline.sources[name]) for name in names)

    def stream(self, session: SparkSession, name: str, *, headers: bool = True) -> DataFrame:
        """One file per batch, empty if the test gives nothing, so that batches of all sources stay aligned."""
        source = self._pipeline.sources[name]
        schema = RECORDS if isinstance(source, TopicSource) else source.schema
        if not schema:
            raise PipelineFailed(f'source "{name}" needs a "schema" to be tested')
        place = os.path.join(self._place, "given", name)
        if not os.path.isdir(place):
            self._write(name, source, place)
        reader = session.readStream.schema(schema).option("maxFilesPerTrigger", "1")
        return reader.parquet(place) if isinstance(source, TopicSource) else reader.json(place)

    def table(self, session: SparkSession, name: str) -> DataFrame:
        source = self._pipeline.sources[name]
        rows = [row for batch in self._batches for row in batch.get(name, [])]
        if not any(name in batch for batch in self._batches):
            return super().table(session, name)
        assert isinstance(source, FormatSource)
        if not source.schema:
            raise PipelineFailed(f'source "{name}" needs a "schema" to be tested')
        return _frame(session, rows, source.schema)

    def _notes(self, name: str, session: SparkSession) -> Notes:
        return MemoryNotes()

    def _write(self, name: str, source: Source, place: str) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        os.makedirs(place)
        offset = 0
        for number, batch in enumerate(self._batches):
            rows = batch.get(name, [])
            file = os.path.join(place, f"{number:06d}")
            if isinstance(source, TopicSource):
                records = [_record(source, each, offset + index, self._directory) for index, each in enumerate(rows)]
                parquet.write_table(pa.Table.from_pylist(records, _arrow_schema()), file)
                offset += len(rows)
            else:
                with open(file, "w", encoding="utf-8") as opened:
                    opened.writelines(json.dumps(row) + "\n" for row in rows)
            os.utime(file, (1_000_000 + number, 1_000_000 + number))  # files are read in the order of their times


def _is_stream(source: Source) -> bool:
    return isinstance(source, TopicSource) or source.mode == "stream"


def _arrow_schema() -> Any:
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = [pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC"), pa.int32()]
    names = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    return pa.schema([*zip(names, types, strict=True), ("headers", pa.list_(header))])


def _frame(session: SparkSession, rows: list[Any], schema: str) -> DataFrame:
    """Rows from YAML, converted through JSON, so that times and numbers are read as in records."""
    from pyspark.sql import functions as f

    texts = session.createDataFrame([(json.dumps(row),) for row in rows], "text STRING")
    return texts.select(f.from_json("text", schema, {"mode": "FAILFAST"}).alias("row")).select("row.*")


def _record(source: TopicSource, given: Any, offset: int, directory: str) -> dict[str, Any]:
    if not isinstance(given, dict) or not set(given) <= set(_FIELDS):
        raise PipelineFailed(f"a record is given as {{value: ..., key: ..., timestamp: ...}}, not {given!r:.100}")
    headers = [{"key": name, "value": str(text).encode()} for name, text in (given.get("headers") or {}).items()]
    return {
        "key": _as_bytes(given.get("key")),
        "value": _value(source, given.get("value"), directory),
        "topic": given.get("topic") or (source.topic[0] if source.topic else "topic"),
        "partition": int(given.get("partition", 0)),
        "offset": int(given.get("offset", offset)),
        "timestamp": _time(given.get("timestamp"), offset),
        "timestampType": 0,
        "headers": headers or None,
    }


def _value(source: TopicSource, value: Any, directory: str) -> bytes | None:
    """Text is used as it is, poison included; a mapping is encoded in the format that the source decodes."""
    if value is None or isinstance(value, str):
        return _as_bytes(value)
    coding = source.value
    # With a registry, a record has the schema that is registered, whatever the source reads it with.
    written = Encoding(
        format=coding.format,
        schema="" if coding.registry else coding.schema,
        schema_file="" if coding.registry else coding.schema_file,
        message=coding.message,
        registry=coding.registry,
        subject=coding.subject,
        registry_options=coding.registry_options,
    )
    if coding.format in ("avro", "protobuf"):
        from pyspark.sql import Row

        return codecs.writing_codec(written, directory).encode(Row(**value))
    return (codecs.prefix(written, directory) if coding.registry else b"") + json.dumps(value).encode()


def _as_bytes(value: Any) -> bytes | None:
    return None if value is None else str(value).encode()


def _time(given: Any, offset: int) -> datetime:
    if given is None:
        return _EPOCH + timedelta(milliseconds=offset)
    if isinstance(given, (int, float)):
        return datetime.fromtimestamp(given / 1000, UTC)
    time = instant(str(given))
    if time is None:
        raise PipelineFailed(f"timestamp {given!r} is not like 2026-01-01T12:00:00Z, nor milliseconds")
    return time


# -- Comparing.


def _differences(test: PipelineTest, written: PipelineOutput) -> Iterator[str]:
    for name, expected in test.expect.items():
        yield from unmatched(f'sink "{name}"', expected, written.sinks[name])
    yield from unmatched("dead letters", test.dead_letters, written.dead_letters)


def unmatched(what: str, expected: list[Any], found: list[Any]) -> Iterator[str]:
    """Pairs each expected row with a row that has all its fields; rows without a partner are differences."""
    pairs: dict[int, int] = {}

    def pair(index: int, tried: set[int]) -> bool:
        for other, row in enumerate(found):
            if other not in tried and _fits(expected[index], row):
                tried.add(other)
                if other not in pairs or pair(pairs[other], tried):
                    pairs[other] = index
                    return True
        return False

    for index in range(len(expected)):
        if not pair(index, set()):
            yield f"{what}: missing {_shown(expected[index])}"
    for other, row in enumerate(found):
        if other not in pairs:
            yield f"{what}: unexpected {_shown(row)}"


def _fits(expected: Any, found: Any) -> bool:
    if isinstance(found, Instant):
        return found.is_same(expected)
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(
            name in found and (str(text) in str(found[name]) if name == "reason" else _fits(text, found[name]))
            for name, text in expected.items()
        )
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(_fits, expected, found))
    if isinstance(expected, float) or isinstance(found, float):
        numbers = isinstance(expected, (int, float)) and isinstance(found, (int, float))
        return numbers and abs(expected - found) <= 1e-9 * max(1.0, abs(expected))
    return bool(expected == found) and isinstance(expected, bool) == isinstance(found, bool)


def _record_written(row: Row, kind: StructType | None) -> dict[str, Any]:
    """`kind`: the type of the row that became the value, if that is JSON."""
    texts = {name: text_of(row[name]) for name in ("topic", "key")}
    value = _parsed(row["value"])
    return {**texts, "value": value if kind is None else with_instants(value, kind), "headers": _headers(row)}


def _letter(row: Row) -> dict[str, Any]:
    headers = _headers(row)
    letter: dict[str, Any] = {
        name.removeprefix(_LETTER): value for name, value in headers.items() if name.startswith(_LETTER)
    }
    for name in ("partition", "offset", "timestamp"):
        if name in letter:
            letter[name] = int(letter[name])
    return {**letter, "key": text_of(row["key"]), "value": _parsed(row["value"])}


def _headers(row: Row) -> dict[str, str | None]:
    """As text, if the records are prepared, or absent, if none has any."""
    from penstock.spark.sink.columns import HEADERS_TEXT, parsed_headers

    if HEADERS_TEXT in row:
        return {key: text_of(value) for key, value in parsed_headers(row[HEADERS_TEXT]) or ()}
    headers = row["headers"] if "headers" in row else ()  # noqa: SIM401  # a Row has no get
    return {each["key"]: text_of(each["value"]) for each in headers or ()}


def _parsed(value: Any) -> Any:
    text = text_of(value)
    try:
        return json.loads(text) if text is not None else None
    except json.JSONDecodeError:
        return text


def _shown(row: Any) -> str:
    return json.dumps(row, ensure_ascii=False, default=str)
