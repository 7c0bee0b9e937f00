"""`penstock bench`: short runs of the real thing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from penstock.testing.nodes import RunningNode

if TYPE_CHECKING:
    from conftest import CommandLine


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
