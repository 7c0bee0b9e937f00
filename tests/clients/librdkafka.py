"""What tests have to know of librdkafka."""

from __future__ import annotations

import threading

from confluent_kafka import Consumer

CLOSING_S = 60.0


def close(consumer: Consumer) -> None:
    """Close a consumer, some of whose brokers may be away; leave one behind that hangs.

    librdkafka 2.16 may wait for itself forever if the leader of a partition goes away while it asks for the end of an
    epoch (librdkafka#5476). A call that hangs inside the library is not interrupted by a test's time limit.
    """
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(CLOSING_S)
