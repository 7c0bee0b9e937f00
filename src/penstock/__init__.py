"""Penstock: Kafka in Python, with data pipelines on Spark.

    from penstock import Admin, Consumer, Json, Producer, String

Names are imported when they are used, so that a broker does not wait for the clients; type checkers read them in
`__init__.pyi`.
"""

from __future__ import annotations

__version__ = "0.1.0"

_HOMES = {
    "Acl": "client.wire.admin",
    "AclFilter": "client.wire.admin",
    "Admin": "client.wire.admin",
    "AsyncConsumer": "client.librdkafka.async_consumer",
    "AsyncProducer": "client.librdkafka.async_producer",
    "AsyncShareConsumer": "client.wire.share.async_consumer",
    "Avro": "serializers",
    "Batch": "client.librdkafka.record",
    "Bytes": "serializers",
    "ClientError": "client.errors",
    "Consumer": "client.librdkafka.consumer",
    "DeadLetter": "client.librdkafka.dead_letters",
    "Delivery": "client.librdkafka.delivery",
    "Float32": "serializers",
    "Float64": "serializers",
    "Int32": "serializers",
    "Int64": "serializers",
    "Json": "serializers",
    "JsonSchema": "serializers",
    "Producer": "client.librdkafka.producer",
    "Protobuf": "serializers",
    "Record": "client.librdkafka.record",
    "Registry": "client.registry",
    "ResourceType": "client.wire.admin",
    "Sent": "client.librdkafka.delivery",
    "ShareConsumer": "client.wire.share.consumer",
    "ShareRecord": "client.wire.share.records",
    "String": "serializers",
    "TopicPartition": "model.ids",
    "Uuid": "serializers",
    "partition_of": "client.librdkafka.partitioners",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
