"""Compiles the encoder of one message in one version.

The generated function appends to a bytearray. One Struct packs adjacent fixed-size fields and the length of the
variable field that follows them; a string of Metadata, for example, costs two appends:

    text = message.host.encode()
    size = len(text) + 1
    if size < 128:
        out += pack_iB(message.node_id, size)
    else:
        out += pack_i(message.node_id)
        out += uvarint(size)
    out += text

Records are not copied: the encoder stores their positions in `splices`, and the caller cuts the bytearray there.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.declaration import Encoder, Message, TypedField
from penstock.protocol.primitives import (
    BUFFER_TYPES,
    BYTES,
    PACK_ARRAY,
    RECORDS,
    STRING,
    STRING_SIZE_MAX,
    UUID,
    Scalar,
    pack_uuids,
    put_tags,
    records_size,
    uvarint,
)
from penstock.protocol.source import Source, length_format, null_struct_marker, present, tagged

# Records up to this size are copied nevertheless: a separate buffer for each would cost more in the socket.
COPIED_RECORDS_SIZE_MAX = 1024


def _refuse_absent(cls: type[Message], name: str, version: int) -> None:
    raise KafkaError(
        ErrorCode.UNSUPPORTED_VERSION, f"{cls.__name__}.{name} is set, but version {version} cannot carry it"
    )


def _refuse_string(name: str, size: int) -> None:
    raise ValueError(f"{name} has {size} bytes, more than the {STRING_SIZE_MAX} of a string")


def _checked_uuid(value: bytes) -> bytes:
    if len(value) != 16:
        raise ValueError(f"a UUID of {len(value)} bytes")
    return value


class _EncoderCompiler:
    def __init__(self, cls: type[Message], version: int, flexible: bool) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.source = Source(
            cls=cls,
            uvarint=uvarint,
            put_tags=put_tags,
            records_size=records_size,
            pack_uuids=pack_uuids,
            buffer_types=BUFFER_TYPES,
            checked_uuid=_checked_uuid,
            refuse_absent=_refuse_absent,
            refuse_string=_refuse_string,
        )
        # Fixed-size values not yet written: their formats and the expressions for their values.
        self.formats: list[str] = []
        self.values: list[str] = []

    def compile(self) -> Encoder:
        source = self.source
        with source.block("def encode(message, out, splices):"):
            self._refuse_absent_fields()
            for field in present(self.cls, self.version):
                self._value(field, f"message.{field.name}", "out")
            if self.flexible:
                self._tag_section()
            else:
                self._flush("out")
                with source.block("if message.unknown_tags:"):
                    source.line(f"refuse_absent(cls, 'unknown_tags', {self.version})")
        encoder: Encoder = source.function("encode", f"encode {self.cls.__name__} v{self.version}")
        return encoder

    def _refuse_absent_fields(self) -> None:
        for field in self.cls.__schema__.fields:
            if self.version not in field.versions and not field.ignorable:
                refusal = f"refuse_absent(cls, {field.name!r}, {self.version})"
                with self.source.block(f"if {self._differs_from_default(field, f'message.{field.name}')}:"):
                    self.source.line(refusal)

    def _differs_from_default(self, field: TypedField, value: str) -> str:
        if isinstance(field.type, type) and not field.is_array:
            default = self.source.name("default", field.type())
            if isinstance(field.default, type):
                return f"{value} != {default}"
            # A null that may be sent differs from any struct; where null only means absence, defaults are absent, too.
            return f"{value} is not None" + ("" if field.nullable.is_some else f" and {value} != {default}")
        if field.default is None:
            return f"{value} is not None"
        if field.default in (False, 0, "", b"", []) and field.type is not UUID:
            # A null where the default is empty differs from it, too.
            return f"{value} or {value} is None" if field.nullable.is_some else value
        return f"{value} != {field.default!r}"

    def _value(self, field: TypedField, value: str, out: str) -> None:
        """Write one value, or, if it is fixed-size, queue it for the next pack."""
        nullable = self.version in field.nullable
        if field.is_array:
            self._array(field, value, out, nullable)
        elif isinstance(field.type, Scalar):
            self.formats.append(field.type.format)
            self.values.append(f"checked_uuid({value})" if field.type is UUID else value)
        elif isinstance(field.type, type):
            self._struct(field, field.type, value, out, nullable)
        else:
            self._variable(field, value, out, nullable)

    def _struct(self, field: TypedField, struct_type: type[Message], value: str, out: str, nullable: bool) -> None:
        self._flush(out)
        encode = self._nested(struct_type)
        if not nullable:
            self.source.line(f"{encode}({value}, {out}, splices)")
            return
        with self.source.block(f"if {value} is None:"):
            self.source.line(f"{out}.append({null_struct_marker(field) & 0xFF})")
        with self.source.block("else:"):
            self.source.line(f"{out}.append(1)")
            self.source.line(f"{encode}({value}, {out}, splices)")

    def _variable(self, field: TypedField, value: str, out: str, nullable: bool) -> None:
        source = self.source
        is_bytes = field.type is BYTES
        source.line(f"data = {value}" if nullable or is_bytes or field.type is RECORDS else f"data = {value}.encode()")
        size = "records_size(data)" if field.type is RECORDS else "len(data)"
        with self._null_check(field, nullable, 'b""'):
            if nullable and not is_bytes and field.type is not RECORDS:
                source.line("data = data.encode()")
            self._size(field, size)
        self._flush_with_size(field, out)
        if field.type is RECORDS:
            with source.block(f"if size > {COPIED_RECORDS_SIZE_MAX}:"):
                source.line(f"splices.append((len({out}), data))")
            with source.block("else:"):
                source.line(f'{out} += data if isinstance(data, buffer_types) else b"".join(data)')
        else:
            source.line(f"{out} += data")

    def _array(self, field: TypedField, value: str, out: str, nullable: bool) -> None:
        source = self.source
        source.line(f"data = {value}")
        with self._null_check(field, nullable, "()"):
            self._size(field, "len(data)")
        self._flush_with_size(field, out)
        if field.type is UUID:
            source.line(f"{out} += pack_uuids(data)")
        elif isinstance(field.type, Scalar):
            pack = source.name(f"pack_{field.type.name}s", PACK_ARRAY[field.type.name])
            source.line(f"{out} += {pack}(data)")
        elif isinstance(field.type, type):
            encode = self._nested(field.type)
            with source.block("for element in data:"):
                source.line(f"{encode}(element, {out}, splices)")
        else:
            element = field._replace(is_array=False, nullable=field.versions._replace(first=1, last=0))
            with source.block("for element in data:"):
                self._variable(element, "element", out, False)

    def _null_check(self, field: TypedField, nullable: bool, nothing: str) -> AbstractContextManager[None]:
        """Handle null, then open the block for a value that is present."""
        if not nullable:
            return nullcontext()
        with self.source.block("if data is None:"):
            self.source.line(f"data = {nothing}")
            self.source.line(f"size = {0 if length_format(field, self.flexible) is None else -1}")
        return self.source.block("else:")

    def _size(self, field: TypedField, size: str) -> None:
        self.source.line(f"size = {size}" + (" + 1" if length_format(field, self.flexible) is None else ""))

    def _flush_with_size(self, field: TypedField, out: str) -> None:
        """Write the queued values together with the length in `size`."""
        length = length_format(field, self.flexible)
        if length is not None:
            self.formats.append(length)
            self.values.append("size")
            self._flush(out)
            return
        with self.source.block("if size < 128:"):
            self._pack([*self.formats, "B"], [*self.values, "size"], out)
        with self.source.block("else:"):
            if field.type is STRING and not field.is_array:
                with self.source.block(f"if size > {STRING_SIZE_MAX + 1}:"):
                    self.source.line(f"refuse_string({field.name!r}, size - 1)")
            self._flush(out)
            self.source.line(f"{out} += uvarint(size)")

    def _flush(self, out: str) -> None:
        self._pack(self.formats, self.values, out)
        self.formats, self.values = [], []

    def _pack(self, formats: list[str], values: list[str], out: str) -> None:
        if formats == ["B"]:
            self.source.line(f"{out}.append({values[0]})")
        elif formats:
            self.source.line(f"{out} += {self.source.pack(''.join(formats))}({', '.join(values)})")

    def _tag_section(self) -> None:
        source = self.source
        fields = tagged(self.cls, self.version)
        formats, values = self.formats, self.values
        self.formats, self.values = [], []
        source.line("tags = message.unknown_tags")
        if fields:
            source.line("tags = dict(tags) if tags else {}")
        for field in fields:
            source.line(f"value = message.{field.name}")
            with source.block(f"if {self._differs_from_default(field, 'value')}:"):
                source.line(f"tags[{field.tag}] = tag = bytearray()")
                self._value(field, "value", "tag")
                self._flush("tag")
        with source.block("if tags:"):
            self._pack(formats, values, "out")
            source.line("put_tags(out, tags)")
        with source.block("else:"):
            self._pack([*formats, "B"], [*values, "0"], "out")

    def _nested(self, struct_type: type[Message]) -> str:
        return self.source.name(
            f"encode_{struct_type.__name__}", struct_encoder(struct_type, self.version, self.flexible)
        )


@cache
def struct_encoder(cls: type[Message], version: int, flexible: bool) -> Encoder:
    """Return the encoder of a struct inside a message of this version, compiled once."""
    return _EncoderCompiler(cls, version, flexible).compile()
