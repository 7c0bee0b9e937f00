"""Request and reply between two services, over two topics.

A request says in its headers where the answer shall go and by which id it will be recognised. The price service knows
nothing of who asks; any number of its instances could share the group.

penstock up                                   (in another terminal)
python examples/request_reply.py
"""

from __future__ import annotations

import os
import threading
import uuid

from penstock import Admin, Consumer, Float64, Producer, String

BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
REQUESTS, REPLIES = "prices.requests", "prices.replies"
PRICES = {"apples": 3.5, "pears": 4.0}


def price_service(stop: threading.Event) -> None:
    with (
        Consumer(BOOTSTRAP, REQUESTS, group="price-service", value=String()) as requests,
        Producer(BOOTSTRAP, value=Float64(), linger_ms=0) as replies,
    ):
        while not stop.is_set():
            request = requests.poll(0.1)
            if request is not None:
                to = (request.header("reply-to") or b"").decode()
                headers = {"correlation-id": request.header("correlation-id")}
                replies.send(to, PRICES[request.value], headers=headers)


class PriceClient:
    def __init__(self) -> None:
        self._requests = Producer(BOOTSTRAP, value=String(), linger_ms=0)
        # No group: this client is only interested in answers from now on.
        self._replies = Consumer(BOOTSTRAP, REPLIES, value=Float64(), start="latest")
        self._replies.poll(0)

    def price_of(self, item: str, timeout: float = 30.0) -> float:
        ours = uuid.uuid4().bytes
        self._requests.send(REQUESTS, item, headers={"reply-to": REPLIES.encode(), "correlation-id": ours}).result()
        while (reply := self._replies.poll(timeout)) is not None:
            if reply.header("correlation-id") == ours:
                return reply.value
        raise TimeoutError(f"no answer for {item}")

    def close(self) -> None:
        self._requests.close()
        self._replies.close()


def main() -> None:
    with Admin(BOOTSTRAP) as admin:
        admin.topics.create(REQUESTS, partitions=1)
        admin.topics.create(REPLIES, partitions=1)
    stop = threading.Event()
    service = threading.Thread(target=price_service, args=[stop])
    service.start()
    client = PriceClient()
    for item in PRICES:
        print(f"{item} cost {client.price_of(item):.2f}")
    client.close()
    stop.set()
    service.join()


if __name__ == "__main__":
    main()
