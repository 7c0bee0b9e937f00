"""Decodes messages to records, and handles those that cannot be deserialized.

Whole batches are decoded at once. Only if that fails is a batch decoded record by record, to find which one failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Generic, Literal

from confluent_kafka import Message

from penstock.client.errors import Undeserializable
from penstock.client.librdkafka.dead_letters import DeadLetterOffice
from penstock.client.librdkafka.record import KEY, VALUE, Batch, Record, headers_of
from penstock.client.librdkafka.types import K, V
from penstock.serializers.base import Context, Deserializer, is_plain
from penstock.serializers.plain import Bytes

Decode = Callable[[bytes], Any]


class Decoding(Generic[K, V]):
    def __init__(
        self,
        key: Deserializer[K] | None,
        value: Deserializer[V] | None,
        on_error: Literal["raise", "skip"] | DeadLetterOffice,
    ) -> None:
        self._deserializers: tuple[Deserializer[Any], Deserializer[Any]] = (key or Bytes(), value or Bytes())
        self._in_one_go = all(is_plain(each) for each in self._deserializers)
        self._decode_key, self._decode_value = (_decoder(each) for each in self._deserializers)
        self._on_error = on_error
        self.skipped = 0

    def many(self, messages: list[Message]) -> tuple[Batch[K, V], int]:
        """Return a batch, and how many of the messages it covers: fewer if the next one must be raised alone."""
        if self._in_one_go:
            # If this raises, `one` raises again and names the record.
            with suppress(Exception):
                keys = _decoded(self._decode_key, map(KEY, messages))
                values = _decoded(self._decode_value, map(VALUE, messages))
                return Batch(messages, keys, values), len(messages)
        records: list[Record[K, V]] = []
        done = 0
        for message in messages:
            try:
                record = self.one(message)
            except Undeserializable:
                if not done:
                    raise
                break
            done += 1
            if record is not None:
                records.append(record)
        batch = Batch(
            [each.message for each in records], [each.key for each in records], [each.value for each in records]
        )
        return batch, done

    def one(self, message: Message) -> Record[K, V] | None:
        """Return the record; None if it cannot be deserialized and is skipped."""
        fields = []
        for deserializer, data, is_key in zip(
            self._deserializers, (message.key(), message.value()), (True, False), strict=True
        ):
            try:
                if is_plain(deserializer):
                    fields.append(None if data is None else deserializer.decode(data))
                else:
                    context = Context(str(message.topic()), is_key, headers_of(message))
                    fields.append(deserializer.deserialize(data, context))
            except Exception as error:
                problem = _problem(message, deserializer, data, is_key, error)
                if self._on_error == "raise":
                    raise problem from error
                problem.__cause__ = error
                self._put_aside(message, problem)
                return None
        return Record((*fields, message))

    def _put_aside(self, message: Message, problem: Undeserializable) -> None:
        if isinstance(self._on_error, DeadLetterOffice):
            self._on_error.take(message, problem)
        else:
            self.skipped += 1


def _problem(message: Message, reader: object, data: bytes | None, is_key: bool, error: Exception) -> Undeserializable:
    topic, partition, offset = str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)
    return Undeserializable(
        f"{topic}-{partition}, offset {offset}: {'key' if is_key else 'value'} {data!r:.80} is not for {reader!r}:"
        f" {error or type(error).__name__} (pass over it with seek, or say on_error)",
        topic,
        partition,
        offset,
        is_key=is_key,
    )


def _decoder(deserializer: Deserializer[Any]) -> Decode | None:
    return deserializer.decode if is_plain(deserializer) and not deserializer.as_is else None


def _decoded(decode: Decode | None, data: Iterable[bytes | None]) -> list[Any] | None:
    """Decode all; None if values are the bytes themselves."""
    if decode is None:
        return None
    values = list(data)
    if None in values:
        return [None if each is None else decode(each) for each in values]
    return list(map(decode, values))  # type: ignore[arg-type]
