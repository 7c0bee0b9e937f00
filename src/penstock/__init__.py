"""Penstock: Kafka in Python, with data pipelines on Spark.

    from penstock import Admin, Consumer, Json, Producer, String

Names are imported when they are used, so that a broker does not wait for the clients; type checkers read them in
`__init__.pyi`.
"""

from __future__ import annotations

__version__ = "0.1.0"

_HOMES = {
    "Admin": "client.admin",
    "AsyncConsumer": "client.async_consumer",
    "AsyncProducer": "client.async_producer",
    "Avro": "serializers",
    "Batch": "client.record",
    "Bytes": "serializers",
    "ClientError": "client.errors",
    "Consumer": "client.consumer",
    "DeadLetter": "client.dead_letters",
    "Delivery": "client.delivery",
    "Float32": "serializers",
    "Float64": "serializers",
    "Int32": "serializers",
    "Int64": "serializers",
    "Json": "serializers",
    "JsonSchema": "serializers",
    "Producer": "client.producer",
    "Protobuf": "serializers",
    "Record": "client.record",
    "Sent": "client.delivery",
    "String": "serializers",
    "TopicPartition": "model.ids",
    "Uuid": "serializers",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
