"""Orders, keyed by customer: all orders of one customer are in one partition, in the order they were placed.

penstock up                                   (in another terminal)
python examples/keyed_producer.py
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from penstock import Admin, Json, Producer, String

BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
TOPIC = "shop.orders"


@dataclass
class Order:
    customer: str
    item: str
    amount: float


ORDERS = [
    Order("alice", "apples", 3.5),
    Order("bob", "pears", 4.0),
    Order("alice", "plums", 2.25),
]


def main() -> None:
    with Admin(BOOTSTRAP) as admin:
        admin.topics.create(TOPIC, partitions=3)
    # Leaving the block waits until everything is acknowledged, and raises if something was not.
    with Producer(BOOTSTRAP, key=String(), value=Json(Order)) as producer:
        deliveries = [producer.send(TOPIC, order, key=order.customer) for order in ORDERS]
    for order, delivery in zip(ORDERS, deliveries, strict=True):
        sent = delivery.result()
        print(f"{order.customer:5}  {order.item:6}  partition {sent.partition}, offset {sent.offset}")


if __name__ == "__main__":
    main()
