"""What one client wrote, every other client reads alike, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from clients.cases import CODECS, as_read, awkward_records, by_position
from clients.drivers import Client
from clients.drivers.aio import AioKafka
from clients.drivers.confluent import ConfluentKafka
from clients.drivers.java import JavaClient
from clients.drivers.kafka_python import KafkaPython
from clients.drivers.kafkajs import KafkaJs

CLIENTS = (ConfluentKafka, KafkaPython, AioKafka, KafkaJs, JavaClient)


@pytest.fixture(scope="module")
def clients(bootstrap: str) -> Iterator[dict[str, Client]]:
    """Those that can be had on this machine; the others' own tests say why they cannot."""
    with ExitStack() as stack:
        started: dict[str, Client] = {}
        for kind in CLIENTS:
            try:
                started[kind.name] = stack.enter_context(closing(kind(bootstrap)))
            except pytest.skip.Exception:
                continue
        yield started


@pytest.mark.parametrize("writer", [kind.name for kind in CLIENTS])
def test_all_read_what_one_wrote(clients: dict[str, Client], new_topic: Callable[..., str], writer: str) -> None:
    if writer not in clients:
        pytest.skip(f"{writer} is not to be had here")
    topic = new_topic(partitions=len(CODECS))
    records, positions = [], []
    for partition, codec in enumerate(CODECS):
        part = awkward_records(clients[writer], partitions=[partition])
        positions += clients[writer].produce(topic, part, codec=codec)
        records += part
    expected = as_read(records, positions)
    for reader_name, client in clients.items():
        with client.reader(topic, dict.fromkeys(range(len(CODECS)), 0)) as reader:
            assert by_position(reader.take(len(expected))) == expected, reader_name
