"""`penstock groups` and `penstock consume --group` against a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

from clients.librdkafka import close
from penstock.client.wire.admin import Admin
from penstock.local.ports import free_ports
from penstock.model.ids import TopicPartition
from penstock.testing.nodes import start_node
from waiting import wait_until

if TYPE_CHECKING:
    from conftest import CommandLine

DEADLINE_S = 60
BEGINNING_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
PROTOCOLS = ["classic", "consumer"]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a broker whose groups do not wait for more members before they begin, and hear of changes soon."""
    elsewhere = os.environ.get("PENSTOCK_TEST_BOOTSTRAP")
    if elsewhere:
        yield elsewhere
        return
    properties = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "200",
    }
    with start_node(tmp_path_factory.mktemp("groups") / "node", properties=properties) as node:
        yield node.bootstrap


@pytest.fixture(autouse=True)
def cluster(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", bootstrap)


def written(bootstrap: str, name: str) -> str:
    """Two partitions of five records each, a second between them."""
    with Admin(bootstrap, timeout=DEADLINE_S) as admin:
        admin.topics.create(name, partitions=2, configs={"retention.ms": "-1"})
    failed: list[object] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "on_delivery": lambda error, _: failed.extend([error] if error else [])}
    )
    for number in range(5):
        for partition in (0, 1):
            producer.produce(name, f"{partition}/{number}", partition=partition, timestamp=BEGINNING_MS + 1000 * number)
    assert (producer.flush(DEADLINE_S), failed) == (0, [])
    return name


@pytest.fixture
def topic(bootstrap: str, unique_topic: Callable[[str], str]) -> str:
    return written(bootstrap, unique_topic("orders"))


@pytest.fixture(scope="module")
def untouched(bootstrap: str, unique_topic: Callable[[str], str]) -> tuple[str, str]:
    """A topic, and a group that has committed in its first partition."""
    topic, group = written(bootstrap, unique_topic("orders")), unique_topic("billing")
    with Admin(bootstrap, timeout=DEADLINE_S) as admin:
        admin.groups.alter_offsets(group, {TopicPartition(topic, 0): 5})
    return topic, group


@pytest.fixture
def group(unique_topic: Callable[[str], str]) -> str:
    return unique_topic("billing")


@contextmanager
def members(bootstrap: str, topic: str, group: str, protocol: str, count: int = 1) -> Iterator[None]:
    """So many, when partitions are shared out among them."""
    consumers = [
        Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": f"worker-{number}",
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        for number in range(count)
    ]
    try:
        for consumer in consumers:
            consumer.subscribe([topic])
        with Admin(bootstrap, timeout=DEADLINE_S) as admin:

            def is_stable() -> bool:
                found = admin.groups.find(group)
                return bool(
                    found
                    and found.state == "Stable"
                    and len(found.members) == count
                    and len(found.owners()) == 2
                    and sum(len(consumer.assignment()) for consumer in consumers) == 2
                )

            wait_until(
                is_stable,
                lambda: f"partitions are assigned: {admin.groups.find(group)}",
                between=lambda: [consumer.poll(0.05) for consumer in consumers],
            )
        yield
    finally:
        close(*consumers)


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def offsets(cli: CommandLine, group: str) -> dict[int, int]:
    (described,) = json.loads(cli("groups", "describe", group, "--json").out)
    return {each["partition"]: each["committed"] for each in described["partitions"]}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_life_of_a_group(cli: CommandLine, topic: str, group: str, protocol: str) -> None:
    joined = ["consume", topic, "-g", group, "--group-protocol", protocol, "-e"]
    assert len(cli(*joined, "--from-beginning").out.splitlines()) == 10
    cli("produce", topic, "-p", "1", stdin=b"more\n")

    assert group in cli("groups", "list", "--names").out.splitlines()
    assert group in cli("groups", "list", "--names", "--state", "empty", "--type", protocol).out.splitlines()
    assert group not in cli("groups", "list", "--names", "--state", "Stable").out.splitlines()
    (listed,) = [row for row in table(cli("groups", "list").out) if row[0] == group]
    assert listed[1:3] == [protocol, "Empty"]
    header, total, *rows = cli("groups", "describe", group).out.splitlines()
    assert header.startswith(f"{group}  {protocol} group, Empty, 0 members")
    assert total == "  lag 1 in 2 partitions"
    assert [row.split() for row in rows] == [
        ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"],
        [topic, "0", "5", "5", "0", "-"],
        [topic, "1", "5", "6", "1", "-"],
    ]
    assert cli(*joined, "--from-beginning").out == "more\n"

    reset = ["groups", "reset-offsets", group, "--topic", topic, "--to-offset", "4"]
    dry = cli(*reset)
    assert table(dry.out) == [
        ["TOPIC", "PARTITION", "OLD", "NEW", "REMARK"],
        [topic, "0", "5", "4"],
        [topic, "1", "6", "4"],
    ]
    assert dry.err == "dry run, nothing is changed: repeat it with --execute\n"
    assert offsets(cli, group) == {0: 5, 1: 6}
    done = cli(*reset, "--execute")
    assert (done.out, done.err) == (dry.out, "")
    assert sorted(cli(*joined).out.splitlines()) == ["0/4", "1/4", "more"]

    assert table(cli("groups", "delete-offsets", group, "--topic", f"{topic}:0").out)[1:] == [[topic, "0", "5"]]
    assert offsets(cli, group) == {1: 6}
    assert cli("groups", "delete", group).out == f"deleted {group}\n"
    assert "GROUP_ID_NOT_FOUND" in cli("groups", "describe", group).err
    assert cli("groups", "delete", group, "--if-exists").status == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_are_shown_and_in_the_way(
    cli: CommandLine, bootstrap: str, topic: str, group: str, protocol: str
) -> None:
    with members(bootstrap, topic, group, protocol, 3):
        (described,) = json.loads(cli("groups", "describe", group, "--json").out)
        assert (described["type"], described["state"], described["lag"]) == (protocol, "Stable", 0)
        owners = {each["partition"]: each["client_id"] for each in described["partitions"]}
        assert [each["topics"] for each in described["members"]] == [[topic]] * 3
        assert {
            member["client_id"]: [each["partition"] for each in member["assignment"]] for member in described["members"]
        } == {
            f"worker-{number}": [p for p, owner in owners.items() if owner == f"worker-{number}"] for number in range(3)
        }
        assert sorted(member["state"] for member in described["members"]) == ["idle", "reading", "reading"]

        text = cli("groups", "describe", group).out
        assert f"{group}  {protocol} group, Stable, 3 members, assignor" in text
        assert "lag 0 in 2 partitions, not known in 2 of them" in text
        assert sorted(row[1] for row in table(text)[-3:]) == ["worker-0", "worker-1", "worker-2"]

        reset = ["groups", "reset-offsets", group, "--topic", topic, "--to-latest"]
        who = "worker-0 on 127.0.0.1, worker-1 on 127.0.0.1, worker-2 on 127.0.0.1"
        dry = cli(*reset)
        assert dry.status == 0
        assert dry.err.endswith(f"when its members have stopped: {who}\n")
        for refused in (cli(*reset, "--execute"), cli("groups", "delete", group)):
            assert (refused.status, refused.out) == (1, "")
            assert refused.err.startswith("penstock: NON_EMPTY_GROUP: cannot ")
            assert refused.err.endswith(f"while it has members; stop them first: {who}\n")
    assert cli(*reset, "--execute").status == 0
    assert offsets(cli, group) == {0: 5, 1: 5}
    with members(bootstrap, topic, group, protocol):
        refused = cli("groups", "delete-offsets", group, "--topic", topic)
        assert refused.status == 1
        assert refused.err.startswith("penstock: GROUP_SUBSCRIBED_TO_TOPIC: cannot delete offsets")
        assert "worker-0 on 127.0.0.1" in refused.err


def test_where_to_reset(cli: CommandLine, topic: str, group: str) -> None:
    cli("topics", "alter", topic, "--delete-records-before", "0:1")
    assert cli("groups", "reset-offsets", group, "--topic", topic, "--to-offset", "3", "--execute").status == 0
    late = "no record so late: the end"
    after = "10 is after the last record"
    for options, expected in (
        (["--to-earliest"], {0: (1, None), 1: (0, None)}),
        (["--to-latest"], {0: (5, None), 1: (5, None)}),
        (["--to-current"], {0: (3, None), 1: (3, None)}),
        (["--to-offset", "10"], {0: (5, after), 1: (5, after)}),
        (["--to-offset", "0"], {0: (1, "0 is before the first record"), 1: (0, None)}),
        (["--shift-by", "-2"], {0: (1, None), 1: (1, None)}),
        (["--shift-by", "1"], {0: (4, None), 1: (4, None)}),
        (["--shift-by", "7"], {0: (5, after), 1: (5, after)}),
        (["--to-time", "2023-11-14T22:13:22Z"], {0: (2, None), 1: (2, None)}),
        (["--to-time", "2023-11-15T00:13:22+02:00"], {0: (2, None), 1: (2, None)}),
        (["--to-time", "2023-11-14T22:13:21.500"], {0: (2, None), 1: (2, None)}),
        (["--to-time", str(BEGINNING_MS + 3000)], {0: (3, None), 1: (3, None)}),
        (["--to-time", "2099-01-01"], {0: (5, late), 1: (5, late)}),
        (["--by-duration", "P1DT2H"], {0: (5, late), 1: (5, late)}),
        (["--by-duration", "19000d"], {0: (1, None), 1: (0, None)}),
    ):
        result = json.loads(cli("groups", "reset-offsets", group, "--all-topics", *options, "--json").out)
        assert (result["executed"], result["members"]) == (False, [])
        assert {each["partition"]: (each["new"], each["remark"]) for each in result["offsets"]} == expected, options
        assert [each["old"] for each in result["offsets"]] == [3, 3]
    assert offsets(cli, group) == {0: 3, 1: 3}


def test_a_group_can_be_made_by_saying_where_it_begins(cli: CommandLine, topic: str, group: str) -> None:
    reset = ["groups", "reset-offsets", group, "--topic", f"{topic}:1", "--to-offset", "2"]
    assert cli(*reset).err.endswith(f"repeat it with --execute, which makes the group '{group}'\n")
    assert json.loads(cli(*reset, "--execute", "--json").out)["executed"] is True
    assert offsets(cli, group) == {1: 2}
    missing = cli("groups", "reset-offsets", group, "--topic", topic, "--shift-by", "1")
    assert missing.err == f"penstock: cannot shift in {topic}-0: the group has committed nothing there\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["describe", "no-such-group"], "GROUP_ID_NOT_FOUND: there is no group 'no-such-group'"),
        (["describe", ""], "a group has a name"),
        (["delete", "no-such-group"], "GROUP_ID_NOT_FOUND"),
        (["delete", ""], "a group has a name"),
        (["delete-offsets", "no-such-group", "--topic", "TOPIC"], "GROUP_ID_NOT_FOUND"),
        (["delete-offsets", "GROUP", "--topic", "other"], "it has in TOPIC:0"),
        (["delete-offsets", "GROUP", "--topic", "TOPIC:x"], "is not TOPIC or TOPIC:PARTITION,..."),
        (["list", "--state", "Confused"], "--state 'Confused' is none of Empty,"),
        (["list", "--type", "modern"], "--type 'modern' is none of classic, consumer"),
        (["reset-offsets", "", "--all-topics", "--to-latest"], "a group has a name"),
        (["reset-offsets", "GROUP", "--all-topics"], "say where to"),
        (["reset-offsets", "GROUP", "--all-topics", "--to-latest", "--shift-by", "1"], "say where to"),
        (["reset-offsets", "GROUP", "--to-latest"], "say in which partitions"),
        (["reset-offsets", "GROUP", "--to-latest", "--all-topics", "--topic", "TOPIC"], "say in which partitions"),
        (["reset-offsets", "no-such-group", "--to-latest", "--all-topics"], "'no-such-group' has committed nothing"),
        (["reset-offsets", "GROUP", "--to-latest", "--topic", "TOPIC:7"], "has no partition 7, only 2 in all"),
        (["reset-offsets", "GROUP", "--to-latest", "--topic", ":1"], "is not TOPIC or TOPIC:PARTITION,..."),
        (["reset-offsets", "GROUP", "--to-latest", "--topic", "no-such-topic"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["reset-offsets", "GROUP", "--to-latest", "--topic", "no/topic"], "INVALID_TOPIC"),
        (["reset-offsets", "GROUP", "--all-topics", "--to-time", "noon"], "--to-time 'noon' is not a time"),
        (["reset-offsets", "GROUP", "--all-topics", "--to-time", "9" * 30], "is not a time"),
        (["reset-offsets", "GROUP", "--all-topics", "--by-duration", "soon"], "'soon' is not a duration"),
        (["reset-offsets", "GROUP", "--all-topics", "--by-duration", ""], "is not a duration"),
        (["reset-offsets", "GROUP", "--all-topics", "--by-duration", "99999999999d"], "is before 1970"),
    ],
)
def test_what_goes_wrong_is_one_line(
    arguments: list[str], said: str, cli: CommandLine, untouched: tuple[str, str]
) -> None:
    topic, group = untouched
    result = cli("groups", *(each.replace("TOPIC", topic).replace("GROUP", group) for each in arguments))
    assert (result.status, result.out) == (1, "")
    assert said.replace("TOPIC:0", f"{topic}:0") in result.err
    assert result.err.count("\n") == 1


def test_a_broker_that_is_not_there(cli: CommandLine) -> None:
    nowhere = f"127.0.0.1:{free_ports(1)[0]}"
    for command in (["list"], ["describe", "billing"], ["delete", "billing"]):
        refused = cli("groups", *command, "-b", nowhere)
        assert refused.status == 1
        assert refused.err.startswith(f"penstock: cannot connect to {nowhere}: ")
        assert refused.err.count("\n") == 1


# -- consume --group ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_printed_is_committed_and_nothing_else(cli: CommandLine, topic: str, group: str, protocol: str) -> None:
    joined = ["consume", topic, "-g", group, "--group-protocol", protocol]
    first = cli(*joined, "--from-beginning", "-n", "3").out.splitlines()
    assert len(first) == 3
    assert sum(offsets(cli, group).values()) == 3
    # Also from the partition that the first run did not come to, although it is not said again where to begin.
    rest = cli(*joined, "-e").out.splitlines()
    assert sorted(first + rest) == sorted(f"{partition}/{number}" for partition in (0, 1) for number in range(5))
    assert cli(*joined, "--timeout", "0.5", "--progress").out == ""


def test_a_new_group_begins_at_the_end(cli: CommandLine, topic: str, group: str) -> None:
    assert cli("consume", topic, "-g", group, "-e").out == ""
    assert offsets(cli, group) == {0: 5, 1: 5}
    cli("produce", topic, "-p", "0", stdin=b"new\n")
    record = json.loads(cli("consume", topic, "-g", group, "-e", "--json").out)
    assert (record["value"], record["offset"]) == ("new", 5)


@pytest.mark.parametrize(("protocol", "how"), [("classic", signal.SIGTERM), ("consumer", signal.SIGINT)])
def test_who_is_stopped_leaves_at_once(
    cli: CommandLine, topic: str, group: str, protocol: str, how: signal.Signals
) -> None:
    """And has committed what it printed; its session outlasts the test, so only itself can have left the group."""
    command = ["consume", topic, "-g", group, "--group-protocol", protocol, "--from-beginning"]
    session = ["-X", "session.timeout.ms=300000"] if protocol == "classic" else []
    member = subprocess.Popen(
        [sys.executable, "-c", "from penstock.cli.main import main; main()", *command, *session],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    overdue = threading.Timer(DEADLINE_S, member.kill)
    overdue.start()
    try:
        assert member.stdout is not None
        lines = [member.stdout.readline() for _ in range(10)]
        assert all(lines), member.communicate()
        member.send_signal(how)
        assert member.communicate(timeout=DEADLINE_S) == ("", "")
        assert member.returncode == 130
    finally:
        overdue.cancel()
        member.kill()
        member.communicate()
    (described,) = json.loads(cli("groups", "describe", group, "--json").out)
    assert (described["state"], described["members"]) == ("Empty", [])
    assert offsets(cli, group) == {0: 5, 1: 5}
