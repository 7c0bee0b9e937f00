"""`penstock produce` and `penstock consume` against a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from penstock.client.wire.admin import Admin
from penstock.testing.nodes import start_node

if TYPE_CHECKING:
    from conftest import CommandLine

LATER = "4102444800000"  # 2100


@pytest.fixture(autouse=True)
def cluster(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", bootstrap)


@pytest.fixture
def topic(cli: CommandLine, unique_topic: Callable[[str], str]) -> str:
    name = unique_topic("records")
    assert cli("topics", "create", name, "-p", "1").status == 0
    return name


def test_lines_in_lines_out(cli: CommandLine, topic: str) -> None:
    result = cli("produce", topic, "--json", stdin=b"one\ntwo\r\n\nthree")
    assert json.loads(result.out) == {"topic": topic, "records": 4, "partitions": {"0": 4}}
    assert cli("consume", topic, "--from-beginning", "-e").out == "one\ntwo\n\nthree\n"


def test_keys_headers_and_tombstones(cli: CommandLine, topic: str) -> None:
    cli("produce", topic, "-K", ":", "-H", "source=test", "--null-value", "", stdin=b"a:1\nb:2:3\nc:\n")
    records = [json.loads(line) for line in cli("consume", topic, "--from-beginning", "-e", "--json").out.splitlines()]
    assert [(record["key"], record["value"]) for record in records] == [("a", "1"), ("b", "2:3"), ("c", None)]
    assert [record["offset"] for record in records] == [0, 1, 2]
    assert records[0]["headers"] == [["source", "test"]]
    assert cli("consume", topic, "--from-beginning", "-e", "-K", " -> ").out == "a -> 1\nb -> 2:3\nc -> \n"
    assert cli("consume", topic, "--from-beginning", "-e", "--format", "key").out == "a\nb\nc\n"
    assert cli("consume", topic, "--from-beginning", "-n", "1", "-f", r"%t/%p@%o %k=%v [%h] 100%%\t.").out == (
        f"{topic}/0@0 a=1 [source=test] 100%\t.\n"
    )


def test_what_consume_prints_as_json_produce_reads(cli: CommandLine, topic: str) -> None:
    line = json.dumps(
        {
            "key": {"base64": "/w=="},
            "value": {"nested": [1, "ü"]},
            "headers": [["h", None], ["h", "x"]],
            "partition": 0,
            "timestamp": int(LATER) // 10 * 4,
        }
    )
    assert cli("produce", topic, "--format", "json", stdin=line.encode()).status == 0
    first = cli("consume", topic, "--from-beginning", "-e", "--json").out
    assert cli("produce", topic, "--format", "json", stdin=first.encode()).status == 0
    one, two = (json.loads(text) for text in cli("consume", topic, "--from-beginning", "-e", "--json").out.splitlines())
    assert one["key"] == {"base64": "/w=="}
    assert json.loads(one["value"]) == {"nested": [1, "ü"]}
    assert one["headers"] == [["h", None], ["h", "x"]]
    assert {**one, "offset": 1} == two


def test_where_to_begin(cli: CommandLine, topic: str) -> None:
    cli("produce", topic, stdin=b"0\n1\n2\n3\n")
    for offset, expected in (
        ("earliest", "0\n1\n2\n3\n"),
        ("2", "2\n3\n"),
        ("-1", "3\n"),
        ("-99", "0\n1\n2\n3\n"),
        ("@0", "0\n1\n2\n3\n"),
        (f"@{LATER}", ""),
        ("latest", ""),
        ("4", ""),
    ):
        assert cli("consume", topic, "--offset", offset, "-e").out == expected, offset
    assert cli("consume", topic, "--timeout", "0.1").out == ""
    assert cli("consume", topic, "--offset", "1", "-n", "2", "--progress").out == "1\n2\n"


def test_partitions(cli: CommandLine, unique_topic: Callable[[str], str]) -> None:
    topic = unique_topic("partitions")
    cli("topics", "create", topic, "-p", "3")
    for partition in range(3):
        cli("produce", topic, "-p", str(partition), stdin=b"in %d\n" % partition)
    assert cli("consume", topic, "--from-beginning", "-e", "-p", "2").out == "in 2\n"
    out = cli("consume", topic, "--from-beginning", "-e", "-p", "0", "-p", "1").out
    assert sorted(out.splitlines()) == ["in 0", "in 1"]


def test_a_key_goes_where_java_puts_it(cli: CommandLine, unique_topic: Callable[[str], str]) -> None:
    topic = unique_topic("hashed")
    cli("topics", "create", topic, "-p", "10")
    cli("produce", topic, "-K", ":", stdin=b"21:\nfoobar:\n")
    lines = cli("consume", topic, "--from-beginning", "-e", "-f", "%k %p").out.splitlines()
    murmur2 = {"21": -973932308, "foobar": -790332482}  # as Kafka's own tests pin it
    assert sorted(lines) == [f"{key} {(number & 0x7FFFFFFF) % 10}" for key, number in murmur2.items()]


@pytest.mark.parametrize(
    ("codec", "acks"), [("gzip", "all"), ("snappy", "1"), ("lz4", "1"), ("zstd", "1"), ("none", "0")]
)
def test_codecs_and_acks(codec: str, acks: str, cli: CommandLine, topic: str) -> None:
    assert cli("produce", topic, "--compression", codec, "--acks", acks, stdin=b"x" * 5000).status == 0
    assert cli("consume", topic, "--from-beginning", "-n", "1").out == "x" * 5000 + "\n"


def test_producing_creates_the_topic(cli: CommandLine, unique_topic: Callable[[str], str]) -> None:
    topic = unique_topic("spontaneous")
    assert cli("produce", topic, stdin=b"first\n").status == 0
    assert cli("consume", topic, "--from-beginning", "-e").out == "first\n"


@pytest.mark.parametrize(
    "command", [["produce", "orders"], ["consume", "orders", "--from-beginning", "-n", "1"]], ids=str
)
def test_a_broker_that_restarts_is_waited_for(tmp_path: Path, command: list[str]) -> None:
    with start_node(tmp_path) as node:
        with Admin(node.bootstrap) as admin:
            admin.topics.create("orders", partitions=1)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        producer.produce("orders", b"one")
        assert producer.flush(10) == 0
        node.kill()
        running = subprocess.Popen(
            [sys.executable, "-m", "penstock", *command, "-b", node.bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert running.stderr is not None
        assert b"Connection refused; trying again for" in running.stderr.readline()
        node.start()
        out, err = running.communicate(b"two\n", timeout=60)
        assert (running.returncode, err) == (0, b"")
        assert out == (b"one\n" if command[0] == "consume" else b"")


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (["produce", "TOPIC", "-K", ":"], b"a:1\nb\n", "line 2 has no key"),
        (["produce", "TOPIC", "--format", "json"], b"{}\n[1]\n", "line 2 is not a JSON object"),
        (["produce", "TOPIC", "--format", "json"], b"oops\n", "line 1 is not JSON"),
        (["produce", "TOPIC", "--format", "json"], b'{"headers": 5}\n', "line 1"),
        (["produce", "TOPIC", "--format", "json"], b'{"partition": "x"}\n', "line 1"),
        (["produce", "TOPIC", "--format", "xml"], b"", "neither value nor json"),
        (["produce", "TOPIC", "--acks", "5"], b"", "--acks '5'"),
        (["produce", "TOPIC", "--compression", "rar"], b"", "rar"),
        (["produce", "TOPIC", "-X", "no.such=1"], b"", "no.such"),
        (["produce", "TOPIC", "-p", "9"], b"x\n", "partition"),
        (["produce", "no/topic"], b"x\n", "INVALID_TOPIC"),
        (["consume", "TOPIC", "-X", "no.such=1"], b"", "no.such"),
        (["consume", "TOPIC", "-p", "9"], b"", "has no partition 9"),
        (["consume", "TOPIC", "--offset", "9"], b"", "has offsets 0 to 0"),
        (["consume", "TOPIC", "--offset", "soon"], b"", "--offset 'soon'"),
        (["consume", "TOPIC", "--offset", "1", "--from-beginning"], b"", "contradict"),
        (["consume", "TOPIC", "--format", "%x"], b"", "unknown field %x"),
        (["consume", "TOPIC", "--format", "xml"], b"", "none of value, key, json"),
        (["consume", "no-such-topic"], b"", "UNKNOWN_TOPIC_OR_PARTITION"),
        (["consume", "no-such-topic", "--group", "g"], b"", "UNKNOWN_TOPIC_OR_PARTITION"),
        (["consume", "no/topic", "--group", "g"], b"", "INVALID_TOPIC"),
        (["consume", "TOPIC", "--group", ""], b"", "a group has a name"),
        (["consume", "TOPIC", "--group", "g", "-p", "0"], b"", "--partition and --group contradict"),
        (["consume", "TOPIC", "--group", "g", "--offset", "1"], b"", "penstock groups reset-offsets moves it"),
        (["consume", "TOPIC", "--group", "g", "--group-protocol", "modern"], b"", "neither classic nor consumer"),
        (["consume", "TOPIC", "--group-protocol", "consumer"], b"", "give --group, too"),
    ],
)
def test_what_goes_wrong_is_one_line(
    arguments: list[str], stdin: bytes, said: str, cli: CommandLine, topic: str
) -> None:
    result = cli(*(topic if argument == "TOPIC" else argument for argument in arguments), stdin=stdin)
    assert result.status == 1
    assert said in result.err
    assert result.err.count("\n") == 1
