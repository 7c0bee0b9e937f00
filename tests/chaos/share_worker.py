"""A program with several workers of a share group: each takes records, tells that it handles them, and accepts them."""

from __future__ import annotations

import threading
import time
from typing import Any

from chaos.programs import Reports, settings
from clients.logins import of_penstock
from penstock import ShareConsumer
from penstock.client.errors import ClientError, CommitFailed
from penstock.model.errors import KafkaError

AT_ONCE = 20
AGAIN_S = 0.2


def main() -> None:
    given = settings()
    reports = Reports()
    workers = [threading.Thread(target=work, args=(given, reports)) for _ in range(given["workers"])]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def work(given: dict[str, Any], reports: Reports) -> None:
    """A worker that cannot go on begins anew, as a program that is restarted."""
    while not reports.is_to_leave:
        try:
            with ShareConsumer(
                given["bootstrap"],
                given["topic"],
                group=given["group"],
                explicit=True,
                max_records=AT_ONCE,
                timeout=given["timeout_s"],
                settings=of_penstock(given["login"]),
            ) as consumer:
                reports.tell(event="joined")
                while not reports.is_to_leave:
                    handle(consumer, reports)
        except (ClientError, KafkaError) as error:
            reports.tell(event="failed", reason=f"{type(error).__name__}: {error}"[:300])
            time.sleep(AGAIN_S)


def handle(consumer: ShareConsumer[Any, Any], reports: Reports) -> None:
    records = consumer.batch(AT_ONCE, timeout=0.5)
    if not records:
        return
    places = [(record.partition, record.offset, record.delivery_count) for record in records]
    reports.tell(event="handled", records=places)
    for record in records:
        consumer.accept(record)
    try:
        consumer.flush()
    except CommitFailed as refused:
        reports.tell(event="refused", reason=str(refused))
    else:
        reports.tell(event="accepted", records=places)


if __name__ == "__main__":
    main()
