"""A work queue: several workers take jobs from one topic, and each job goes to one of them.

The workers are a share group: any number of them share a partition, and each job is acknowledged by itself. A job that
fails is delivered again, to this worker or another; a job that cannot be done at all is rejected.

penstock up                                   (in another terminal)
python examples/work_queue.py
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from penstock import Admin, Int64, Producer, ShareConsumer, ShareRecord

BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
TOPIC, GROUP = "jobs", "workers"
JOBS = 300
WORKERS = 3
IMPOSSIBLE = 13


def work() -> list[int]:
    """Do jobs until there are none for a while; return those that were done."""
    done: list[int] = []

    def do(record: ShareRecord[bytes, int]) -> None:
        if record.value == IMPOSSIBLE:
            raise ValueError("no one can do this")
        if record.value % 100 == 0 and record.delivery_count == 1:
            raise TimeoutError("not this time")
        done.append(record.value)

    # Ten at a time, so that the others get some, too.
    with ShareConsumer(BOOTSTRAP, TOPIC, group=GROUP, value=Int64(), max_records=10, reject=(ValueError,)) as consumer:
        consumer.work(do, idle=3)
    return done


def main() -> None:
    logging.basicConfig(stream=sys.stdout, format="%(message)s")  # the failures
    with Admin(BOOTSTRAP) as admin:
        admin.topics.create(TOPIC, partitions=1)
        # A new share group starts at the end of a topic; this one has to do all jobs.
        admin.share_groups.reset(GROUP, "earliest", topics=[TOPIC])
    with Producer(BOOTSTRAP, value=Int64()) as producer:
        for job in range(JOBS):
            producer.send(TOPIC, job)
    with ThreadPoolExecutor(WORKERS) as pool:
        workers = [pool.submit(work) for _ in range(WORKERS)]
        done = Counter(job for worker in workers for job in worker.result())
    assert set(done) == set(range(JOBS)) - {IMPOSSIBLE}
    print(f"{len(done)} jobs done, 1 rejected")


if __name__ == "__main__":
    main()
