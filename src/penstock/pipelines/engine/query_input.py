"""The input of queries: the records of a source, or the rows of a step with state and everything it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.pipelines.check.analysis import Analysis
from penstock.pipelines.check.query_plan import QueryPlan
from penstock.pipelines.check.routes import uses_headers
from penstock.pipelines.engine.checkpoints import checkpoint_of
from penstock.pipelines.engine.evolution import CheckpointNotes, Evolution, Notes, RegisteredColumns
from penstock.pipelines.engine.tables import Tables, read_table
from penstock.pipelines.sinks.hadoop_files import Files
from penstock.pipelines.spec.model import FormatSource, Pipeline, Source, TopicSource
from penstock.pipelines.spec.paths import resolve
from penstock.pipelines.spec.secrets import plain, plain_of_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Sources:
    """Opens sources. Tests use another implementation."""

    def __init__(self, pipeline: Pipeline, directory: str, bootstrap: str) -> None:
        self._pipeline = pipeline
        self._directory = directory
        self._bootstrap = bootstrap
        self._evolutions: dict[str, Evolution | RegisteredColumns] = {}

    def stream(self, session: SparkSession, name: str, *, headers: bool = True) -> DataFrame:
        """Without `headers`, that column of a topic's records is NULL, and they are not read."""
        source = self._pipeline.sources[name]
        if isinstance(source, TopicSource):
            options = {**self.topic_options(name), "includeHeaders": str(headers).lower()}
            records = session.readStream.format("penstock").options(**options).load()
            return records if headers else _without_headers(records)
        reader = session.readStream.format(source.format).options(**plain(source.options))
        if source.schema:
            reader = reader.schema(source.schema)
        return reader.load(resolve(source.path, self._directory)) if source.path else reader.load()

    def table(self, session: SparkSession, name: str) -> DataFrame:
        source = self._pipeline.sources[name]
        assert isinstance(source, FormatSource)
        return read_table(session, source, self._directory)

    def fitting(self, name: str, batch: DataFrame) -> Source:
        """The source that fits the records of this batch: with the columns that they add, if it has `add-columns`."""
        source = self._pipeline.sources[name]
        if not isinstance(source, TopicSource) or source.evolution != "add-columns":
            return source
        if name not in self._evolutions:
            if source.value.format == "avro":
                self._evolutions[name] = RegisteredColumns(source)
            else:
                self._evolutions[name] = Evolution(source, self._directory, self._notes(name, batch.sparkSession))
        return self._evolutions[name].source_for(batch)

    def _notes(self, name: str, session: SparkSession) -> Notes:
        """The columns added to a source, stored at the checkpoint of its query, which has the source's name."""
        checkpoint = checkpoint_of(self._pipeline, self._directory, name)
        return CheckpointNotes(Files(session, checkpoint), checkpoint)

    def topic_options(self, name: str) -> dict[str, str]:
        source = self._pipeline.sources[name]
        assert isinstance(source, TopicSource)
        options = {
            "kafka.bootstrap.servers": source.bootstrap or self._bootstrap,
            "kafka.isolation.level": source.isolation,
            "startingOffsets": source.starting_offsets,
            "includeHeaders": "true",
        }
        if source.topic:
            options["subscribe"] = ",".join(source.topic)
        else:
            options["subscribePattern"] = source.topic_pattern
        if source.max_records is not None:
            options["maxOffsetsPerTrigger"] = str(source.max_records)
        return {**options, **plain_of_topic(source.options)}


def _without_headers(records: DataFrame) -> DataFrame:
    """Spark must not see that they are always NULL: it would remove the column from states that have it."""
    from pyspark.sql import functions as f

    nothing = f.array().cast("array<struct<key:string,value:binary>>")
    return records.withColumn("headers", f.when(f.col("offset") < -1, nothing))


def own_session(parent: SparkSession) -> SparkSession:
    """A session whose views no other query sees, in UTC, active in this thread. Spark looks up formats only in the
    active session, and a new thread has none."""
    session = parent.newSession()
    session.conf.set(ZONE, "UTC")
    activate(session)
    _register(session)
    return session


ZONE = "spark.sql.session.timeZone"
"""The setting that makes a session compute in UTC."""

PLAIN_CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}
"""For checkpoints on a disk of this machine. Spark's usual way looks for symbolic links before it renames a file, for
which Hadoop starts `readlink`, several times for each file. Both ways end in the same rename."""


def activate(session: SparkSession) -> None:
    """In this thread."""
    classes: Any = type(session)
    classes._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)


def _register(session: SparkSession) -> None:
    """Spark also finds the topic format by itself, but it looks only once, with a Python worker. If that fails on a
    busy machine, it never looks again."""
    from pyspark.errors import AnalysisException

    from penstock.spark.datasource import PenstockDataSource

    try:
        session.dataSource.register(PenstockDataSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def query_input(
    session: SparkSession, pipeline: Pipeline, analysis: Analysis, query: QueryPlan, directory: str, sources: Sources
) -> DataFrame:
    """A streaming DataFrame; a static one for a snapshot or an increment."""
    if query.input in pipeline.sources:
        if query.drive != "stream":
            return sources.table(session, query.input)
        return sources.stream(session, query.input, headers=uses_headers(pipeline, analysis, query))
    tables = Tables(session, pipeline, analysis, directory, makes_dead_letters=False)
    for name in query.upstream:
        source = pipeline.sources.get(name)
        if source is None:
            tables.add([name])
        elif analysis.tables[name].drive == "stream":
            tables.add_source(name, sources.stream(session, name, headers=uses_headers(pipeline, analysis, query)))
            if source.watermark is not None:
                watermark = source.watermark
                frame = tables.frames[name].withWatermark(watermark.column, watermark.delay.spark)
                tables.frames[name] = frame
                frame.createOrReplaceTempView(name)
        else:
            tables.add_source(name, sources.table(session, name))
    return tables.step(query.input)
