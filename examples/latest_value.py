"""A compacted topic as a table: the latest value of each key, and deletion by tombstone.

penstock up                                   (in another terminal)
python examples/latest_value.py
"""

from __future__ import annotations

import os

from confluent_kafka import Producer

from penstock import Admin
from penstock.client.wire.admin.topics import LATEST
from penstock.model.ids import TopicPartition

BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
TOPIC = "prices"


def main() -> None:
    with Admin(BOOTSTRAP) as admin:
        if TOPIC not in [topic.name for topic in admin.topics.list()]:
            admin.topics.create(TOPIC, partitions=1, configs={"cleanup.policy": "compact"})
        producer = Producer({"bootstrap.servers": BOOTSTRAP})
        for item, price in (("apple", "3"), ("pear", "4"), ("apple", "5"), ("pear", None)):
            producer.produce(TOPIC, key=item, value=price)
        producer.flush()
        partition = TopicPartition(TOPIC, 0)
        print(f"{TOPIC} ends at offset {admin.topics.offsets([partition], LATEST)[partition]}")


if __name__ == "__main__":
    main()
