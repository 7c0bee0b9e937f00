"""A work queue: several workers of one group share the jobs, and each job goes to one of them.

More workers than partitions do not help: the surplus idles, and steps in when one dies.

penstock up                                   (in another terminal)
python examples/work_queue.py
"""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from penstock import Admin, Consumer, Int64, Producer

BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
TOPIC = "jobs"
JOBS = 300
WORKERS = 3


def work() -> list[int]:
    """Do jobs until there are none for a while. A job counts as done when the next one is asked for."""
    with Consumer(BOOTSTRAP, TOPIC, group="workers", value=Int64()) as consumer:
        return [record.value for record in consumer.records(idle=3)]


def main() -> None:
    with Admin(BOOTSTRAP) as admin:
        admin.topics.create(TOPIC, partitions=6)
    with ThreadPoolExecutor(WORKERS) as pool:
        workers = [pool.submit(work) for _ in range(WORKERS)]
        with Producer(BOOTSTRAP, value=Int64()) as producer:
            for job in range(JOBS):
                producer.send(TOPIC, job)  # without a key: spread over the partitions in turn
        done = Counter(job for worker in workers for job in worker.result())
    assert set(done) == set(range(JOBS))
    print(f"{len(done)} jobs done")


if __name__ == "__main__":
    main()
