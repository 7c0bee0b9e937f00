"""Serializers for keys and values: Python objects to and from bytes that any Kafka client reads."""

from penstock.serializers.avro import Avro
from penstock.serializers.base import Context, Deserializer, MissingPackage, Serde, Serializer
from penstock.serializers.json import Json
from penstock.serializers.json_schema import JsonSchema
from penstock.serializers.plain import Bytes, Float32, Float64, Int32, Int64, String, Uuid
from penstock.serializers.protobuf import Protobuf

__all__ = [
    "Avro",
    "Bytes",
    "Context",
    "Deserializer",
    "Float32",
    "Float64",
    "Int32",
    "Int64",
    "Json",
    "JsonSchema",
    "MissingPackage",
    "Protobuf",
    "Serde",
    "Serializer",
    "String",
    "Uuid",
]
