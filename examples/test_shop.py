"""Tests of an application against real brokers: `pytest examples/test_shop.py`, and nothing to set up.

The application keeps the stock of a shop: it reads orders and writes what is left.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from penstock import Consumer, Int64, Producer, String
from penstock.testing import Cluster


class Stock:
    """The application."""

    def __init__(self, bootstrap: str, orders: str, **left: int) -> None:
        self.left = left
        self._orders = Consumer(bootstrap, orders, group="stock", key=String(), value=Int64())
        self._changed = threading.Condition()
        self._is_open = True
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while self._is_open:
            order = self._orders.poll(0.1)
            if order is not None:
                with self._changed:
                    self.left[order.key] -= order.value
                    self._changed.notify_all()

    def wait_for(self, item: str, count: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.left[item] == count, timeout=60)

    def close(self) -> None:
        self._is_open = False
        self._thread.join()
        self._orders.close()


@pytest.fixture
def stock(penstock_cluster: Cluster, penstock_topic: str) -> Iterator[Stock]:
    stock = Stock(penstock_cluster.bootstrap, penstock_topic, apples=100, pears=10)
    yield stock
    stock.close()


def order(bootstrap: str, topic: str, item: str, count: int) -> None:
    with Producer(bootstrap, key=String(), value=Int64()) as producer:
        producer.send(topic, count, key=item)


def test_orders_reduce_the_stock(stock: Stock, penstock_cluster: Cluster, penstock_topic: str) -> None:
    order(penstock_cluster.bootstrap, penstock_topic, "apples", 30)
    assert stock.wait_for("apples", 70)
    assert stock.left["pears"] == 10


def test_a_dead_broker_loses_no_order(stock: Stock, penstock_cluster: Cluster, penstock_topic: str) -> None:
    order(penstock_cluster.bootstrap, penstock_topic, "pears", 1)
    assert stock.wait_for("pears", 9)
    penstock_cluster.kill(penstock_cluster.leader_of(penstock_topic))
    order(penstock_cluster.bootstrap, penstock_topic, "pears", 2)
    assert stock.wait_for("pears", 7)
