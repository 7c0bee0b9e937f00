"""Protobuf: messages of a generated class, in their own serialization."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from penstock.serializers.base import Serde, missing

if TYPE_CHECKING:
    from google.protobuf.message import Message

M = TypeVar("M", bound="Message")


class Protobuf(Serde[M]):
    def __init__(self, message_class: type[M]) -> None:
        try:
            from google.protobuf.message import Message
        except ImportError as error:
            raise missing("protobuf", "protobuf", "Protobuf") from error
        if not (isinstance(message_class, type) and issubclass(message_class, Message)):
            raise TypeError(f"Protobuf takes a class that protoc made, not {message_class!r}")
        self._class = message_class
        self.decode = message_class.FromString

    def encode(self, value: M) -> bytes:
        if not isinstance(value, self._class):
            raise TypeError(f"a {type(value).__name__} is not a {self._class.__name__}: {value!r:.80}")
        data: bytes = value.SerializeToString()
        return data
