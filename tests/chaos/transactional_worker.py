"""A program that reads, processes and writes in transactions, as one of a group.

Whatever goes wrong is answered with an abort and a return to what is committed, or, where that is not allowed, with
the end of the program: the parent process starts another.
"""

from __future__ import annotations

import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from chaos.programs import Reports, settings
from clients.group_members import generation_of
from narrowing import present

TIMEOUT_S = 60.0
TRANSACTION_RECORDS = 50


class Worker:
    def __init__(self, given: dict[str, Any], reports: Reports) -> None:
        common = {
            "bootstrap.servers": given["bootstrap"],
            "topic.metadata.refresh.interval.ms": 1000,
            "socket.timeout.ms": given["request_ms"],
            "log_level": 0,
            **given["login"],
        }
        self._target = given["target"]
        self._reports = reports
        self._producer = Producer(
            {
                **common,
                "transactional.id": given["transactional_id"],
                "transaction.timeout.ms": given["transaction_timeout_ms"],
                "linger.ms": 0,
            }
        )
        self._producer.init_transactions(TIMEOUT_S)
        self._consumer = Consumer(
            {
                **common,
                "group.id": given["group"],
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **given["consumer"],
            }
        )
        self._consumer.subscribe([given["source"]], on_assign=lambda *_: self._reports.tell(event="given"))

    def run(self) -> None:
        while not self._reports.is_to_leave:
            messages = [each for each in self._consumer.consume(TRANSACTION_RECORDS, 0.1) if each.error() is None]
            if messages:
                self._process(messages)
        self._consumer.close()

    def _process(self, messages: list[Message]) -> None:
        self._producer.begin_transaction()
        self._reports.tell(event="began")
        try:
            for message in messages:
                self._producer.produce(self._target, message.value(), partition=present(message.partition()))
            # A client outside of the group, as librdkafka is once the group removed it, may commit any offset.
            membership = self._consumer.consumer_group_metadata()
            if generation_of(membership) < 0:
                self._start_over()
                return
            ends = {present(each.partition()): present(each.offset()) + 1 for each in messages}
            self._producer.send_offsets_to_transaction(
                [TopicPartition(present(messages[0].topic()), *end) for end in ends.items()],
                membership,
                TIMEOUT_S,
            )
            self._commit()
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._reports.tell(event="refused", reason=str(error))
            self._start_over()
        else:
            self._reports.tell(event="committed", ends=ends)

    def _commit(self) -> None:
        """Until it is known to be: what is retriable may have been carried out."""
        while True:
            try:
                self._producer.commit_transaction(TIMEOUT_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def _start_over(self) -> None:
        self._producer.abort_transaction(TIMEOUT_S)
        self._reports.tell(event="aborted")
        for each in self._consumer.committed(self._consumer.assignment(), TIMEOUT_S):
            self._consumer.seek(TopicPartition(each.topic, each.partition, max(0, each.offset)))


def main() -> None:
    reports = Reports()
    try:
        Worker(settings(), reports).run()
    except KafkaException as error:
        reports.tell(event="ended", reason=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
