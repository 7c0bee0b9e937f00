"""A few seeds of every story, those that failed once, and the campaign itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.simulator.campaign import main
from penstock.simulator.stories.stories import STORIES
from penstock.simulator.story import quietly, replay_command

# Of each story: how many seeds make a slice, and how many slices are always run.
SLICES = {
    "raft": (25, 2),
    "shares": (3, 1),
    "streams": (3, 1),
    "node": (2, 2),
    "metadata": (3, 2),
    "alarms": (2, 2),
    "acls": (2, 2),
    "secured": (2, 1),
    "suspends": (2, 1),
    "cluster": (3, 2),
    "coordinators": (2, 2),
}
ALWAYS = [
    pytest.param(name, range(size * number, size * (number + 1)), id=f"{name}-{size * number}")
    for name, (size, count) in SLICES.items()
    for number in range(count)
]

# Seeds that failed once, and what they showed.
ONCE_FAILED = [
    ("raft", 222),  # a leader that had removed itself from two voters and crashed; as 225 and 253
    ("raft", 225),
    ("raft", 253),
    ("raft", 129),  # voters that only the log knew of, and no bootstrap server
    ("node", 251),  # a recovery point that was old after a clean stop on a full disk cut off what was acknowledged
    ("node", 204),  # a topic that was deleted while threads closed its logs: not a clean stop
    ("node", 88),  # a batch that was still being rewritten was appended behind the end of a clean stop
    ("coordinators", 305),  # a coordinator that had been replaced fenced a producer for an epoch it did not know
    ("coordinators", 213),  # a broker went on after a sync that had failed: what it had was in memory only
    ("coordinators", 2089),  # a power loss took the end of a compacted segment, and the hole was taken for compaction's
    ("cluster", 49),  # a power loss took the name of a log's first file, and the replica was taken for in sync
    ("cluster", 83),  # records whose deletion was acknowledged were back after a crash; as 27 and 96
    (
        "cluster",
        265,
    ),  # an old high watermark called records committed that had replaced others after an unclean election
    ("secured", 188),  # a log that had lost its first file noted where it began, started over, and lost its power again
    ("cluster", 400),  # a leader that resigned at a clean stop forgot what was committed
    ("cluster", 74),  # a log that started over within a batch acknowledged a start that a power loss took back
    ("secured", 52),  # a follower kept records below the leader's log start that the leader had replaced
    ("metadata", 146),  # a controller's snapshot was there before the log below it was synced
    ("metadata", 254),  # an empty log took epochs that a power loss had kept for its own; as 249 and 435
    (
        "shares",
        297,
    ),  # an acknowledgement that came after the last delivery was confirmed, and the record delivered again
    ("suspends", 20),  # a timer that was set before a machine slept held up the time-outs of later transactions
]


def play(name: str, seeds: Iterable[int]) -> Counter[str]:
    quietly()
    events: Counter[str] = Counter()
    for seed in seeds:
        outcome = STORIES[name].play(seed)
        assert outcome.violation is None, f"{outcome.violation}\nagain: {replay_command(name, seed)}"
        events.update(outcome.events)
    return events


@pytest.mark.parametrize(("name", "seeds"), ALWAYS)
def test_no_law_is_broken(name: str, seeds: range) -> None:
    play(name, seeds)


@pytest.mark.parametrize(("name", "seed"), ONCE_FAILED)
def test_seeds_that_failed_once(name: str, seed: int) -> None:
    play(name, [seed])


@pytest.mark.parametrize("name", ["controller", "partition", "registry"])
def test_no_law_is_broken_and_everything_happens(name: str) -> None:
    """In the quick stories; `make sim` asks it of all."""
    events = play(name, range(100))
    assert [event for event in STORIES[name].events if not events[event]] == []


def test_a_campaign_asks_for_faults_at_critical_moments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.md"
    arguments = ["--story", "controller", "--jobs", "1", "--strict", "--table", str(table)]
    assert main([*arguments, "--seeds", "40"]) == 0
    rows = [line.split(" | ") for line in table.read_text().splitlines() if line.startswith("| controller")]
    story = STORIES["controller"]
    assert [row[1] for row in rows] == list(story.critical)
    capsys.readouterr()
    more = story._replace(critical={**story.critical, "at a moment that never comes": ("kill",)})
    monkeypatch.setitem(STORIES, story.name, more)
    assert main([*arguments, "--seeds", "40"]) == 1
    assert "\nnever happened: controller: kill at a moment that never comes\n" in capsys.readouterr().out


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_long_campaign() -> None:
    assert main(["--seeds", "400", "--first", "10000"]) == 0


def test_a_seed_is_the_same_run_whatever_the_hashes_are() -> None:
    def traces(hash_seed: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "penstock.simulator", "--seed", "7"]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    runs = [traces("1"), traces("2")]
    first, second = (run.communicate()[0] for run in runs)
    assert [run.returncode for run in runs] == [0, 0]
    assert first.count("\ntrace ") == len(STORIES) and first == second


def test_the_campaign_says_how_to_replay(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("penstock.raft.following.Following._is_synced", property(lambda self: True))
    assert main(["--story", "raft", "--seeds", "2", "--jobs", "1"]) == 1
    printed = capsys.readouterr().out
    assert "CommittedOnDisks" in printed and replay_command("raft", 0) in printed
    assert main(["--story", "raft", "--seed", "0"]) == 1
    assert "CommittedOnDisks" in capsys.readouterr().out


def test_a_campaign_without_an_event_has_not_tried_enough(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--story", "partition", "--seeds", "1", "--jobs", "1"]
    assert main(arguments) == 0
    assert main([*arguments, "--strict"]) == 1
    assert "never happened: partition: " in capsys.readouterr().out
