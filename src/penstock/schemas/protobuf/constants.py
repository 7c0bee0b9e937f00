"""Numbers and names of the language."""

from __future__ import annotations

from google.protobuf import descriptor_pb2 as pb

MAX_FIELD = 2**29 - 1
MAX_ENUM = 2**31 - 1
RESERVED_FIELDS = range(19000, 20000)  # for the implementations themselves

SCALARS: dict[str, pb.FieldDescriptorProto.Type] = {
    name: pb.FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "bool", "string", "bytes"),
        *("int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64"),
    )
}
SCALAR_NAMES = {number: name for name, number in SCALARS.items()}
