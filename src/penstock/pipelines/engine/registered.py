"""Reads values with schema ids of a registry, in Python tasks: batches in Arrow, not row by row.

A value starts with the id of its schema, or a header of its record carries the schema's GUID (`schema_header`).

Avro is decoded to columns by `penstock.arrow`. JSON is only freed of its id, which must be known: Spark reads the text.
Protobuf is decoded message by message. A reader is pickled into tasks as the registry's address and the reader's
schema, and secrets among the options as references; each process asks the registry for itself, once per id.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from penstock.pipelines.check import codecs
from penstock.pipelines.spec import registries, schemas
from penstock.pipelines.spec.model import TopicSource
from penstock.serializers.registered import HEADERS, PREFIX, Framing
from penstock.serializers.registry_http import RegistryError

if TYPE_CHECKING:
    from pyspark.sql import Column

NO_ID: Final = "no schema id"
UNKNOWN_ID: Final = "unknown schema id"
KINDS: Final = (NO_ID, UNKNOWN_ID)
_NOT_FOUND: Final = 404
_GUID: Final = 17  # a one, and the GUID
Decoder = Callable[["Column", "Column"], "Column"]
"""Of a value and of `schema_header`."""


@dataclass(frozen=True)
class Reader:
    address: registries.Address
    schema: str = ""
    refuse_more: bool = False
    fails_for_more: bool = False


def schema_header() -> Column:
    """What the record's last header about its value's schema carries, or NULL."""
    from pyspark.sql import functions as f

    named = f.filter("headers", lambda each: (each["key"] == HEADERS[False]) & each["value"].isNotNull())
    return f.try_element_at(named, f.lit(-1))["value"]


def decoder(source: TopicSource, directory: str) -> Decoder:
    """From values to structs: `value`, and if it cannot be read its `error` and the `kind` of that."""
    coding = source.value
    address = registries.address_of(coding)
    if coding.format == "avro":
        kind = codecs.codec(coding, directory).spark_type()
        strict = source.evolution in ("fail", "dead-letter")
        reader = Reader(address, schemas.text(coding, directory), strict, source.evolution == "fail")
        return _arrow_function(reader, read_avro, kind)
    if coding.format == "json":
        return _arrow_function(Reader(address), read_json, "string")
    return _protobuf_function(Reader(address), codecs.codec(coding, directory))


def _arrow_function(reader: Reader, read: Callable[[Reader, Any, Any], Any], kind: str) -> Decoder:
    import pyarrow as pa
    from pyspark.sql import functions as f

    def decode(values: Any, carried: Any) -> Any:
        return read(reader, values, carried)

    # Spark tells by annotations, as objects, what a function takes.
    decode.__annotations__ = {"values": pa.Array, "carried": pa.Array, "return": pa.Array}
    kinds = f"struct<value:{kind},error:string,kind:string>"
    made: Decoder = f.arrow_udf(decode, returnType=kinds)  # type: ignore[attr-defined]  # no stub
    return made


def _protobuf_function(reader: Reader, codec: codecs.Codec) -> Decoder:
    from pyspark.sql import functions as f

    # Without annotations: Spark would take them for those of a pandas UDF.
    def decode(data, carried):  # type: ignore[no-untyped-def]
        if data is None:
            return None, None, None
        try:
            body = _framing(reader.address).frame(bytes(data), _context(carried)).body
        except RegistryError as error:
            if error.status != _NOT_FOUND:
                raise
            return None, str(error), UNKNOWN_ID
        except ValueError as error:
            return None, str(error), NO_ID
        row, problem = codec.decode(body)
        return row, problem, None if problem is None else "not Protobuf of the schema"

    made: Decoder = f.udf(decode, returnType=f"struct<value:{codec.spark_type()},error:string,kind:string>")
    return made


def _context(carried: Any) -> Any:
    from penstock.serializers.base import Context

    return Context("", False, [] if carried is None else [(HEADERS[False], bytes(carried))])


@cache
def _framing(address: registries.Address) -> Framing:
    return Framing("PROTOBUF", {"registry": registries.client_at(address)})


def read_avro(reader: Reader, values: Any, carried: Any) -> Any:
    buffer, column = _spans(values)
    array, reasons = _avro(reader).read(buffer, column, _rows_by_guid(carried))
    if reader.fails_for_more:
        from penstock.arrow.registry import MORE_FIELDS

        for reason in reasons.values():
            if reason.kind == MORE_FIELDS:
                raise ValueError(reason.text)
    return _result(array.cast(_for_spark(array.type)), reasons)


def read_json(reader: Reader, values: Any, carried: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    from penstock.arrow.decoding import gathered
    from penstock.arrow.registry import Reason, distinct, framed_rows
    from penstock.records.columnar import SpanColumn

    buffer, column = _spans(values)
    starts, lengths = column.starts.astype(np.int64), column.lengths.astype(np.int64)
    guids = _rows_by_guid(carried)
    by_prefix = lengths >= 0
    for rows in guids.values():
        by_prefix[rows] = False
    framed = framed_rows(buffer, starts, lengths, np.flatnonzero(by_prefix))
    reasons = dict.fromkeys(framed.others.tolist(), Reason(NO_ID, "no schema id: a value starts with a zero byte"))
    by_schema: dict[int | str, Any] = {each: framed.rows[framed.ids == each] for each in distinct(framed.ids)}
    for key, rows in (by_schema | guids).items():
        problem = _problem_of(reader.address, key)
        if problem:
            reasons.update(dict.fromkeys(rows[lengths[rows] >= 0].tolist(), Reason(UNKNOWN_ID, problem)))
    prefixes = np.zeros(len(lengths), np.int64)
    prefixes[by_prefix] = PREFIX.size
    cut = lengths - prefixes
    cut[list(reasons)] = -1
    size = int(np.maximum(cut, 0).sum())
    bodies = SpanColumn((starts + prefixes).astype(np.int32), cut.astype(np.int32), size)
    array = gathered(buffer, bodies, pa.binary())
    try:
        text = array.cast(pa.string())
    except pa.ArrowInvalid:  # Spark replaces what is not UTF-8, and finds out whether the rest is JSON
        text = pa.array([None if each is None else each.decode(errors="replace") for each in array.to_pylist()])
    return _result(text, reasons)


def _rows_by_guid(carried: Any) -> dict[str, Any]:
    """The rows whose schema is named by a header, by GUID."""
    import numpy as np

    if carried.null_count == len(carried):
        return {}
    encoded = carried.dictionary_encode()
    which = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    found: dict[str, list[Any]] = {}
    for index, each in enumerate(encoded.dictionary.to_pylist()):
        if len(each) >= _GUID and each[0] == 1:
            found.setdefault(str(uuid.UUID(bytes=each[1:_GUID])), []).append(np.flatnonzero(which == index))
    return {guid: np.concatenate(rows) for guid, rows in found.items()}


def _problem_of(address: registries.Address, key: int | str) -> str:
    """Why values with this id or GUID are not JSON of a registered schema; empty if they are."""
    client = registries.client_at(address)
    try:
        found = (client.by_id(key) if isinstance(key, int) else client.by_guid(key)).schema.type
    except RegistryError as error:
        if error.status != _NOT_FOUND:
            raise
        return str(error)
    named = client.name_of(key) if isinstance(key, int) else f"schema GUID {key}"
    return "" if found == "JSON" else f"{named} is {found}, not JSON"


@cache
def _avro(reader: Reader) -> Any:
    from penstock.arrow.registry import RegisteredAvro
    from penstock.serializers import Avro

    avro: Avro[Any] = Avro(reader.schema, registry=registries.client_at(reader.address))
    return RegisteredAvro(avro, (), refuse_more=reader.refuse_more)


def _spans(values: Any) -> tuple[Any, Any]:
    """The bytes of a binary array, and where its values are."""
    import numpy as np
    import pyarrow as pa

    from penstock.records.columnar import SpanColumn

    array = values if values.type == pa.binary() else values.cast(pa.binary())
    _, offsets_buffer, data = array.buffers()
    rows = len(array)
    if rows == 0 or offsets_buffer is None:
        nothing = np.zeros(rows, np.int32)
        return np.zeros(1, np.uint8), SpanColumn(nothing, nothing - np.int32(1), 0)
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + rows + 1]
    lengths = np.diff(offsets).astype(np.int32)
    if array.null_count:
        lengths[~array.is_valid().to_numpy(zero_copy_only=False)] = -1
    buffer = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    return buffer, SpanColumn(np.ascontiguousarray(offsets[:-1]), lengths, int(np.maximum(lengths, 0).sum()))


def _result(array: Any, reasons: Any) -> Any:
    import pyarrow as pa

    errors: list[str | None] = [None] * len(array)
    kinds: list[str | None] = [None] * len(array)
    for row, reason in reasons.items():
        errors[row], kinds[row] = reason.text, reason.kind
    parts = [array, pa.array(errors, pa.string()), pa.array(kinds, pa.string())]
    return pa.StructArray.from_arrays(parts, names=["value", "error", "kind"])


def _for_spark(kind: Any) -> Any:
    """The type that Spark has for an Arrow type of Avro: times of day and nanoseconds are numbers."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _for_spark(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _for_spark(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _for_spark(kind.item_type))
    if pa.types.is_timestamp(kind):
        return pa.int64() if kind.unit == "ns" else pa.timestamp("us", kind.tz)
    if pa.types.is_time(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else kind
