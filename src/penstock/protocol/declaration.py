"""Declaration of messages: the base class `Message`, the function `field`, and the schema for the codec compilers.

    class HeartbeatRequest(Message, key=12, versions="0-4", flexible="4+"):
        group_id: str = field("0+")
        generation_id: Int32 = field("0+")
        member_id: str = field("0+")
        group_instance_id: str | None = field("3+", nullable="3+", default=None)

Version ranges are written as in Kafka's schemas: `3+`, `1-4`, `2`. A class without `versions` is a struct inside a
message and uses the version of that message. Field types are resolved when a codec is first compiled, so structs may be
declared in any order: the message first, its parts below.

Every field has a default, so callers pass only the fields that matter. To a type checker a message is an ordinary
dataclass with keyword arguments. At run time a class is slotted; its `__init__` is compiled when the first instance is
made, which keeps importing hundreds of messages cheap.

A tagged struct that is absent on the wire is None, where Kafka has a struct full of defaults; except for a nullable
field, where None means a null that was sent.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, dataclass_transform

from penstock.model.ids import uuid_text
from penstock.protocol.primitives import PLAIN_KINDS, Scalar, Variable

_UNSET: Any = object()
_NO_UPPER_BOUND = 32767


class VersionRange(NamedTuple):
    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    @property
    def is_some(self) -> bool:
        return self.first <= self.last

    @classmethod
    @lru_cache(maxsize=256)
    def parse(cls, text: str) -> VersionRange:
        if text == "none":
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), _NO_UPPER_BOUND)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


class Field:
    """One field as declared, before its type is known."""

    __slots__ = ("default", "ignorable", "nullable", "tag", "versions")

    def __init__(self, versions: str, nullable: str, default: Any, tag: int | None, ignorable: bool) -> None:
        self.versions = VersionRange.parse(versions)
        self.nullable = VersionRange.parse(nullable)
        self.default = default
        self.tag = tag
        self.ignorable = ignorable


def field(
    versions: str, *, nullable: str = "none", default: Any = _UNSET, tag: int | None = None, ignorable: bool = False
) -> Any:
    """Declare a field present in `versions`.

    nullable: the versions in which None may be sent.
    default: the value if the field was not given or not sent; zero or empty if unspecified.
    tag: the field is sent in the tag section under this number, and only when it differs from its default.
    ignorable: a value may be dropped silently when a version cannot carry it; otherwise that is an error.
    """
    return Field(versions, nullable, default, tag, ignorable)


class TypedField(NamedTuple):
    """A field with its type resolved: the compiler's input."""

    name: str
    type: Scalar | Variable | type[Message]
    is_array: bool
    versions: VersionRange
    nullable: VersionRange
    default: Any
    tag: int | None
    ignorable: bool


Encoder = Callable[[Any, bytearray, list[Any]], None]
Decoder = Callable[[Any, int, int, list[int]], tuple[Any, int]]


class Schema:
    """The schema of a message class: its key, its versions, its fields, and the codecs compiled so far."""

    def __init__(
        self, cls: type[Message], fields: dict[str, Field], key: int | None, versions: str | None, flexible: str
    ) -> None:
        self.cls = cls
        self.key = key
        self.versions = None if versions is None else VersionRange.parse(versions)
        self.flexible = VersionRange.parse(flexible)
        self.names = tuple(fields)
        self.encoders: dict[int, Encoder] = {}
        self.decoders: dict[int, Decoder] = {}
        # Whether decoded messages refer to the buffer they came from; set with the first decoder.
        self.holds_records = False
        self._declared = fields
        self._fields: tuple[TypedField, ...] | None = None

    @property
    def fields(self) -> tuple[TypedField, ...]:
        if self._fields is None:
            hints = typing.get_type_hints(self.cls, include_extras=True)
            self._fields = tuple(self._typed(name, declared, hints[name]) for name, declared in self._declared.items())
        return self._fields

    def _typed(self, name: str, declared: Field, hint: Any) -> TypedField:
        kind, is_array = _wire_type(hint)
        default = declared.default
        if default is _UNSET:
            if is_array:
                default = []
            elif isinstance(kind, Scalar | Variable):
                default = kind.default
            else:
                default = kind if declared.tag is None or declared.nullable.is_some else None
        return TypedField(
            name, kind, is_array, declared.versions, declared.nullable, default, declared.tag, declared.ignorable
        )


def _wire_type(hint: Any) -> tuple[Scalar | Variable | type[Message], bool]:
    """Return the kind or struct of an annotation, and whether the annotation is an array of it."""
    if typing.get_origin(hint) is typing.Annotated:
        return hint.__metadata__[0], False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
        return _wire_type(hint)
    if typing.get_origin(hint) is list:
        return _wire_type(typing.get_args(hint)[0])[0], True
    return PLAIN_KINDS.get(hint, hint), False


class MessageType(type):
    """Turns declared fields into slots. Everything else about a message is in its Schema."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int | None = None,
        versions: str | None = None,
        flexible: str = "none",
    ) -> MessageType:
        fields = {attribute: value for attribute, value in namespace.items() if isinstance(value, Field)}
        for attribute in fields:
            del namespace[attribute]
        namespace.setdefault("__slots__", tuple(fields))
        cls = super().__new__(mcs, name, bases, namespace)
        cls.__schema__ = Schema(typing.cast("type[Message]", cls), fields, key, versions, flexible)
        return cls

    __schema__: Schema


@dataclass_transform(kw_only_default=True)
class Message(metaclass=MessageType):
    """The base class of every message and struct. Compared by value; not hashable."""

    __slots__ = ("unknown_tags",)
    __schema__: ClassVar[Schema]

    # Tagged fields from a newer peer, kept and sent on unchanged. None when there are none.
    unknown_tags: dict[int, bytes] | None

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        cls.__init__ = _compile_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        if (self.unknown_tags or None) != (other.unknown_tags or None):
            return False
        return all(getattr(self, name) == getattr(other, name) for name in self.__schema__.names)

    def __repr__(self) -> str:
        shown = [f"{name}={_abridged(getattr(self, name))}" for name in self.__schema__.names]
        if self.unknown_tags:
            shown.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


def plain_values(value: Any) -> Any:
    """A message as dictionaries, lists and plain values, for people; ids in Kafka's spelling, other bytes as hex."""
    if isinstance(value, Message):
        return {name: plain_values(getattr(value, name)) for name in value.__schema__.names}
    if isinstance(value, list):
        return [plain_values(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return uuid_text(bytes(value)) if len(value) == 16 else bytes(value).hex()
    return value


def _abridged(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview) and len(value) > 32:
        return f"<{len(value)} bytes>"
    return repr(bytes(value) if isinstance(value, memoryview) else value)


def _compile_init(cls: type[Message]) -> Any:
    """Compile a keyword-only constructor in straight-line code: several times faster than a loop over the fields."""
    namespace: dict[str, Any] = {"unset": _UNSET}
    parameters = []
    body = ["self.unknown_tags = None"]
    for field_ in cls.__schema__.fields:
        name, default = field_.name, field_.default
        if isinstance(default, list | type):
            fresh = f"{name}_type()" if isinstance(default, type) else "[]"
            namespace[f"{name}_type"] = default
            parameters.append(f"{name}=unset")
            body.append(f"self.{name} = {fresh} if {name} is unset else {name}")
        else:
            parameters.append(f"{name}={default!r}")
            body.append(f"self.{name} = {name}")
    signature = f"self, *, {', '.join(parameters)}" if parameters else "self"
    source = f"def __init__({signature}):\n    " + "\n    ".join(body)
    exec(compile(source, f"<{cls.__name__}.__init__>", "exec"), namespace)
    return namespace["__init__"]
