"""Writes the tables of Spark's SQL that `penstock pipeline validate` uses.

They are in `src/penstock/pipelines/spec/spark_sql.json`.

    python docs/spark_sql.py

They are taken from the installed Spark: it is asked for its functions, and tried with types, operators and intervals.
`validate` reads the file and needs no Spark. Run this again when Spark's version changes; a test compares.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = Path(__file__).parents[1] / "src" / "penstock" / "pipelines" / "spec" / "spark_sql.json"


def _words(text: str) -> list[str]:
    return text.split()


# One type stands for its kind: what Spark says of it, it says of the kind.
KINDS = {
    "string": "STRING",
    "int": "INT",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "decimal": "DECIMAL(10,2)",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP_NTZ",
    "binary": "BINARY",
    "interval": "INTERVAL DAY TO SECOND",
    "array": "ARRAY<INT>",
    "map": "MAP<STRING, INT>",
    "struct": "STRUCT<a: INT>",
}
# Functions of one argument whose argument is worth a check: those that people use on columns.
UNARY = _words("""
abs approx_count_distinct array_distinct array_max array_min avg bool_and ceil collect_list collect_set count_if day
dayofweek explode floor from_unixtime hour length lower ltrim max mean min minute month posexplode quarter reverse round
rtrim second size sort_array sqrt stddev sum to_date to_json to_timestamp trim unix_timestamp upper variance weekofyear
year map_keys map_values inline median mode first last any_value array_sort cardinality initcap bit_length char_length
log exp sign date last_day to_unix_timestamp try_sum try_avg every some
""")
GENERATORS = ("explode", "posexplode", "inline")
TYPE_NAMES = _words("""
bool boolean byte tinyint smallint short int integer bigint long float real double decimal dec numeric number char
varchar string text date datetime timestamp timestamp_ltz timestamp_ntz timestamptz time binary bytes bytea blob
interval variant json uuid void null array map struct object int8 int16 int32 int64 float32 float64
uint8 uint16 uint32 uint64
""")
UNITS = _words("""
year month week day hour minute second millisecond microsecond nanosecond quarter decade century y mon w d h m min s sec
ms us ns
""")
OPERATORS = ("=", "+", "-", "*", "/")
_MANY = 20
_COUNTS = (*range(9), _MANY)
# Functions of Spark's grammar that are in no registry, or take a unit before their arguments: dateadd(DAY, 1, at).
GRAMMAR = {
    **dict.fromkeys(("date_add", "dateadd", "date_diff", "datediff"), 3),
    **dict.fromkeys(("timestampadd", "timestampdiff", "timediff"), 3),
    "identifier": 1,
}


def tables(spark: SparkSession) -> dict[str, Any]:
    """Everything, in the form of the file."""
    logger = logging.getLogger("SQLQueryContextLogger")
    logger.disabled, before = True, logger.disabled
    try:
        probe = _Probe(spark)
        with _plain_errors():
            found = functions(spark)
        return {
            "spark": spark.version,
            "functions": found,
            "arguments": {name: probe.arguments(name) for name in UNARY},
            "operators": {operator: probe.operator(operator) for operator in OPERATORS},
            "types": probe.types(),
            "units": probe.units(),
            "formats": formats(spark),
            "options": options(spark),
        }
    finally:
        logger.disabled = before


@contextmanager
def _plain_errors() -> Iterator[None]:
    """PySpark asks the JVM a dozen questions about each exception; thousands are thrown here."""
    java_gateway: Any = import_module("py4j.java_gateway")
    protocol: Any = import_module("py4j.protocol")

    converting = java_gateway.get_return_value
    java_gateway.get_return_value = protocol.get_return_value
    try:
        yield
    finally:
        java_gateway.get_return_value = converting


# -- Functions, from Spark's registries.


def functions(spark: SparkSession) -> dict[str, list[Any]]:
    """By name: kind, least and most arguments (-1: any number), and the type of the result if it is always the same."""
    state: Any = spark._jsparkSession.sessionState()
    arguments = _Arguments(spark)
    made: dict[str, list[Any]] = {}
    for registry, kind in ((state.functionRegistry(), ""), (state.tableFunctionRegistry(), "table")):
        listed = registry.listFunction().iterator()
        while listed.hasNext():
            each = listed.next()
            group = str(registry.lookupFunction(each).get().getGroup())
            found = kind or {"agg_funcs": "aggregate", "window_funcs": "window", "generator_funcs": "generator"}.get(
                group, "scalar"
            )
            least, most = arguments.count(registry, each)
            result = arguments.result(registry, each, least) if not kind else ""
            made.setdefault(each.funcName(), [found, least, most, result])
    for name, number in GRAMMAR.items():
        kind, least, most, result = made.get(name, ["scalar", number, number, ""])
        made[name] = [kind, least, max(most, number), ""]
    return dict(sorted((name, each) for name, each in made.items() if name.isidentifier()))


class _Arguments:
    """Builds calls of functions as Spark's parser does, without analysing a query."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._literals = jvm.org.apache.spark.sql.catalyst.expressions.Literal
        self._types = jvm.org.apache.spark.sql.types.DataType
        self._converters = jvm.scala.jdk.javaapi.CollectionConverters

    def count(self, registry: Any, function: Any) -> tuple[int, int]:
        """The least and the most that Spark does not refuse; what its messages say is not true of all functions."""
        taken = [number for number in _COUNTS if not self._refused(registry, function, number)]
        if not taken:
            return 0, -1
        return min(taken), -1 if max(taken) == _MANY else max(taken)

    def result(self, registry: Any, function: Any, least: int) -> str:
        """The same for arguments of several types, or nothing."""
        found = set()
        for kind in ("STRING", "INT", "TIMESTAMP", "ARRAY<STRING>"):
            try:
                made = registry.lookupFunction(function, self._some(max(least, 1), kind))
                found.add(str(made.dataType().simpleString()))
            except Exception:  # noqa: BLE001  # Spark refuses in many ways; all say that this type tells nothing
                continue
        return found.pop() if len(found) == 1 else ""

    def _refused(self, registry: Any, function: Any, number: int) -> bool:
        """Because of their number; other reasons do not matter here."""
        try:
            registry.lookupFunction(function, self._some(number, "STRING"))
        except Exception as error:  # noqa: BLE001  # of py4j, which has no types
            thrown: Any = getattr(error, "java_exception", None)
            return thrown is not None and "WRONG_NUM_ARGS" in str(thrown.getMessage())
        return False

    @cache  # noqa: B019  # as long as the script
    def _some(self, number: int, kind: str) -> Any:
        made = self._jvm.java.util.ArrayList()
        for _ in range(number):
            made.add(self._literals.create(None, self._types.fromDDL(kind)))
        return self._converters.asScala(made).toSeq()


# -- Types, operators and intervals, by trying them.


class _Probe:
    """Lets Spark's analyzer resolve expressions over columns of all kinds, many at a time. What it refuses stays
    unresolved."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._state: Any = spark._jsparkSession.sessionState()
        columns = ", ".join(f"CAST(NULL AS {kind}) AS {name}_" for name, kind in KINDS.items())
        spark.sql(f"SELECT {columns}").createOrReplaceTempView("penstock_kinds")

    def arguments(self, function: str) -> dict[str, str]:
        """The kinds of columns that it takes, and the kind of each result."""
        if function in GENERATORS:
            return {kind: "" for kind in KINDS if self._one(f"{function}({kind}_)") is not None}
        found = self._results([f"{function}({kind}_)" for kind in KINDS])
        return {kind: kind_of(result) for kind, result in zip(KINDS, found, strict=True) if result is not None}

    def operator(self, operator: str) -> dict[str, str]:
        """`left right`: the kind of the result, for those that Spark takes."""
        pairs = list(itertools.product(KINDS, KINDS))
        found = self._results([f"{left}_ {operator} {right}_" for left, right in pairs])
        return {" ".join(pair): kind_of(each) for pair, each in zip(pairs, found, strict=True) if each is not None}

    def types(self) -> dict[str, str]:
        """Names of types in CREATE TABLE, and the kind of each; types with arguments by their name alone."""
        found = {}
        for name in TYPE_NAMES:
            for arguments in ("", "(3)", "<INT>", "<STRING, INT>", "<a: INT>", " DAY TO SECOND"):
                result = self._one(f"CAST(NULL AS {name}{arguments})")
                if result is not None:
                    found[name] = kind_of(result)
                    break
        return found

    def units(self) -> list[str]:
        """Of intervals, in the singular; Spark takes the plural, too."""
        intervals = self._jvm.org.apache.spark.sql.catalyst.util.IntervalUtils
        found = []
        for unit in UNITS:
            try:
                intervals.stringToInterval(self._jvm.org.apache.spark.unsafe.types.UTF8String.fromString(f"1 {unit}"))
            except Exception:  # noqa: BLE001  # an interval that Spark does not know
                continue
            found.append(unit)
        return found

    def _results(self, expressions: list[str]) -> list[str | None]:
        try:
            return self._resolved(", ".join(f"{each} AS x{index}" for index, each in enumerate(expressions)))
        except Exception:  # noqa: BLE001  # one of them is refused at once, so each is tried
            return [self._one(f"{each} AS x") for each in expressions]

    def _one(self, expression: str) -> str | None:
        try:
            return self._resolved(expression)[0]
        except Exception:  # noqa: BLE001  # whatever Spark has against it
            return None

    def _resolved(self, columns: str) -> list[str | None]:
        """The type of each column; None if it stays unresolved."""
        plan = self._state.sqlParser().parsePlan(f"SELECT {columns} FROM penstock_kinds")
        done = self._state.analyzer().execute(plan).expressions()
        found = (done.apply(index) for index in range(done.size()))
        return [str(each.dataType().simpleString()) if each.resolved() else None for each in found]


def kind_of(simple: str) -> str:
    """`decimal(10,2)`: decimal; `array<int>`: array."""
    word = simple.partition("(")[0].partition("<")[0].partition(" ")[0]
    return {"tinyint": "int", "smallint": "int", "char": "string", "varchar": "string"}.get(word, word)


# -- Formats and their options.


def formats(spark: SparkSession) -> list[str]:
    """The short names of what Spark itself reads and writes."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    kind = jvm.java.lang.Class.forName("org.apache.spark.sql.sources.DataSourceRegister", True, loader)
    found, made = jvm.java.util.ServiceLoader.load(kind, loader).iterator(), set()
    while found.hasNext():
        made.add(str(found.next().shortName()).lower())
    return sorted(made)


def options(spark: SparkSession) -> dict[str, list[str]]:
    """Of the formats of files: the names that Spark declares."""
    jvm: Any = spark._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    sources = jvm.org.apache.spark.sql.execution.datasources
    declared = {
        "csv": catalyst.csv.CSVOptions,
        "json": catalyst.json.JSONOptions,
        "orc": sources.orc.OrcOptions,
        "parquet": sources.parquet.ParquetOptions,
        "text": sources.text.TextOptions,
    }
    return {name: sorted(each.getAllOptions().mkString("\n").split("\n")) for name, each in declared.items()}


def written(found: dict[str, Any]) -> str:
    """One entry a line, so that a new version of Spark shows as a small difference."""
    parts = []
    for name, value in found.items():
        if isinstance(value, dict):
            lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(each)}" for key, each in value.items())
            parts.append(f" {json.dumps(name)}: {{\n{lines}\n }}")
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    from penstock.spark import session

    spark = session("penstock-tables", master="local[1]", config={"spark.sql.session.timeZone": "UTC"})
    FILE.write_text(written(tables(spark)), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
