"""The interfaces that convert between Python values and the bytes of a record's key or value.

A `Serializer` makes bytes, a `Deserializer` reads them. Both get a `Context` that says where the bytes go or come from,
so that a serializer that uses a schema registry, or keeps a schema id in a header, needs no other interface. The
formats of this package are `Serde`s, one object for both directions. Without a registry they do not depend on the
context, and the clients call their `encode` and `decode` directly.

Null has no format. With every serializer here, `None` is Kafka's null (on a compacted topic: "delete this key"), and
null is read as `None`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeGuard, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

HeaderPairs = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Context:
    topic: str
    is_key: bool
    headers: HeaderPairs = field(default_factory=list)
    """The headers of the record; a serializer may append headers, which are sent with it."""


class Serializer(Protocol[T_contra]):
    def serialize(self, value: T_contra, context: Context, /) -> bytes | None: ...


class Deserializer(Protocol[T_co]):
    def deserialize(self, data: bytes | None, context: Context, /) -> T_co: ...


class Serde(Generic[T]):
    """Both directions of one format.

    `encode` and `decode` never get null and may raise any exception: the client adds which record it was. They are
    attributes, so that a format that is one C function costs no more than that call.
    """

    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    as_is: ClassVar[bool] = False
    """Whether values are the bytes themselves, so that no call is needed."""
    needs_context: bool = False
    """Whether the bytes depend on the topic or the headers, as with a schema registry: see `Context`."""

    def serialize(self, value: T, context: Context, /) -> bytes | None:
        return None if value is None else self.encode(value)

    def deserialize(self, data: bytes | None, context: Context, /) -> T:
        return None if data is None else self.decode(data)  # type: ignore[return-value]  # null, whatever T is

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def is_plain(serializer: object) -> TypeGuard[Serde[Any]]:
    """Whether clients may call `encode` and `decode` directly."""
    return isinstance(serializer, Serde) and not serializer.needs_context


class MissingPackage(ImportError):
    """A format needs a package that is not installed; the message names the extra that provides it."""


def missing(package: str, extra: str, what: str) -> MissingPackage:
    return MissingPackage(f"{what} needs the package {package}: pip install 'penstock[{extra}]'", name=package)
