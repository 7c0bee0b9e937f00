"""A steady load of numbers, written and read back: what was acknowledged is there."""

from __future__ import annotations

import threading

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Place

from clients.librdkafka import close


class Load:
    """Numbers written with acks=all, until it is ended; those that were acknowledged."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.acknowledged: list[int] = []
        self.refused: list[KafkaError] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
        self._topic, self._partitions = topic, partitions
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._end.is_set():
            self._producer.produce(
                self._topic, str(number).encode(), partition=number % self._partitions, on_delivery=self._delivered
            )
            number += 1
            self._producer.poll(0.002)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(error)
        else:
            self.acknowledged.append(int(message.value() or b""))

    def end(self) -> list[int]:
        self._end.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert not self.refused
        return self.acknowledged


def numbers(bootstrap: str, topic: str, partitions: int, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([Place(topic, partition, 0) for partition in range(partitions)])
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        found.append(int(message.value() or b""))
    close(consumer)
    return found
