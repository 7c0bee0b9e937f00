"""A record that cannot be read does not stop the reader, and is not lost: it goes to a dead-letter topic.

penstock up                                   (in another terminal)
python examples/dead_letters.py
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from penstock import Admin, Consumer, DeadLetter, Json, Producer

BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
TOPIC, DEAD = "payments", "payments.dead"


@dataclass
class Payment:
    account: str
    cents: int


def main() -> None:
    with Admin(BOOTSTRAP) as admin:
        admin.topics.create(TOPIC, partitions=1)
        admin.topics.create(DEAD, partitions=1)
    with Producer(BOOTSTRAP) as producer:
        producer.send(TOPIC, b'{"account": "alice", "cents": 350}')
        producer.send(TOPIC, b'{"account": "bob"}')
        producer.send(TOPIC, b'{"account": "carol", "cents": 100}')
    with Consumer(BOOTSTRAP, TOPIC, group="ledger", value=Json(Payment), on_error=DeadLetter(DEAD)) as consumer:
        for record in consumer.records(idle=2):
            print("booked", record.value)
    with Consumer(BOOTSTRAP, DEAD) as consumer:
        letter = next(iter(consumer))
        where = b"-".join(letter.header(f"dead-letter.{part}") or b"" for part in ("topic", "partition", "offset"))
        print("unreadable:", letter.value.decode(), "from", where.decode())


if __name__ == "__main__":
    main()
