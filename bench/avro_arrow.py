"""Avro with schema ids to Arrow: our columns beside a loop of confluent-kafka's AvroDeserializer.

    python -m bench.avro_arrow [--records 1000000] [--loop 50000]

The schema has nullable unions, nested records, arrays, maps and logical types. Each side runs in a process of its own
and is measured in CPU seconds, so that a busy machine changes little. Ours is measured from before its first import,
twice: with the kernel in numba's cache, as from the second program of a machine on, and with an empty cache, where it
is compiled. The loop reads fewer records, and its time is scaled; it makes Python objects, ours an Arrow array.
"""

from __future__ import annotations

import argparse
import datetime
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from decimal import Decimal
from typing import Any

BATCH_BYTES = 8 * 1024 * 1024
DISTINCT = 1000
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": ["null", "int"]}},
        {
            "name": "address",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Address",
                    "fields": [{"name": "street", "type": "string"}, {"name": "zip", "type": ["null", "int"]}],
                },
            ],
        },
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "sku", "type": "string"},
                        {"name": "n", "type": "int"},
                        {"name": "price", "type": "double"},
                    ],
                },
            },
        },
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID", "SENT"]}},
        {"name": "gift", "type": "boolean"},
    ],
}


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": None if number % 3 == 0 else f"customer {number}",
        "price": Decimal(number * 7 - 100) / 100,
        "at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=number),
        "day": datetime.date(2026, 1, 1) + datetime.timedelta(days=number % 100),
        "token": uuid.UUID(int=number),
        "tags": ["red"] * (number % 3),
        "counts": {"x": number, "y": None} if number % 2 else {},
        "address": None if number % 2 else {"street": "Main Street", "zip": None if number % 4 else number},
        "lines": [{"sku": "s-1", "n": each, "price": each / 2} for each in range(number % 4)],
        "state": ("NEW", "PAID", "SENT")[number % 3],
        "gift": number % 2 == 0,
    }


def values() -> list[bytes]:
    import fastavro

    schema = fastavro.parse_schema(json.loads(json.dumps(SCHEMA)))
    made = []
    for number in range(DISTINCT):
        body = io.BytesIO()
        fastavro.schemaless_writer(body, schema, order(number))
        made.append(b"\0\0\0\0\x01" + body.getvalue())
    return made


def ours(records: int) -> float:
    """CPU seconds from the first import to the last array."""
    messages = values()
    begin = time.process_time()
    import numpy as np

    from penstock.arrow.registry import RegisteredAvro
    from penstock.records.columnar import SpanColumn
    from penstock.serializers import Avro
    from penstock.serializers.registry_client import Registered, RegistryClient, Schema

    class Known(RegistryClient):
        def by_id(self, schema_id: int) -> Registered:
            return Registered(Schema(json.dumps(SCHEMA)), schema_id)

    avro: Avro[Any] = Avro(SCHEMA, registry=Known("http://127.0.0.1:1"))
    decoder = RegisteredAvro(avro, ())
    lengths = np.array([len(each) for each in messages], np.int32)
    per_batch = BATCH_BYTES // int(lengths.sum()) * len(messages)
    repeats = per_batch // len(messages)
    buffer = np.frombuffer(b"".join(messages) * repeats, np.uint8)
    all_lengths = np.tile(lengths, repeats)
    starts = (np.cumsum(all_lengths) - all_lengths).astype(np.int32)
    done = 0
    while done < records:
        count = min(per_batch, records - done)
        column = SpanColumn(starts[:count], all_lengths[:count], int(all_lengths[:count].sum()))
        array, reasons = decoder.read(buffer, column)
        assert len(array) == count
        assert not reasons
        done += count
    return time.process_time() - begin


def theirs(records: int) -> float:
    """CPU seconds of the loop alone."""
    warnings.simplefilter("ignore")
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient.new_client({"url": "mock://"})
    client.register_schema("orders-value", Schema(json.dumps(SCHEMA), "AVRO"))
    deserialize = AvroDeserializer(client)
    context = SerializationContext("orders", MessageField.VALUE)
    messages = values()
    assert deserialize(messages[0], context)["id"] == 0
    begin = time.process_time()
    for number in range(records):
        deserialize(messages[number % DISTINCT], context)
    return time.process_time() - begin


def _in_a_process(what: str, records: int, **environment: str) -> float:
    command = [sys.executable, "-m", "bench.avro_arrow", "--only", what, "--records", str(records)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **environment})
    return float(printed.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--loop", type=int, default=50_000)
    parser.add_argument("--only", choices=["ours", "theirs"])
    arguments = parser.parse_args()
    if arguments.only:
        print({"ours": ours, "theirs": theirs}[arguments.only](arguments.records))
        return
    loop = _in_a_process("theirs", arguments.loop) * arguments.records / arguments.loop
    _in_a_process("ours", 1)
    warm = _in_a_process("ours", arguments.records)
    with tempfile.TemporaryDirectory() as directory:
        cold = _in_a_process("ours", arguments.records, NUMBA_CACHE_DIR=directory)
    print(f"{arguments.records} records, CPU seconds")
    print(f"confluent-kafka, a loop of AvroDeserializer   {loop:6.2f}")
    print(f"penstock.arrow, kernel in the cache           {warm:6.2f}   {loop / warm:5.1f} times")
    print(f"penstock.arrow, kernel compiled               {cold:6.2f}   {loop / cold:5.1f} times")


if __name__ == "__main__":
    main()
