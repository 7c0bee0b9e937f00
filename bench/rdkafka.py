"""librdkafka at the speed of C, without compiled code of ours.

The Python API of confluent-kafka costs more than a microsecond a message, several times what a broker costs, so it
would measure itself. The wheel carries librdkafka as a shared library; its batch calls, reached through ctypes, move
ten thousand messages a call. Only what the loads need is declared here.
"""

from __future__ import annotations

import ctypes
import glob
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import confluent_kafka

_PRODUCER, _CONSUMER = 0, 1
_OFFSET_BEGINNING = -2
_COPY_PAYLOAD = 0x2
_QUEUE_FULL = -184
_ERROR_TEXT_SIZE = 512


class RdKafkaError(Exception):
    """What librdkafka said."""


class _Message(ctypes.Structure):
    _fields_ = [
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    ]


def library_path() -> str:
    """The shared library that came with confluent-kafka, or the system's."""
    packages = os.path.dirname(os.path.dirname(str(confluent_kafka.__file__)))
    bundled = glob.glob(os.path.join(packages, "confluent_kafka.libs", "librdkafka*"))
    bundled += glob.glob(os.path.join(packages, "confluent_kafka", ".dylibs", "librdkafka*"))
    return bundled[0] if bundled else "librdkafka.so.1"


_pointer, _text, _int, _size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_conf_new": (_pointer, []),
    "rd_kafka_conf_set": (_int, [_pointer, _text, _text, _text, _size]),
    "rd_kafka_new": (_pointer, [_int, _pointer, _text, _size]),
    "rd_kafka_destroy": (None, [_pointer]),
    "rd_kafka_topic_new": (_pointer, [_pointer, _text, _pointer]),
    "rd_kafka_topic_destroy": (None, [_pointer]),
    "rd_kafka_err2str": (_text, [_int]),
    "rd_kafka_poll": (_int, [_pointer, _int]),
    "rd_kafka_flush": (_int, [_pointer, _int]),
    "rd_kafka_outq_len": (_int, [_pointer]),
    "rd_kafka_produce_batch": (_int, [_pointer, ctypes.c_int32, _int, _pointer, _int]),
    "rd_kafka_queue_new": (_pointer, [_pointer]),
    "rd_kafka_queue_destroy": (None, [_pointer]),
    "rd_kafka_consume_start_queue": (_int, [_pointer, ctypes.c_int32, ctypes.c_int64, _pointer]),
    "rd_kafka_consume_callback_queue": (_int, [_pointer, _int, _pointer, _pointer]),
    "rd_kafka_consume_stop": (_int, [_pointer, ctypes.c_int32]),
}


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(library_path())
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


_library = _load()
# librdkafka calls it for every message and frees the message afterwards. Any C function that ignores its arguments
# will do; one written in Python would take longer than all the rest.
_IGNORE_MESSAGE = ctypes.cast(_library.rd_kafka_version, ctypes.c_void_p).value


class _Handle:
    """A client and a handle of one topic."""

    def __init__(self, kind: int, topic: str, properties: Mapping[str, str | int]) -> None:
        error = ctypes.create_string_buffer(_ERROR_TEXT_SIZE)
        settings = _library.rd_kafka_conf_new()
        for name, value in properties.items():
            if _library.rd_kafka_conf_set(settings, name.encode(), str(value).encode(), error, len(error)) != 0:
                raise RdKafkaError(error.value.decode())
        self._client = _library.rd_kafka_new(kind, settings, error, len(error))
        if not self._client:
            raise RdKafkaError(error.value.decode())
        self._topic = _library.rd_kafka_topic_new(self._client, topic.encode(), None)

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _library.rd_kafka_topic_destroy(self._topic)
        _library.rd_kafka_destroy(self._client)


class BatchProducer(_Handle):
    """Sends the same block of messages over and over; delivery is proven by the log's end offsets, not by callbacks."""

    def __init__(self, topic: str, value: bytes, block: int, properties: Mapping[str, str | int]) -> None:
        super().__init__(_PRODUCER, topic, properties)
        self._value = ctypes.create_string_buffer(value, len(value))
        self._messages = (_Message * block)()
        for message in self._messages:
            message.payload = ctypes.addressof(self._value)
            message.len = len(value)

    def produce_block(self, partition: int) -> int:
        """Hand one block over, waiting while librdkafka's queue is full; the number of messages."""
        block = len(self._messages)
        done = 0
        while done < block:
            rest = ctypes.addressof(self._messages) + done * ctypes.sizeof(_Message)
            accepted = _library.rd_kafka_produce_batch(self._topic, partition, _COPY_PAYLOAD, rest, block - done)
            if accepted < block - done:
                refused = self._messages[done + max(accepted, 0)].err
                if refused != _QUEUE_FULL:
                    raise RdKafkaError(_error_text(refused))
                _library.rd_kafka_poll(self._client, 2)
            done += accepted
        _library.rd_kafka_poll(self._client, 0)
        return block

    def flush(self, timeout_ms: int) -> None:
        error = _library.rd_kafka_flush(self._client, timeout_ms)
        if error:
            raise RdKafkaError(f"{_library.rd_kafka_outq_len(self._client)} messages undelivered: {_error_text(error)}")


class BatchConsumer(_Handle):
    """Reads partitions from their beginning into one queue. No group: it works with any broker that serves Fetch.

    Messages are counted and dropped inside librdkafka. An error of a partition arrives as a message, too, so a caller
    has to compare the number of them with what it expects.
    """

    def __init__(self, topic: str, partitions: int, properties: Mapping[str, str | int]) -> None:
        super().__init__(_CONSUMER, topic, properties)
        self._partitions = partitions
        self._queue = _library.rd_kafka_queue_new(self._client)
        for partition in range(partitions):
            if _library.rd_kafka_consume_start_queue(self._topic, partition, _OFFSET_BEGINNING, self._queue) != 0:
                raise RdKafkaError(f"cannot consume partition {partition}")

    def consume(self, timeout_ms: int) -> int:
        """Take all messages that are there, or wait for the first; the number of them."""
        count: int = _library.rd_kafka_consume_callback_queue(self._queue, timeout_ms, _IGNORE_MESSAGE, None)
        if count < 0:
            raise RdKafkaError("consume failed")
        return count

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for partition in range(self._partitions):
            _library.rd_kafka_consume_stop(self._topic, partition)
        _library.rd_kafka_queue_destroy(self._queue)
        super().__exit__(kind, error, traceback)


def _error_text(code: int) -> str:
    text: bytes = _library.rd_kafka_err2str(code)
    return text.decode()
