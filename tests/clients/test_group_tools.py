"""Kafka's own commands for groups and transactions: kafka-consumer-groups, kafka-share-groups, kafka-transactions,
kafka-console-consumer.

All are run in one Java process, after one another. The last reads the internal topics, too: their records are Kafka's.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from clients.drivers.java import JavaClient, class_path
from clients.drivers.process import ProcessMember, to_text
from clients.live_group import PARTITIONS, PROPERTIES, Group
from penstock import Admin, Producer, ShareConsumer
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until

GROUPS = "consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = "consumer.group.ShareGroupCommand"
TRANSACTIONS = "TransactionsCommand"
CONSOLE = "consumer.ConsoleConsumer"
SHARE_CONSOLE = "consumer.ConsoleShareConsumer"
SETTINGS = {"group.protocol": "classic", "client.id": "me", "session.timeout.ms": "6000"}


class Tools:
    def __init__(self, node: RunningNode, client: JavaClient) -> None:
        self.node = node
        self.client = client

    def run(self, name: str, *arguments: str) -> str:
        options = ["--bootstrap-server", self.node.bootstrap, *arguments]
        outcome = self.client.call("tool", name=name, arguments=options)
        assert outcome["status"] == 0, outcome["output"]
        return str(outcome["output"])

    def rows(self, name: str, *arguments: str) -> list[dict[str, str]]:
        """The table that it prints, without what is said above it."""
        lines = [line.split() for line in self.run(name, *arguments).splitlines() if line.strip()]
        widest = max(map(len, lines))
        header, *rows = [line for line in lines if len(line) == widest]
        return [dict(zip(header, row, strict=True)) for row in rows]

    def new_group(self) -> Group:
        return Group(self.node.bootstrap, lambda _, group, topic: ProcessMember(self.client, group, topic, SETTINGS))


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    class_path()  # skips where there is no Java
    small = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
    with (
        start_node(tmp_path_factory.mktemp("tools") / "node", properties=PROPERTIES | small) as node,
        closing(JavaClient(node.bootstrap)) as client,
    ):
        yield Tools(node, client)


def test_groups(tools: Tools) -> None:
    group = tools.new_group()
    about = ("--group", group.name)
    group.join(2)
    group.settle()
    group.send(60)
    group.read_all()
    group.commit()
    assert group.name in tools.run(GROUPS, "--list").split()
    wait_until(lambda: {"GROUP": group.name, "STATE": "Stable"} in tools.rows(GROUPS, "--list", "--state"))
    assert {"GROUP": group.name, "TYPE": "Classic"} in tools.rows(GROUPS, "--list", "--type")

    rows = tools.rows(GROUPS, "--describe", *about)
    assert sorted(int(row["PARTITION"]) for row in rows) == list(range(PARTITIONS))  # listed by member
    assert {(row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in rows} == {("10", "10", "0")}
    assert {(row["HOST"], row["CLIENT-ID"]) for row in rows} == {("/127.0.0.1", "me")}
    members = tools.run(GROUPS, "--describe", *about, "--members", "--verbose")
    assert f"{group.topic}:0,1,2" in members
    assert f"{group.topic}:3,4,5" in members
    state = tools.run(GROUPS, "--describe", *about, "--state").split("\n")[-2].split()
    assert state[-3:] == ["range", "Stable", "2"]

    assert "The group is not empty" in tools.run(GROUPS, "--delete", *about)
    everything = ("--reset-offsets", *about, "--all-topics")
    assert "Assignments can only be reset if the group" in tools.run(GROUPS, *everything, "--to-earliest", "--execute")
    group.end()


def test_offsets_are_reset(tools: Tools) -> None:
    group = tools.new_group()
    group.join()
    group.settle()
    group.send(60)
    group.read_all()
    group.commit()
    group.end()
    reset = ("--reset-offsets", "--group", group.name)

    def committed() -> dict[int, int]:
        rows = tools.rows(GROUPS, "--describe", "--group", group.name)
        return {int(row["PARTITION"]): int(row["CURRENT-OFFSET"]) for row in rows if row["CURRENT-OFFSET"] != "-"}

    def new(*arguments: str) -> dict[int, int]:
        return {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in tools.rows(GROUPS, *reset, *arguments)}

    everything = dict.fromkeys(range(PARTITIONS), 10)
    assert new("--all-topics", "--to-earliest", "--dry-run") == dict.fromkeys(everything, 0)
    assert committed() == everything
    assert new("--topic", f"{group.topic}:0,1", "--shift-by", "-3", "--execute") == {0: 7, 1: 7}
    assert new("--topic", f"{group.topic}:2", "--to-datetime", "2020-01-01T00:00:00.000", "--execute") == {2: 0}
    assert new("--topic", f"{group.topic}:3", "--to-offset", "1000", "--execute") == {3: 10}
    assert committed() == everything | {0: 7, 1: 7, 2: 0}
    said = tools.run(GROUPS, "--delete-offsets", "--group", group.name, "--topic", f"{group.topic}:0")
    assert "Successful" in said
    assert committed() == {index: offset for index, offset in (everything | {1: 7, 2: 0}).items() if index}
    said = tools.run(GROUPS, "--delete", "--group", group.name, "--group", "nobody")
    assert f"These consumer groups were deleted successfully: '{group.name}'" in said
    assert "Group 'nobody' could not be deleted" in said
    assert group.name not in tools.run(GROUPS, "--list").split()


def read_internal(tools: Tools, topic: str, formatter: str) -> list[Any]:
    """Its records, as Kafka's own formatter sees them; it writes them without anything in between."""
    said = tools.run(
        CONSOLE, "--topic", topic, "--from-beginning", "--timeout-ms", "2000",
        "--formatter", f"org.apache.kafka.tools.consumer.{formatter}",
    )  # fmt: skip
    text = said[said.index("{") :]
    decoder, found, position = json.JSONDecoder(), [], 0
    while position < len(text) and text[position] == "{":
        record, position = decoder.raw_decode(text, position)
        found.append(record)
    return found


def test_the_console_consumer_in_a_group(tools: Tools) -> None:
    group = tools.new_group()
    group.send(60)
    options = ("--topic", group.topic, "--from-beginning", "--timeout-ms", "30000")
    said = tools.run(CONSOLE, *options, "--group", group.name, "--max-messages", "60")
    assert sorted(int(line) for line in said.splitlines() if line.isdigit()) == list(range(60))
    group.send(6)
    said = tools.run(CONSOLE, *options, "--group", group.name, "--max-messages", "6")
    assert sorted(int(line) for line in said.splitlines() if line.isdigit()) == list(range(60, 66))

    commits = read_internal(tools, "__consumer_offsets", "OffsetsMessageFormatter")
    last = {
        each["key"]["data"]["partition"]: each["value"]["data"]["offset"]
        for each in commits
        if each["key"]["data"]["group"] == group.name
    }
    assert last == dict.fromkeys(range(PARTITIONS), 11)
    generations = read_internal(tools, "__consumer_offsets", "GroupMetadataMessageFormatter")
    (*_, final) = (each["value"]["data"] for each in generations if each["key"]["data"]["group"] == group.name)
    assert (final["protocolType"], final["members"]) == ("consumer", [])


def test_transactions(tools: Tools) -> None:
    client, topic, name = tools.client, f"topic-{uuid.uuid4().hex[:8]}", f"id-{uuid.uuid4().hex[:8]}"
    client.create_topic(topic, 1, {})
    client.call("new_producer", producer=name, id=name)
    client.call("begin", producer=name)
    client.call("send", producer=name, topic=topic, values=[to_text(b"value")] * 3)

    def state() -> str:
        (listed,) = (row for row in tools.rows(TRANSACTIONS, "list") if row["TransactionalId"] == name)
        assert listed["Coordinator"] == str(tools.node.node_id)
        return listed["TransactionState"]

    assert state() == "Ongoing"
    (described,) = tools.rows(TRANSACTIONS, "describe", "--transactional-id", name)
    assert (described["TransactionState"], described["TopicPartitions"]) == ("Ongoing", f"{topic}-0")
    place = ("--topic", topic, "--partition", "0")
    (producer,) = tools.rows(TRANSACTIONS, "describe-producers", *place)
    assert (producer["LastSequence"], producer["CurrentTransactionStartOffset"]) == ("2", "0")
    assert tools.rows(TRANSACTIONS, "find-hanging", "--broker-id", str(tools.node.node_id)) == []
    tools.run(TRANSACTIONS, "abort", *place, "--start-offset", "0")
    (producer,) = tools.rows(TRANSACTIONS, "describe-producers", *place)
    assert producer["CurrentTransactionStartOffset"] == "None"
    tools.run(TRANSACTIONS, "forceTerminateTransaction", "--transactionalId", name)
    wait_until(lambda: state() in ("CompleteAbort", "Empty"))
    records = read_internal(tools, "__transaction_state", "TransactionLogMessageFormatter")
    mine = [each["value"]["data"] for each in records if each["key"]["data"]["transactionalId"] == name]
    assert {each["producerId"] for each in mine} == {int(producer["ProducerId"])}
    assert mine[0]["transactionStatus"] == 0  # empty


def test_share_groups(tools: Tools, unique_topic: Callable[[str], str]) -> None:
    """kafka-share-groups on a group whose workers are our own."""
    topic, group = unique_topic("jobs"), unique_topic("workers")
    bootstrap = tools.node.bootstrap
    with Admin(bootstrap) as admin:
        admin.topics.create(topic, partitions=2)
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    about = ("--group", group)
    with ShareConsumer(bootstrap, topic, group=group) as consumer:
        wait_until(
            lambda: (
                consumer.poll(0.1) is None
                and {"GROUP": group, "STATE": "Stable"} in tools.rows(SHARE_GROUPS, "--list", "--state")
            )
        )
        # It has no partitions before the state of its share partitions is initialized.
        wait_until(
            lambda: (
                consumer.poll(0.1) is None
                and [
                    (row["CLIENT-ID"], row["ASSIGNMENT"])
                    for row in tools.rows(SHARE_GROUPS, "--describe", *about, "--members")
                ]
                == [("penstock", f"{topic}:0,1")]
            )
        )
    moved = tools.rows(SHARE_GROUPS, "--reset-offsets", *about, "--topic", topic, "--to-earliest", "--execute")
    assert [row["NEW-OFFSET"] for row in moved] == ["0", "0"]
    assert sum(int(row["LAG"]) for row in tools.rows(SHARE_GROUPS, "--describe", *about)) == 10
    with ShareConsumer(bootstrap, topic, group=group) as consumer:
        assert len(list(consumer.records(idle=2))) == 10
    assert {row["LAG"] for row in tools.rows(SHARE_GROUPS, "--describe", *about)} == {"0"}
    assert "Successful" in tools.run(SHARE_GROUPS, "--delete-offsets", *about, "--topic", topic)
    assert "was successful" in tools.run(SHARE_GROUPS, "--delete", *about)
    assert group not in tools.run(SHARE_GROUPS, "--list")


def test_share_console(tools: Tools, unique_topic: Callable[[str], str]) -> None:
    """kafka-console-share-consumer takes records, and Kafka's formatter reads what becomes of them."""
    topic = group = unique_topic("jobs")
    with Admin(tools.node.bootstrap) as admin:
        admin.topics.create(topic, partitions=1)
    with Producer(tools.node.bootstrap) as producer:
        for number in range(20):
            producer.send(topic, b"job %d" % number)
    tools.run(SHARE_GROUPS, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    about = ("--topic", topic, "--group", group, "--max-messages", "20", "--timeout-ms", "30000")
    rejected = tools.run(SHARE_CONSOLE, *about, "--reject")
    assert sorted(line for line in rejected.split("\n") if line.startswith("job")) == sorted(
        f"job {number}" for number in range(20)
    )
    (row,) = tools.rows(SHARE_GROUPS, "--describe", "--group", group)
    assert (row["TOPIC"], row["LAG"]) == (topic, "0")
    records = read_internal(tools, "__share_group_state", "group.share.ShareGroupStateMessageFormatter")
    mine = [record for record in records if record["key"]["data"]["groupId"] == group]
    batches = [batch for record in mine for batch in record["value"]["data"]["stateBatches"]]
    assert {batch["deliveryState"] for batch in batches} == {4}  # archived
