"""Avro: compact bytes with a schema, and a reader that is newer than the writer.

pip install 'penstock[avro]'
penstock up                                   (in another terminal)
python examples/avro_orders.py
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from penstock import Admin, Avro, Consumer, Producer, String

BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
TOPIC = "orders.avro"

FIRST = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "cents", "type": "long"}],
}
# A field more, with a default: readers of the new schema understand records of the old one.
SECOND = FIRST | {"fields": [*FIRST["fields"], {"name": "currency", "type": "string", "default": "EUR"}]}


@dataclass
class Order:
    item: str
    cents: int
    currency: str


def main() -> None:
    with Admin(BOOTSTRAP) as admin:
        admin.topics.create(TOPIC, partitions=1)
    with Producer(BOOTSTRAP, key=String(), value=Avro(FIRST)) as producer:
        producer.send(TOPIC, {"item": "apples", "cents": 350}, key="alice")
    reader = Avro(SECOND, Order, written_with=FIRST)
    with Consumer(BOOTSTRAP, TOPIC, key=String(), value=reader) as consumer:
        record = next(iter(consumer))
    print(record.key, "ordered", record.value)


if __name__ == "__main__":
    main()
