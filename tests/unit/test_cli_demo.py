"""`penstock demo` and `penstock bench`: short runs of the real thing."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from penstock.cli.demo_stream import EventStream, Ledger
from penstock.testing.nodes import RunningNode

if TYPE_CHECKING:
    from conftest import CommandLine


def test_demo(cli: CommandLine) -> None:
    result = cli("demo", "--duration", "0.5", "--headless")
    assert result.status == 0
    assert "acknowledged events were read back, each once and in order." in result.out
    # The dump is of the last segment, which is not the first one where half a second suffices to fill that.
    dumped = re.search(r"log dump --records (\d{20})\.log", result.out)
    assert dumped
    assert f"offsets {int(dumped[1])}-" in result.out


def test_demo_for_machines(cli: CommandLine) -> None:
    result = cli("demo", "--duration", "0.2", "--json")
    assert result.status == 0
    summary = json.loads(result.out)
    assert summary["acknowledged"] == summary["read"] > 0


def test_the_demo_does_not_hide_a_loss() -> None:
    def stream(acknowledged: int, *read: tuple[int, int]) -> str | None:
        events = EventStream("127.0.0.1:1", "events", 2)
        events.acknowledged = acknowledged
        for partition, number in read:
            events._ledger.tick(partition, number)
        return events.problem()

    assert stream(3, (0, 0), (1, 1), (0, 2)) is None
    assert "nothing was acknowledged" in str(stream(0))
    assert "not the 3" in str(stream(3, (0, 0), (0, 2)))
    assert "more than once" in str(stream(2, (0, 0), (0, 1), (1, 1)))
    assert "out of order" in str(stream(2, (0, 1), (0, 0)))


def test_a_ledger_counts() -> None:
    ledger = Ledger(1)
    for number in range(5):
        ledger.tick(0, number)
    assert ledger.has_all(5)
    assert not ledger.has_all(4)
    assert not ledger.has_all(6)


@pytest.mark.parametrize(
    "load", [["produce", "-n", "2000"], ["consume", "-n", "2000"], ["latency", "--duration", "0.2"]]
)
def test_bench(load: list[str], cli: CommandLine, broker: RunningNode) -> None:
    result = cli("bench", *load, "--json", "-b", broker.bootstrap)
    assert result.status == 0, result.err
    row = json.loads(result.out)
    assert row["load"] == load[0]
    assert row["records"] == (200 if load[0] == "latency" else 2000)
    assert not [
        name for name in cli("topics", "list", "--names", "-b", broker.bootstrap).out.split() if "bench" in name
    ]
