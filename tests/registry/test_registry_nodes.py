"""Several nodes of one registry: forwarding, the death of the writer, and a writer that is stopped and woken.

The law: no id is given to two schemas, and no schema that was acknowledged to a client is lost.
"""

from __future__ import annotations

import functools
import http.client
import json
import signal
import threading
from collections.abc import Callable

import pytest

from penstock.client.wire.partition_log import PartitionLog
from penstock.local.web import LocalRegistry
from penstock.model.ids import TopicPartition
from penstock.testing.nodes import RunningNode
from registry_nodes import Nodes, Reply, ask, record_schema
from waiting import wait_until

CLIENTS = 10


def register(url: str, subject: str, schema: str) -> Reply:
    return ask(url, "POST", f"/subjects/{subject}/versions", {"schema": schema})


def find_writer(nodes: list[LocalRegistry]) -> LocalRegistry:
    """The node that says in its log that it is the writer, last."""

    def found() -> LocalRegistry | None:
        claims = [
            (line.split(" INFO ")[0], node)
            for node in nodes
            for line in node.log_text().splitlines()
            if "the writer is" in line and "(this node)" in line
        ]
        return max(claims, key=lambda claim: claim[0])[1] if claims else None

    return wait_until(found, "a writer")


def stored(nodes: Nodes) -> list[tuple[str, int]]:
    """The subjects and ids of all schemas in the topic, in order."""
    with PartitionLog(nodes.bootstrap, TopicPartition(nodes.topic, 0)) as log:
        found = [(json.loads(record.key or b""), record.value) for record in log.read()]
    return [(key["subject"], json.loads(value)["id"]) for key, value in found if key["keytype"] == "SCHEMA" and value]


class Clients:
    """Threads that register schemas, each through both nodes in turn, and repeat what fails."""

    def __init__(self, urls: list[str], each: int) -> None:
        self.ids: dict[str, int] = {}
        self._urls = urls
        self._each = each
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive()

    def _run(self, number: int) -> None:
        for count in range(self._each):
            subject = f"s-{number}-{count}"
            schema = record_schema(f"R{number}_{count}", "a")

            def attempt(subject: str = subject, schema: str = schema, count: int = count) -> int | None:
                for url in self._urls if count % 2 else reversed(self._urls):
                    try:
                        reply = register(url, subject, schema)
                    except (OSError, http.client.HTTPException):
                        continue
                    if reply.status == 200:
                        return int(reply.content["id"])
                    assert reply.status >= 500, reply
                return None

            self.ids[subject] = wait_until(attempt, f"an id for {subject}", 120)


def check_law(nodes: Nodes, told: dict[str, int], survivor: str) -> None:
    assert len(set(told.values())) == len(told), "an id was given twice"
    in_topic = stored(nodes)
    assert len(dict(in_topic)) == len(in_topic) == len({schema_id for _, schema_id in in_topic})
    assert dict(in_topic) == told
    for subject, schema_id in told.items():
        assert ask(survivor, "GET", f"/subjects/{subject}/versions/1").content["id"] == schema_id


def run_and_hurt(nodes: Nodes, each: int, hurt: Callable[[list[LocalRegistry]], None]) -> None:
    started = [nodes.start(), nodes.start()]
    register(started[0].url, "first", '"int"')
    clients = Clients([node.url for node in started], each)
    clients.start()
    wait_until(lambda: len(clients.ids) > CLIENTS * each // 4, "some schemas", 120)
    hurt(started)
    clients.join()
    assert len(clients.ids) == CLIENTS * each
    for node in started:
        if node.running:
            check_law(nodes, {"first": 1, **clients.ids}, node.url)


def is_another(nodes: list[LocalRegistry], old: LocalRegistry) -> bool:
    return find_writer(nodes) is not old


def kill_the_writer(nodes: list[LocalRegistry]) -> None:
    find_writer(nodes).kill()


def stop_writers_and_wake_them(nodes: list[LocalRegistry]) -> None:
    """Each is stopped until another node is the writer, and woken while that one writes."""
    for _ in range(6):
        writer = find_writer(nodes)
        writer.signal(signal.SIGSTOP)
        try:
            wait_until(functools.partial(is_another, nodes, writer), "another writer")
        finally:
            writer.signal(signal.SIGCONT)


def test_the_writer_is_killed_while_schemas_are_registered(nodes: Nodes) -> None:
    run_and_hurt(nodes, 5, kill_the_writer)


@pytest.mark.soak
def test_the_writer_is_killed_while_a_thousand_schemas_are_registered(nodes: Nodes) -> None:
    run_and_hurt(nodes, 100, kill_the_writer)


@pytest.mark.soak
def test_writers_are_stopped_and_woken_while_schemas_are_registered(nodes: Nodes) -> None:
    run_and_hurt(nodes, 100, stop_writers_and_wake_them)


@pytest.mark.soak
def test_the_broker_dies_while_schemas_are_registered(nodes: Nodes, registry_broker: RunningNode) -> None:
    def kill_the_broker(nodes: list[LocalRegistry]) -> None:
        for _ in range(3):
            registry_broker.kill()
            registry_broker.restart()

    run_and_hurt(nodes, 100, kill_the_broker)


def test_a_stopped_writer_writes_nothing_when_it_wakes(nodes: Nodes) -> None:
    started = [nodes.start(), nodes.start()]
    register(started[0].url, "first", '"int"')
    writer = find_writer(started)
    (other,) = (node for node in started if node is not writer)
    writer.signal(signal.SIGSTOP)
    replies: list[Reply] = []
    # The stopped process has these in its sockets, and finds them when it wakes.
    waiting = [
        threading.Thread(
            target=lambda number=number: replies.append(register(writer.url, f"late-{number}", record_schema("L", "x")))
        )
        for number in range(3)
    ]
    for thread in waiting:
        thread.start()
    took_over = register(other.url, "second", '"string"')
    assert took_over.content["id"] == 2, "the other node became the writer"
    before = stored(nodes)
    position = len(before)
    writer.signal(signal.SIGCONT)
    for thread in waiting:
        thread.join(60)
    # It forwards what it was asked, as any node does; the ids are the new writer's.
    assert {reply.content["id"] for reply in replies} == {3}
    assert find_writer(started) is other
    assert [schema_id for _, schema_id in stored(nodes)[position:]] == [3, 3, 3]
    assert "a write failed" not in other.log_text(), "the woken node has not fenced the writer in return"


def test_a_writer_that_wakes_between_decision_and_write_is_refused_by_the_broker(nodes: Nodes) -> None:
    """The election alone does not fence: the epoch of the new writer does."""
    from penstock.registry.core.records import noop
    from penstock.registry.kafka.writer import TopicWriter, WriterFenced

    nodes.start()
    old = TopicWriter(nodes.bootstrap, nodes.topic, "the-registry", timeout=10.0)
    old.append([noop({})])
    new = TopicWriter(nodes.bootstrap, nodes.topic, "the-registry", timeout=10.0)
    try:
        new.append([noop({})])
        with pytest.raises(WriterFenced):
            old.append([noop({".": 99})])
        new.append([noop({})])
    finally:
        old.close()
        new.close()
    with PartitionLog(nodes.bootstrap, TopicPartition(nodes.topic, 0)) as log:
        assert not [record for record in log.read() if b"99" in (record.value or b"")]


def test_a_node_that_is_not_the_writer_answers_what_was_written_through_it(nodes: Nodes) -> None:
    started = [nodes.start(), nodes.start()]
    register(started[0].url, "first", '"int"')
    writer = find_writer(started)
    (other,) = (node for node in started if node is not writer)
    for number in range(20):
        made = register(other.url, f"s-{number}", record_schema(f"R{number}", "a")).content
        assert ask(other.url, "GET", f"/schemas/ids/{made['id']}").status == 200
    refused = register(other.url, "first", '"string"')
    assert (refused.status, refused.code) == (409, 409)
    assert ask(other.url, "DELETE", "/subjects/s-1").content == [1]
    assert ask(other.url, "GET", "/subjects/s-1/versions").code == 40401


def test_a_node_that_leaves_hands_over_at_once_and_a_restart_knows_everything(nodes: Nodes) -> None:
    first = nodes.start()
    for number in range(5):
        register(first.url, f"s-{number}", record_schema(f"R{number}", "a"))
    second = nodes.start()
    assert first.stop() == 0
    assert register(second.url, "next", '"int"').content["id"] == 6
    assert ask(second.url, "GET", "/subjects").content == ["next", *(f"s-{number}" for number in range(5))]
