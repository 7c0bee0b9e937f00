"""The columns of a topic, as Spark's Kafka source has them, and record batches made of spans.

Decoding has two steps: one kernel finds where keys and values are (spans), another copies only the requested columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrow.decoding import BadRow, Decoder, Deserialized, decoder_of, gathered, numbers
from penstock.arrow.errors import BadColumn, BadValue
from penstock.model.ids import TopicPartition
from penstock.records.batch import NO_TIMESTAMP
from penstock.records.columnar import Spans

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}
DEFAULT_COLUMNS = tuple(name for name in TYPES if name != "headers")

_MICROSECONDS = 1000
_MILLISECONDS_MAX = (2**63 - 1) // _MICROSECONDS


class Columns:
    """The requested columns, and how keys and values are decoded."""

    def __init__(self, names: Iterable[str] | None, key: Any, value: Any, topics: Sequence[str] = ()) -> None:
        self.names = list(DEFAULT_COLUMNS if names is None else [names] if isinstance(names, str) else names)
        unknown = [name for name in self.names if name not in TYPES]
        if unknown or not self.names or len(set(self.names)) < len(self.names):
            raise BadColumn(f"columns={self.names}: name some of {', '.join(TYPES)}, each once")
        self._decoders: dict[str, Decoder] = {
            "key": decoder_of(key, "key", topics),
            "value": decoder_of(value, "value", topics),
        }
        self._learned: dict[str, Any] = {}

    @property
    def schema(self) -> Any:
        """The type of a column that a deserializer fills, if not given, is null here until its first value."""
        return pa.schema([pa.field(name, self._type(name)) for name in self.names])

    def record_batch(self, spans: Spans, partition: TopicPartition) -> Any:
        arrays = [self._array(name, spans, partition) for name in self.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _type(self, name: str) -> Any:
        decoder = self._decoders.get(name)
        if decoder is None:
            return TYPES[name]
        return decoder.type or self._learned.get(name, pa.null())

    def _array(self, name: str, spans: Spans, partition: TopicPartition) -> Any:
        rows = len(spans)
        if name in self._decoders:
            return self._decoded(name, spans, partition)
        if name == "topic":
            return _repeated(partition.topic, rows)
        if name == "partition":
            return numbers(np.full(rows, partition.partition, np.int32))
        if name == "offset":
            return numbers(spans.offsets)
        if name == "timestamp":
            return _timestamps(spans)
        if name == "timestampType":
            return numbers(spans.log_append_time.astype(np.int32))
        return _headers(spans)

    def _decoded(self, name: str, spans: Spans, partition: TopicPartition) -> Any:
        decoder = self._decoders[name]
        column = spans.keys if name == "key" else spans.values
        try:
            if hasattr(decoder, "decode_spans"):
                array = decoder.decode_spans(spans)
            else:
                array = decoder.decode(spans.buffer, column, partition.topic)
        except BadRow as bad:
            raise BadValue(name, partition, int(spans.offsets[bad.row]), str(bad)) from bad.__cause__
        if decoder.type is None and isinstance(decoder, Deserialized):
            array = self._settle(name, array, spans, partition)
        return array

    def _settle(self, name: str, array: Any, spans: Spans, partition: TopicPartition) -> Any:
        """The first values of a deserializer determine the column's type; later ones must fit."""
        learned = self._learned.get(name)
        if learned is None and not pa.types.is_null(array.type):
            learned = self._learned[name] = array.type
        if learned is None or array.type == learned:
            return array
        try:
            return array.cast(learned)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise BadValue(
                name,
                partition,
                int(spans.offsets[0]),
                f"the deserializer gives {array.type} from here on, it gave {learned} before; "
                f"say the type: {name}=(deserializer, arrow_type)",
            ) from None


def _repeated(text: str, rows: int) -> Any:
    data = np.frombuffer(text.encode(), np.uint8)
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.tile(data, rows))]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


def _timestamps(spans: Spans) -> Any:
    """Milliseconds as microseconds; null if a record has no timestamp, or one that microseconds cannot represent."""
    absent = (
        (spans.timestamps == NO_TIMESTAMP)
        | (spans.timestamps > _MILLISECONDS_MAX)
        | (spans.timestamps < -_MILLISECONDS_MAX)
    )
    mask = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
    data = spans.timestamps * _MICROSECONDS
    return pa.Array.from_buffers(TYPES["timestamp"], len(spans), [mask, pa.py_buffer(data)])


def _headers(spans: Spans) -> Any:
    keys, values = spans.header_spans()
    offsets = np.zeros(len(spans) + 1, np.int32)
    np.cumsum(spans.header_counts, out=offsets[1:])
    key_array = gathered(spans.buffer, keys, pa.string())
    try:
        key_array.validate(full=True)
    except pa.ArrowInvalid:
        key_array = pa.array(
            [key.decode(errors="replace") for key in gathered(spans.buffer, keys, pa.binary()).to_pylist()], pa.string()
        )
    pairs = pa.StructArray.from_arrays(
        [key_array, gathered(spans.buffer, values, pa.binary())], fields=list(HEADERS_TYPE.value_type)
    )
    return pa.ListArray.from_arrays(numbers(offsets), pairs, type=HEADERS_TYPE)
