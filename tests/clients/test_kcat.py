"""kcat, as people use it in a shell. Debian's is built on an old librdkafka, which asks in older versions."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clients.cases import BASE_TIMESTAMP_MS, CODECS, default_partition
from clients.drivers import DEADLINE_S, Record
from clients.drivers.confluent import ConfluentKafka
from clients.live_group import PROPERTIES
from penstock.client.wire.admin import Admin
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until

NewTopic = Callable[..., str]

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (Debian: apt install kcat)")

Kcat = Callable[..., str]


@pytest.fixture(scope="module")
def kcat(bootstrap: str) -> Kcat:
    def run(*arguments: str, stdin: str = "") -> str:
        outcome = subprocess.run(
            ["kcat", "-b", bootstrap, *arguments], input=stdin, capture_output=True, text=True, timeout=DEADLINE_S
        )
        if outcome.returncode:
            raise RuntimeError(outcome.stderr)
        return outcome.stdout

    return run


def read_all(kcat: Kcat, topic: str, *options: str) -> list[dict[str, Any]]:
    output = kcat("-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J", *options)
    return [json.loads(line) for line in output.splitlines()]


def test_lists_brokers_and_topics(kcat: Kcat, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    listing = json.loads(kcat("-L", "-J"))
    assert bootstrap in [broker["name"] for broker in listing["brokers"]]
    (described,) = (each for each in listing["topics"] if each["topic"] == topic)
    node = listing["controllerid"]
    assert described["partitions"] == [
        {"partition": n, "leader": node, "replicas": [{"id": node}], "isrs": [{"id": node}]} for n in range(3)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_writes_with_every_codec_and_reads_back(kcat: Kcat, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic()
    lines = [f"key-{n}:value {n} {'☃' * (n % 7)}" for n in range(200)]
    headers = ("-H", "one=1", "-H", "two=b", "-H", "two=c")
    options = [] if codec == "none" else ["-z", codec]
    kcat("-P", "-t", topic, "-p", "0", "-K", ":", *headers, *options, stdin="\n".join(lines))
    read = read_all(kcat, topic)
    assert [f"{message['key']}:{message['payload']}" for message in read] == lines
    assert [message["offset"] for message in read] == list(range(200))
    assert {message["partition"] for message in read} == {0}
    assert {message["tstype"] for message in read} == {"create"}
    assert all(message["headers"] == ["one", "1", "two", "b", "two", "c"] for message in read)


def test_null_keys_and_values(kcat: Kcat, new_topic: NewTopic) -> None:
    topic = new_topic()
    kcat("-P", "-t", topic, "-Z", "-K", ":", stdin="tombstone:\n:no key")
    kcat("-P", "-t", topic, stdin="neither\n")
    read = [(message.get("key"), message["payload"]) for message in read_all(kcat, topic)]
    assert read == [("tombstone", None), (None, "no key"), (None, "neither")]


@pytest.mark.parametrize("setting", ["acks=0", "acks=1", "acks=all", "enable.idempotence=true"])
def test_acknowledgements(kcat: Kcat, new_topic: NewTopic, setting: str) -> None:
    topic = new_topic()
    lines = [f"{n}" for n in range(3_000)]
    small_batches = ("-X", "batch.num.messages=50", "-X", "max.in.flight=5")
    kcat("-P", "-t", topic, "-X", setting, *small_batches, stdin="\n".join(lines))
    assert [message["payload"] for message in read_all(kcat, topic)] == lines


def test_keys_choose_the_partition_as_java_does(kcat: Kcat, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=5)
    keys = [f"user-{n}" for n in range(50)]
    stdin = "\n".join(f"{key}:x" for key in keys)
    kcat("-P", "-t", topic, "-K", ":", "-X", "topic.partitioner=murmur2_random", stdin=stdin)
    chosen = {message["key"]: message["partition"] for message in read_all(kcat, topic)}
    assert chosen == {key: default_partition(key.encode(), 5) for key in keys}


def test_offsets_and_timestamps(kcat: Kcat, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    times = [BASE_TIMESTAMP_MS + 100 * n for n in range(10)]
    ConfluentKafka(bootstrap).produce(topic, [Record(b"%d" % n, b"v", (), time, 0) for n, time in enumerate(times)])

    def keys(*options: str) -> list[str]:
        return kcat("-C", "-t", topic, "-p", "0", "-e", "-q", "-f", "%k ", *options).split()

    assert keys("-o", "7") == ["7", "8", "9"]
    assert keys("-o", "-2") == ["8", "9"]
    assert keys("-o", f"s@{times[6]}") == ["6", "7", "8", "9"]
    assert keys("-o", f"s@{times[3] + 1}", "-o", f"e@{times[6]}") == ["4", "5"]
    assert kcat("-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%T ").split() == [str(time) for time in times]
    queries = {-2: 0, -1: 10, times[2]: 2, times[2] + 1: 3}
    for timestamp, offset in queries.items():
        assert kcat("-Q", "-t", f"{topic}:0:{timestamp}").split() == [topic, "[0]", "offset", str(offset)]


def test_follows_a_topic(kcat: Kcat, bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    command = ["kcat", "-b", bootstrap, "-C", "-t", topic, "-o", "beginning", "-q", "-u", "-c", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        watchdog = threading.Timer(DEADLINE_S, follower.kill)
        watchdog.start()
        try:
            assert follower.stdout is not None
            for word in ("first", "second", "third"):
                kcat("-P", "-t", topic, stdin=f"{word}\n")
                assert follower.stdout.readline() == f"{word}\n"
            assert follower.wait() == 0
        finally:
            watchdog.cancel()
            follower.kill()


def test_creates_a_topic_by_writing_to_it(kcat: Kcat, topic_name: Callable[[], str]) -> None:
    topic = topic_name()
    kcat("-P", "-t", topic, stdin="hello\n")
    assert [message["payload"] for message in read_all(kcat, topic)] == ["hello"]


def test_an_unknown_topic_cannot_be_read(kcat: Kcat, topic_name: Callable[[], str]) -> None:
    with pytest.raises(RuntimeError, match="Unknown topic or partition"):
        read_all(kcat, topic_name())


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A broker that does not wait for more members of a group."""
    with start_node(tmp_path_factory.mktemp("kcat") / "node", properties=PROPERTIES) as node:
        yield node


def test_reads_in_a_group(quick: RunningNode) -> None:
    """Two share the partitions; a later member continues where they were."""
    topic, group = f"topic-{uuid.uuid4().hex[:8]}", f"group-{uuid.uuid4().hex[:8]}"
    with Admin(quick.bootstrap, timeout=DEADLINE_S) as admin:
        admin.topics.create(topic, partitions=2)
    write = ["kcat", "-b", quick.bootstrap, "-P", "-t", topic]
    settings = ("-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=300")
    read = ["kcat", "-b", quick.bootstrap, *settings, "-u", "-f", "%p %s\n", "-G", group, topic]

    def send(numbers: range) -> None:
        for partition in (0, 1):
            lines = "\n".join(str(number) for number in numbers if number % 2 == partition)
            subprocess.run([*write, "-p", str(partition)], input=lines, text=True, check=True, timeout=DEADLINE_S)

    def take(member: subprocess.Popen[str], count: int) -> set[int]:
        assert member.stdout is not None
        return {int(member.stdout.readline().split()[1]) for _ in range(count)}

    members = [subprocess.Popen(read, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]

    def kill_all() -> None:
        for member in members:
            member.kill()

    watchdog = threading.Timer(2 * DEADLINE_S, kill_all)
    watchdog.start()
    try:
        wait_until(lambda: assigned(quick, group) == [1, 1])
        send(range(20))
        halves = [take(member, 10) for member in members]
        assert sorted(halves, key=min) == [set(range(0, 20, 2)), set(range(1, 20, 2))]
        for member in members:
            member.terminate()  # it commits and leaves
            assert member.wait() == 0
        send(range(20, 26))
        later = subprocess.run([*read, "-c", "6"], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
        assert {int(line.split()[1]) for line in later.stdout.splitlines()} == set(range(20, 26))
    finally:
        watchdog.cancel()
        for member in members:
            member.kill()
            member.communicate()


def assigned(node: RunningNode, group: str) -> list[int]:
    """How many partitions each member has."""
    with Admin(node.bootstrap, timeout=DEADLINE_S) as admin:
        found = admin.groups.find(group)
    return [] if found is None else [len(member.assignment) for member in found.members]
