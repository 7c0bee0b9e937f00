"""Seeded stories of one replicated partition: no law is broken, and everything that should happen to it does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable

import pytest

from penstock.testing.simulation.replication_story import EVENTS, play


def campaign(seeds: Iterable[int]) -> Counter[str]:
    events: Counter[str] = Counter()
    for seed in seeds:
        outcome = play(seed)
        assert outcome.violation is None, f"{outcome.violation}\nagain: replication_story.py --seed {seed}"
        events.update(outcome.events)
    return events


def test_a_hundred_seeds() -> None:
    events = campaign(range(100))
    assert [name for name in EVENTS if not events[name]] == [], "a campaign without these has not tried enough"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_five_thousand_seeds() -> None:
    campaign(range(5000))


def test_a_seed_is_the_same_run_whatever_the_hashes_are() -> None:
    def trace(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "penstock.testing.simulation.replication_story", "--seed", "7"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert trace("1") == trace("2")
