"""What tests have to know of librdkafka."""

from __future__ import annotations

import threading

from confluent_kafka import Consumer

CLOSING_S = 60.0


def close(*consumers: Consumer) -> None:
    """Close consumers, all at once, and leave behind those that hang.

    librdkafka 2.16 may wait for itself forever if the leader of a partition goes away while it asks for the end of an
    epoch (librdkafka#5476). A call that hangs inside the library is not interrupted by a test's time limit.

    It may also hang if an assignment is pending that it has not told of, and then the interpreter hangs with it: poll
    until `assignment()` is as it should be, and close all members at once.
    """
    closing = [threading.Thread(target=consumer.close, daemon=True) for consumer in consumers]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join(CLOSING_S)
