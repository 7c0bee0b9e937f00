"""Read, process, write, exactly once: the results and the offsets they were made from are one transaction.

However often this is killed and started again, each line counts once for readers of committed records.

penstock up                                   (in another terminal)
printf 'to be or\nnot to be\n' | penstock produce lines
python examples/exactly_once.py
penstock consume words --from-beginning --exit --read-committed
"""

from __future__ import annotations

import os

from penstock import Consumer, Producer, String

BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")


def main() -> None:
    words = 0
    with (
        Consumer(BOOTSTRAP, "lines", group="splitter", value=String(), auto_commit=False) as consumer,
        # The id is this instance's own: a second program that starts with it takes over, and the first is fenced.
        Producer(BOOTSTRAP, key=String(), value=String(), transactional_id="splitter-1") as producer,
    ):
        while lines := consumer.batch(timeout=5):
            with producer.transaction() as transaction:
                for line in lines:
                    for word in line.value.split():
                        producer.send("words", word, key=word)
                        words += 1
                transaction.send_offsets(consumer)
    print(f"{words} words written")


if __name__ == "__main__":
    main()
