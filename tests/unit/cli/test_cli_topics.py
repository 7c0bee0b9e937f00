"""`penstock topics` and `penstock cluster` against a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from penstock.testing.nodes import RunningNode

if TYPE_CHECKING:
    from conftest import CommandLine


@pytest.fixture(autouse=True)
def cluster(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", bootstrap)


def test_the_life_of_a_topic(cli: CommandLine, unique_topic: Callable[[str], str]) -> None:
    name = unique_topic("orders")
    assert cli("topics", "create", name, "-p", "2", "-c", "retention.ms=60000").out == (
        f"created {name} with 2 partitions\n"
    )
    assert name in cli("topics", "list", "--names").out.splitlines()
    assert (
        cli("topics", "alter", name, "-p", "3", "-c", "segment.ms=9000", "--delete-config", "retention.ms").status == 0
    )

    text = cli("topics", "describe", name).out
    assert "3 partitions" in text
    assert "  segment.ms=9000\n" in text
    assert "retention.ms" not in text
    assert [line.split() for line in text.splitlines()[-4:]] == [
        ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END"],
        ["0", "1", "0", "1", "1", "0", "0"],
        ["1", "1", "0", "1", "1", "0", "0"],
        ["2", "1", "0", "1", "1", "0", "0"],
    ]
    assert cli("topics", "delete", name).out == f"deleted {name}\n"
    assert name not in cli("topics", "list", "--names").out.splitlines()


def test_json_for_machines(cli: CommandLine, unique_topic: Callable[[str], str]) -> None:
    name = unique_topic("json")
    (created,) = json.loads(cli("topics", "create", name, "-p", "2", "--json").out)
    assert (created["name"], created["partitions"]) == (name, 2)
    listed = {topic["name"]: topic for topic in json.loads(cli("topics", "list", "--json").out)}
    assert listed[name]["topic_id"] == created["topic_id"]
    (described,) = json.loads(cli("topics", "describe", name, "--json").out)
    assert [partition["leader"] for partition in described["partitions"]] == [1, 1]
    assert described["configs"] == {}
    (all_configs,) = json.loads(cli("topics", "describe", name, "--json", "--all-configs").out)
    assert all_configs["configs"]["cleanup.policy"] == "delete"
    altered = json.loads(cli("topics", "alter", name, "--delete-records-before", "0:end", "--json").out)
    assert altered["start_offsets"] == {"0": 0}
    assert json.loads(cli("topics", "delete", name, "--json").out) == [name]


def test_existing_and_missing_topics(cli: CommandLine, unique_topic: Callable[[str], str]) -> None:
    name = unique_topic("again")
    assert cli("topics", "create", name).status == 0
    again = cli("topics", "create", name)
    assert again.status == 1
    assert again.err.startswith(f"penstock: TOPIC_ALREADY_EXISTS: cannot create topic '{name}'")
    assert again.err.count("\n") == 1
    assert cli("topics", "create", name, "--if-not-exists").status == 0

    missing = unique_topic("missing")
    for command in ("describe", "delete"):
        refused = cli("topics", command, missing)
        assert refused.status == 1
        assert "UNKNOWN_TOPIC_OR_PARTITION" in refused.err
        assert missing in refused.err
    assert cli("topics", "delete", missing, "--if-exists").status == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "nothing to change"),
        (["-c", "retention.ms"], "--config 'retention.ms' is not KEY=VALUE"),
        (["-c", "retention.mss=1"], "INVALID_CONFIG"),
        (["-p", "1"], "INVALID_PARTITIONS"),
        (["--delete-records-before", "5"], "is not PARTITION:OFFSET"),
        (["--delete-records-before", "0:99"], "OFFSET_OUT_OF_RANGE"),
    ],
)
def test_what_cannot_be_altered(
    options: list[str], said: str, cli: CommandLine, unique_topic: Callable[[str], str]
) -> None:
    name = unique_topic("fixed")
    cli("topics", "create", name, "-p", "2")
    refused = cli("topics", "alter", name, *options)
    assert refused.status == 1
    assert said in refused.err
    assert refused.err.count("\n") == 1


def test_the_cluster(cli: CommandLine, broker: RunningNode) -> None:
    text = cli("cluster", "describe", "-b", broker.bootstrap).out
    assert "under-replicated partitions: none" in text
    assert f"leader {broker.node_id}" in text
    described = json.loads(cli("cluster", "describe", "--json", "-b", broker.bootstrap).out)
    assert described["brokers"] == [
        {"broker_id": broker.node_id, "host": broker.host, "port": broker.port, "rack": None, "fenced": False}
    ]
    assert described["quorum"]["voters"][0]["node_id"] == broker.node_id
    assert described["under_replicated"] == described["offline"] == []
