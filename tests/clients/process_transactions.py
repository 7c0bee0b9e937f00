"""Transactions of clients that run in a process of their own: Java's and kafkajs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from clients.drivers import DEADLINE_S
from clients.drivers.process import ProcessClient, ProcessMember, to_text
from clients.live_group import Group, unique


def read_committed(client: ProcessClient, topic: str, settings: Mapping[str, Any]) -> Callable[[], list[str]]:
    """A reader of everything, in a group of its own: what it has read when asked."""
    member = ProcessMember(client, unique("reader"), topic, settings)
    found: dict[tuple[int, int], str] = {}  # it begins again at the committed offset

    def read() -> list[str]:
        found.update({(each.partition, each.offset): each.value.decode() for each in member.poll()})
        return sorted(found.values())

    return read


def send(client: ProcessClient, producer: str, topic: str, *values: str) -> None:
    client.call("send", producer=producer, topic=topic, values=[to_text(value.encode()) for value in values])


def process(
    client: ProcessClient,
    group: Group,
    target: str,
    transactional_id: str,
    count: int,
    settings: Mapping[str, Any],
    /,
    **offsets: str,
) -> None:
    """Read, process, write: every second transaction is aborted, and what it had read is read again. `offsets` are
    what this client names when it sends offsets."""
    client.call("new_producer", producer=transactional_id, id=transactional_id)
    (member,) = group.members
    assert isinstance(member, ProcessMember)
    done: set[int] = set()
    attempts = 0
    deadline = time.monotonic() + 2 * DEADLINE_S
    while len(done) < count:
        assert time.monotonic() < deadline, f"{len(done)} of {count}"
        read = member.poll()
        if not read:
            continue
        attempts += 1
        client.call("begin", producer=transactional_id)
        send(client, transactional_id, target, *(each.value.decode() for each in read))
        member.call("send_offsets", producer=transactional_id, **offsets)
        if attempts % 2:
            client.call("abort_transaction", producer=transactional_id)
            member.leave()
            member = ProcessMember(client, group.name, group.topic, settings)
            group.members[:] = [member]
        else:
            client.call("commit_transaction", producer=transactional_id)
            done |= {int(each.value) for each in read}
