"""Count words from one topic into another, by hand: assign, read, write.

penstock up                                   (in another terminal)
printf 'to be or\nnot to be\n' | penstock produce lines
python examples/word_count.py
penstock consume counts --from-beginning --exit --key-separator ' '
"""

from __future__ import annotations

import os
from collections import Counter

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

BOOTSTRAP = {"bootstrap.servers": os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")}


def main() -> None:
    counts = read_words("lines")
    producer = Producer(BOOTSTRAP | {"enable.idempotence": True})
    for word, count in counts.items():
        producer.produce("counts", key=word, value=str(count))
    producer.flush()
    print(f"{len(counts)} words counted")


def read_words(topic: str) -> Counter[str]:
    """Everything that is in the topic now, from its beginning."""
    consumer = Consumer(BOOTSTRAP | {"group.id": "unused", "enable.auto.commit": False, "enable.partition.eof": True})
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    counts: Counter[str] = Counter()
    at_end = 0
    while at_end < len(partitions):
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            counts.update((message.value() or b"").decode().split())
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end += 1
        else:
            raise SystemExit(str(error))
    consumer.close()
    return counts


if __name__ == "__main__":
    main()
