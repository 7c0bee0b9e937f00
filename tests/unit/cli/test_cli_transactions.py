"""`penstock transactions` against a real broker, one that lets old clients leave transactions hanging."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from penstock.client.wire.connection import Connection
from penstock.local.ports import free_ports
from penstock.protocol.messages.produce import ProduceResponse
from penstock.simulator.requests import batch, now_ms, only_partition, produce_request
from penstock.testing.nodes import RunningNode, start_node

if TYPE_CHECKING:
    from conftest import CommandLine

DEADLINE_S = 60
BEFORE_VERSION_2 = 11  # of Produce: later ones are always checked with the coordinator
UNKNOWN_PRODUCER = 77_777
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    properties = {"transaction.partition.verification.enable": "false"}
    with start_node(tmp_path_factory.mktemp("transactions") / "node", properties=properties) as node:
        yield node


@pytest.fixture(autouse=True)
def cluster(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", node.bootstrap)


@pytest.fixture
def topic(cli: CommandLine, unique_topic: Callable[[str], str]) -> str:
    name = unique_topic("payments")
    assert cli("topics", "create", name, "-p", "2").status == 0
    return name


@pytest.fixture
def producer(node: RunningNode, topic: str, unique_topic: Callable[[str], str]) -> Iterator[str]:
    """The transactional id of a producer that has written to partition 0, and has yet to commit."""
    transactional_id = unique_topic("till")
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topic, "paid", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    yield transactional_id
    producer.abort_transaction(DEADLINE_S)


def hang(node: RunningNode, topic: str, partition: int, producer_id: int = UNKNOWN_PRODUCER) -> None:
    """As an old client does that lost its coordinator: records of an unknown transaction, an hour ago."""
    records = batch(
        "lost",
        timestamp=now_ms() - HOUR_MS,
        producer_id=producer_id,
        producer_epoch=3,
        base_sequence=0,
        transactional=True,
    )
    request = produce_request(topic, records, partition=partition)
    request.transactional_id = "forgotten"
    with Connection(node.host, node.port) as connection:
        assert only_partition(connection.request(request, ProduceResponse, newest=BEFORE_VERSION_2)).error_code == 0


def test_transactions_are_listed_and_described(cli: CommandLine, topic: str, producer: str) -> None:
    listed = {row["transactional_id"]: row for row in json.loads(cli("transactions", "list", "--json").out)}
    assert listed[producer]["state"] == "Ongoing"
    producer_id = str(listed[producer]["producer_id"])
    for options, is_among in (
        (["--state", "Ongoing"], True),
        (["--state", "CompleteCommit"], False),
        (["--producer-id", producer_id], True),
        (["--producer-id", "123456"], False),
        (["--longer-than", "1d"], False),
        (["--pattern", f"{producer[:-1]}."], True),
        (["--pattern", "other.*"], False),
    ):
        rows = [line.split() for line in cli("transactions", "list", *options).out.splitlines()]
        assert (producer in [row[0] for row in rows]) is is_among, options

    (described,) = json.loads(cli("transactions", "describe", producer, "--json").out)
    assert described["partitions"] == [{"topic": topic, "partition": 0}]
    assert (described["state"], described["timeout_ms"]) == ("Ongoing", 60_000)
    row = cli("transactions", "describe", producer).out.splitlines()[1].split()
    assert row[:5] == [producer, "Ongoing", producer_id, str(described["producer_epoch"]), "1"]
    assert row[-1] == f"{topic}:0"

    (active,) = json.loads(cli("transactions", "producers", f"{topic}:0", "--json").out)
    assert (active["producer_id"], active["transaction_start"]) == (int(producer_id), 0)
    assert cli("transactions", "producers", topic).out.splitlines()[1].split()[:3] == [topic, "0", producer_id]
    assert cli("transactions", "producers", f"{topic}:1").err == "no producers\n"


def test_a_hanging_transaction_is_found_and_aborted(
    cli: CommandLine, node: RunningNode, topic: str, producer: str
) -> None:
    cli("produce", topic, "-p", "1", stdin=b"before\n")
    hang(node, topic, 1)
    cli("produce", topic, "-p", "1", stdin=b"after\n")
    committed = ["consume", topic, "-p", "1", "--from-beginning", "--read-committed"]
    assert cli(*committed, "-e").out == "before\n"

    found = cli("transactions", "find-hanging", "--topic", topic)
    assert [line.split()[:5] for line in found.out.splitlines()[1:]] == [[topic, "1", str(UNKNOWN_PRODUCER), "3", "0"]]
    assert found.err == f"abort the first with: penstock transactions abort {topic}:1 --start-offset 1\n"
    assert cli("transactions", "find-hanging", "--topic", topic, "--longer-than", "2h").err == "no transaction hangs\n"
    hanging = json.loads(cli("transactions", "find-hanging", "--json").out)
    assert [(each["topic"], each["transaction_start"], each["transactional_id"]) for each in hanging] == [
        (topic, 1, None)
    ]

    done = cli("transactions", "abort", f"{topic}:1", "--start-offset", "1")
    assert done.out == f"aborted the transaction of producer {UNKNOWN_PRODUCER} in {topic}-1\n"
    assert cli(*committed, "-n", "2").out == "before\nafter\n"
    assert cli("transactions", "find-hanging").err == "no transaction hangs\n"
    again = cli("transactions", "abort", f"{topic}:1", "--start-offset", "1")
    assert again.err == f"penstock: {topic}-1 has no open transaction that begins at offset 1\n"


def test_what_will_end_by_itself_is_left_alone(cli: CommandLine, topic: str, producer: str) -> None:
    assert cli("transactions", "find-hanging", "--topic", topic, "--longer-than", "0s").out == ""
    refused = cli("transactions", "abort", f"{topic}:0", "--start-offset", "0")
    assert refused.status == 1
    assert refused.err == (
        f"penstock: the transaction in {topic}-0 does not hang: '{producer}' is still to end it "
        "(--force aborts it here nevertheless)\n"
    )
    assert cli("transactions", "abort", f"{topic}:0", "--start-offset", "0", "--force").status == 0


def test_aborting_without_looking(cli: CommandLine, node: RunningNode, topic: str) -> None:
    hang(node, topic, 0, UNKNOWN_PRODUCER + 1)
    known = ["--producer-id", str(UNKNOWN_PRODUCER + 1)]
    stale = cli("transactions", "abort", f"{topic}:0", *known, "--producer-epoch", "2")
    assert stale.status == 1
    assert "INVALID_PRODUCER_EPOCH" in stale.err
    done = json.loads(cli("transactions", "abort", f"{topic}:0", *known, "--producer-epoch", "3", "--json").out)
    assert done["producer_id"] == UNKNOWN_PRODUCER + 1
    (producer,) = json.loads(cli("transactions", "producers", topic, "--json").out)
    assert producer["transaction_start"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["describe", "no-such-id"], "TRANSACTIONAL_ID_NOT_FOUND: no coordinator knows the transactional id"),
        (["describe", ""], "a transactional id has at least one character"),
        (["list", "--state", "Confused"], "there is no state Confused"),
        (["list", "--longer-than", "soon"], "--longer-than 'soon' is not a duration"),
        (["list", "--pattern", "("], "INVALID_REGULAR_EXPRESSION"),
        (["producers", "TOPIC:9"], "has no partition 9"),
        (["producers", "no-such-topic"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["producers", "no/topic"], "INVALID_TOPIC"),
        (["find-hanging", "--topic", "TOPIC:x"], "is not TOPIC or TOPIC:PARTITION,..."),
        (["find-hanging", "--longer-than", ""], "is not a duration"),
        (["abort", "TOPIC", "--start-offset", "0"], "is not TOPIC:PARTITION"),
        (["abort", "TOPIC:0"], "say which"),
        (["abort", "TOPIC:0", "--producer-epoch", "1"], "say which"),
        (["abort", "TOPIC:0", "--start-offset", "0", "--producer-epoch", "1"], "goes with --producer-id"),
        (["abort", "TOPIC:0", "--start-offset", "0"], "has no open transaction that begins at offset 0"),
        (["abort", "TOPIC:0", "--producer-id", "5"], "has no open transaction of producer 5"),
        (["abort", "TOPIC:9", "--start-offset", "0"], "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_what_goes_wrong_is_one_line(arguments: list[str], said: str, cli: CommandLine, topic: str) -> None:
    result = cli("transactions", *(each.replace("TOPIC", topic) for each in arguments))
    assert (result.status, result.out) == (1, "")
    assert said in result.err
    assert result.err.count("\n") == 1


def test_a_broker_that_is_not_there(cli: CommandLine) -> None:
    nowhere = f"127.0.0.1:{free_ports(1)[0]}"
    for command in (["list"], ["describe", "till"], ["find-hanging"]):
        refused = cli("transactions", *command, "-b", nowhere)
        assert refused.status == 1
        assert refused.err.startswith(f"penstock: cannot connect to {nowhere}: ")
