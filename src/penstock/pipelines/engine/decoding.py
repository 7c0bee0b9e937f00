"""Decodes records to columns: `value` by its format, with the record itself kept beside it.

A record that does not decode has an error in the column `__error`, and NULL in all others; other modules decide what
happens to it. An error is a struct: the reason, the fields that it is about, and its kind, of which there are few, so
that metrics can count by it. Spark reads JSON; `codecs` reads Avro and Protobuf, in Python, because Spark's own readers
are not in its PyPI package. Values with schema ids of a registry are read by `registered`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.pipelines.engine import registered
from penstock.pipelines.spec import schemas, sql
from penstock.pipelines.spec.model import Decoding, TopicSource
from penstock.pipelines.spec.secrets import plain
from penstock.pipelines.spec.sql import SOURCE_ROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ERROR = "__error"
_VALUE, _CORRUPT, _FRAMED = "__value", "__corrupt", "__framed"
_NOT_JSON = "not JSON"
_OTHER_JSON = "JSON that does not fit the schema"
_NULL = "null in a column that is NOT NULL"
_UNKNOWN_FIELDS = "fields that the schema lacks"
_STRUCT = "STRUCT"
_YEAR_10001_S = 253_433_923_200
_ERROR_TYPE = "struct<reason:string,field:string,kind:string>"


def kinds_of_errors(source: TopicSource) -> tuple[str, ...]:
    """The kinds of errors that its records may have."""
    of_registry = registered.KINDS if source.value.registry else ()
    if source.value.format == "json":
        return (_NOT_JSON, _OTHER_JSON, _NULL, _UNKNOWN_FIELDS, *of_registry)
    if source.value.format == "avro" and source.value.registry:
        return (_other_format(source.value), _UNKNOWN_FIELDS, *of_registry)
    return (_other_format(source.value), *of_registry) if source.value.format in ("avro", "protobuf") else ()


def decoded(raw: DataFrame, source: TopicSource, directory: str) -> DataFrame:
    """With the columns of the value, the metadata, `__source`, and `__error` where something can go wrong."""
    from pyspark.sql import functions as f

    record = f.struct("key", "value", "headers", "topic", "partition", "offset", "timestamp")
    metadata = [
        (f.col("key").cast("string") if source.key == "string" else f.col("key")).alias("_key"),
        *(f.col(name).alias(f"_{name}") for name in ("topic", "partition", "offset", "timestamp", "headers")),
        record.alias(SOURCE_ROW),
    ]
    coding = source.value
    if coding.format in ("bytes", "string"):
        value = f.col("value").cast("string") if coding.format == "string" else f.col("value")
        return raw.select(value.alias("value"), *metadata)
    if coding.format == "json":
        columns = schemas.json_columns(coding, directory)
        text = f.col("value").cast("string")
        if coding.registry:
            raw = raw.withColumn(
                _FRAMED, registered.decoder(source, directory)(f.col("value"), registered.schema_header())
            )
            text = f.col(f"{_FRAMED}.value")
            metadata.append(f.col(_FRAMED))
        parsed = raw.select(_json(coding, directory, text), *metadata, text.alias("__text"))
        error = _json_error(source, columns, directory)
        if coding.registry:
            error = f.when(f.col(f"{_FRAMED}.error").isNotNull(), _registry_error(_FRAMED)).otherwise(error)
        values = [f.col(f"{_VALUE}.`{name}`").alias(name) for name in columns]
    else:
        message = f.col(f"{_VALUE}.error")
        if coding.registry:
            decode = registered.decoder(source, directory)
            parsed = raw.select(decode(f.col("value"), registered.schema_header()).alias(_VALUE), *metadata)
            error = f.when(message.isNotNull(), _registry_error(_VALUE))
        else:
            parsed = raw.select(_by_codec(coding, directory), *metadata)
            error = f.when(message.isNotNull(), _error(message, None, _other_format(coding)))
        values = [
            f.col(f"{_VALUE}.value.`{name}`").alias(name) for name in schemas.columns_of_values(coding, directory)
        ]
    kept = ["_key", "_topic", "_partition", "_offset", "_timestamp", "_headers", SOURCE_ROW]
    return parsed.select(*values, *kept, error.alias(ERROR))


def _json(coding: Decoding, directory: str, text: Column) -> Column:
    from pyspark.sql import functions as f

    ddl = schemas.text(coding, directory).strip().rstrip(",")
    options = {"mode": "PERMISSIVE", **plain(coding.options), "columnNameOfCorruptRecord": _CORRUPT}
    return f.from_json(text, f"{ddl}, {_CORRUPT} STRING", options).alias(_VALUE)


def _json_error(source: TopicSource, columns: dict[str, bool], directory: str) -> Column:
    """The first error. NULL values are not JSON objects, and are wrong only if a column must not be NULL."""
    from pyspark.sql import functions as f

    text, corrupt = f.col("__text"), f.col(f"{_VALUE}.{_CORRUPT}")
    error = f.when(corrupt.isNotNull() & f.try_parse_json(text).isNull(), _error(f.lit(_NOT_JSON), None, _NOT_JSON))
    error = error.when(corrupt.isNotNull(), _misfit(source.value, directory))
    error = error.when(
        _goes_on(text, source.value), _error(f.lit(f"{_NOT_JSON}: more after the object"), None, _NOT_JSON)
    )
    for path, kind in _leaves(sql.parsed_types(schemas.text(source.value, directory)), ()):
        if kind in ("TIMESTAMP", "TIMESTAMP_LTZ"):
            name = ".".join(path)
            why = f"{_OTHER_JSON}: {name} is after the year 10000; a number in a TIMESTAMP is in seconds"
            too_late = f.unix_seconds(_at(f.col(_VALUE), path)) >= _YEAR_10001_S
            error = error.when(too_late, _error(f.lit(why), f.lit(name)))
    for name, nullable in columns.items():
        if not nullable:
            null = _error(f.lit(f"{name} is null"), f.lit(name), _NULL)
            error = error.when(f.col(f"{_VALUE}.`{name}`").isNull(), null)
    if source.evolution in ("fail", "dead-letter"):
        more = f.array_except(f.expr("json_object_keys(__text)"), f.array(*(f.lit(name) for name in columns)))
        names = f.array_join(more, ", ")
        message = f.concat(f.lit(f"{_UNKNOWN_FIELDS}: "), names)
        if source.evolution == "fail":
            message = f.raise_error(message).cast("string")
        error = error.when(f.size(more) > 0, _error(message, names, _UNKNOWN_FIELDS))
    return error


def _goes_on(text: Column, coding: Decoding) -> Column:
    """Whether there is more than one JSON value, of which Spark reads the first and passes over the others. Only a text
    that looks like it is read again, as an array, which then is malformed or has several items."""
    from pyspark.sql import functions as f

    trimmed = f.rtrim(text, f.lit(" \r\n\t"))
    looks = (f.locate("}", text) != f.length(trimmed)) & (~trimmed.endswith("}") | text.rlike(r"\}[\s,]*\{"))
    items = f.from_json(f.concat(f.lit("["), text, f.lit("]")), "array<string>", plain(coding.options))
    return (f.length(trimmed) > 0) & looks & ~f.size(items).eqNullSafe(1)


def _misfit(coding: Decoding, directory: str) -> Column:
    """The error of JSON whose values do not have the types of their columns, with the names of these.

    A value that does not have its type is NULL. So the text is read again, this time with every type a STRING, which
    all values have: where that is not NULL and the first one is, the value did not fit."""
    from pyspark.sql import functions as f

    types = sql.parsed_types(schemas.text(coding, directory))
    options = {**plain(coding.options), "mode": "PERMISSIVE"}
    as_text = f.from_json(f.col("__text"), _as_text(types), options)

    def wrong(text: Column) -> Column:
        """`name is not TYPE` of each, or NULL."""
        misfits = [
            f.when(
                _is_there(text, path, kind) & _at(f.col(_VALUE), path).isNull(),
                f.struct(f.lit(".".join(path)).alias("name"), f.lit(kind).alias("type")),
            )
            for path, kind in _leaves(types, ())
        ]
        return f.array_compact(f.array(*misfits))

    # In a lambda, so that the text is read once and not for every column.
    found = f.element_at(f.transform(f.array(as_text), wrong), 1)
    names = f.array_join(f.transform(found, lambda each: each["name"]), ", ")
    whys = f.array_join(f.transform(found, lambda each: f.concat(each["name"], f.lit(" is not "), each["type"])), ", ")
    other = f.when(f.expr("json_object_keys(__text)").isNull(), _error(f.lit(f"{_OTHER_JSON}: not an object"), None))
    other = other.when(f.size(found) > 0, _error(f.concat(f.lit(f"{_OTHER_JSON}: "), whys), names))
    return other.otherwise(_error(f.lit(_OTHER_JSON), None))


def _error(reason: Column, field: Column | None, kind: str = _OTHER_JSON) -> Column:
    from pyspark.sql import functions as f

    name = f.lit(None) if field is None else field
    return f.struct(reason.alias("reason"), name.alias("field"), f.lit(kind).alias("kind")).cast(_ERROR_TYPE)


def _registry_error(framed: str) -> Column:
    """The error of a value that was read by its schema id."""
    from pyspark.sql import functions as f

    error = f.struct(
        f.col(f"{framed}.error").alias("reason"), f.lit(None).alias("field"), f.col(f"{framed}.kind").alias("kind")
    )
    return error.cast(_ERROR_TYPE)


def _other_format(coding: Decoding) -> str:
    return f"not {coding.format.capitalize()} of the schema"


def _leaves(types: Mapping[str, exp.DataType], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The columns and the fields of structs, with their types."""
    for name, kind in types.items():
        fields = _fields(kind)
        yield (*path, name), _STRUCT if fields else kind.sql(sql.DIALECT)
        yield from _leaves(fields, (*path, name))


def _is_there(text: Column, path: tuple[str, ...], kind: str) -> Column:
    """A value that is no object cannot be read as a struct of text, but it can be found."""
    from pyspark.sql import functions as f

    if kind != _STRUCT:
        return _at(text, path).isNotNull()
    steps = "".join(f"['{name}']" for name in path)
    return f.get_json_object(f.col("__text"), f"${steps}").isNotNull()


def _as_text(types: Mapping[str, exp.DataType]) -> str:
    """The same columns and fields, each a STRING."""
    return ", ".join(f"{_quoted(name)} {_text_type(kind)}" for name, kind in types.items())


def _text_type(kind: exp.DataType) -> str:
    fields = _fields(kind)
    inside = ", ".join(f"{_quoted(name)}: {_text_type(each)}" for name, each in fields.items())
    return f"STRUCT<{inside}>" if fields else "STRING"


def _fields(kind: exp.DataType) -> dict[str, exp.DataType]:
    """Of a struct."""
    if kind.this is not exp.DataType.Type.STRUCT:
        return {}
    return {each.name: each.kind for each in kind.expressions if isinstance(each, exp.ColumnDef) and each.kind}


def _at(column: Column, path: tuple[str, ...]) -> Column:
    for name in path:
        column = column.getField(name)
    return column


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _by_codec(coding: Decoding, directory: str) -> Column:
    from pyspark.sql import functions as f

    from penstock.pipelines.check import codecs

    codec = codecs.codec(coding, directory)
    # Without annotations: Spark would take them for those of a pandas UDF.
    decode = f.udf(lambda data: codec.decode(data), returnType=f"struct<value:{codec.spark_type()},error:string>")
    return decode(f.col("value")).alias(_VALUE)
