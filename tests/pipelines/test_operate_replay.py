"""Dead letters replayed on a broker: each once, whatever happens."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from narrowing import expect
from penstock import Producer
from penstock.arrow import read_table
from penstock.client.errors import Fenced
from penstock.pipelines.operate.dead_letters import Selection
from penstock.pipelines.operate.replay import DeadLetterTopic

if TYPE_CHECKING:
    from conftest import CommandLine
    from penstock.testing import Cluster


class World:
    def __init__(self, cluster: Cluster, unique_topic: Callable[[str], str]) -> None:
        self.bootstrap = cluster.bootstrap
        self.orders = cluster.create_topic(unique_topic("orders"), 3, configs={"retention.ms": "-1"})
        self.dead = cluster.create_topic(unique_topic("dead"), 2, configs={"retention.ms": "-1"})

    def bury(
        self,
        *numbers: int,
        reason: str = "not JSON",
        pipeline: str = "shop",
        topic: str | None = None,
        **more: str,
    ) -> None:
        with Producer(self.bootstrap) as producer:
            for number in numbers:
                told = {
                    "reason": reason,
                    "pipeline": pipeline,
                    "partition": "1",
                    "timestamp": str(1000 + number),
                    **more,
                }
                if topic != "":
                    told["topic"] = topic or self.orders
                headers: list[tuple[str, bytes | str | None]] = [
                    ("mine", b"x"),
                    *((f"dead-letter.{name}", value) for name, value in told.items()),
                ]
                producer.send(self.dead, b"%d" % number, key=b"k", headers=headers)

    def sent(self, topic: str | None = None) -> list[dict[str, Any]]:
        columns = ["key", "value", "partition", "timestamp", "headers"]
        table = read_table(self.bootstrap, topic or self.orders, value="string", columns=columns)
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    def numbers(self, topic: str | None = None) -> list[int]:
        return sorted(int(row["value"]) for row in self.sent(topic))


@pytest.fixture
def world(penstock_broker: Cluster, unique_topic: Callable[[str], str]) -> World:
    return World(penstock_broker, unique_topic)


@pytest.mark.timeout(600)
def test_each_letter_is_sent_once_however_often_it_is_called(world: World, cli: CommandLine) -> None:
    world.bury(*range(4))
    world.bury(4, reason="no customer", pipeline="other")
    world.bury(5, topic="")

    def call(*options: str) -> dict[str, Any]:
        status, out, err = cli("pipeline", "replay-dead-letters", world.dead, "-b", world.bootstrap, "--json", *options)
        assert status == 0, err
        return expect(dict, json.loads(out))

    planned = call("--dry-run")
    assert (planned["letters"], planned["without_topic"], planned["executed"]) == (5, 1, False)
    assert call("--dry-run", "--limit", "3")["letters"] == 3
    assert world.numbers() == []
    first = call("--reason", "JSON", "--limit", "3")
    assert (first["letters"], len(world.numbers())) == (3, 3)
    second = call("--pipeline", "shop")
    assert (second["letters"], second["replayed_before"], second["passed_over"]) == (1, 3, 1)
    assert world.numbers() == [0, 1, 2, 3]
    assert call()["letters"] == 1
    assert call()["letters"] == 0
    assert world.numbers() == [0, 1, 2, 3, 4]
    for row in world.sent():
        headers = {header["key"]: header["value"] for header in row["headers"]}
        assert (row["key"], row["partition"], headers["mine"], headers["replayed.times"]) == (b"k", 1, b"x", b"1")
        assert round(row["timestamp"].timestamp() * 1000) == 1000 + int(row["value"])
        assert not [name for name in headers if name.startswith("dead-letter.")]
    status, out, _ = cli("pipeline", "replay-dead-letters", world.dead, "-b", world.bootstrap, "--to", world.orders)
    assert (status, out.splitlines()[-1]) == (0, f"{world.dead}: 1 sent, 5 sent before")


def test_a_call_that_dies_in_the_middle_has_sent_nothing_of_it(world: World) -> None:
    """It leaves a transaction open, with letters in it but not its end; the next call aborts it and sends all."""
    world.bury(*range(6))
    dying = Producer(world.bootstrap, transactional_id=f"penstock-replay-{world.dead}")
    letters = DeadLetterTopic(world.bootstrap, world.dead)
    transaction = dying.transaction()
    transaction.__enter__()
    dying.send(world.orders, b"0").result()

    assert sum(letters.replay(Selection()).chosen.values()) == 6

    with pytest.raises(Fenced):
        transaction.__exit__(None, None, None)
    dying.close()
    assert world.numbers() == [0, 1, 2, 3, 4, 5]
    assert sum(DeadLetterTopic(world.bootstrap, world.dead).replay(Selection()).chosen.values()) == 0


def test_what_cannot_be_replayed_is_told_in_one_line(world: World, cli: CommandLine) -> None:
    def refused(*arguments: str) -> str:
        status, _, err = cli("pipeline", "replay-dead-letters", *arguments, "-b", world.bootstrap)
        assert status == 1
        return err

    assert "there is no topic 'nowhere.dead': no record has died" in refused("nowhere.dead")
    assert "--env and --set are for files" in refused(world.dead, "--env", "prod")
    assert "missing.yaml: No such file" in refused("missing.yaml")
    world.bury(1, topic="gone")
    assert "there is no topic 'gone' to send letters to" in refused(world.dead)
    assert "there is no topic 'gone'" in refused(world.dead, "--dry-run")


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_calls_that_are_killed_again_and_again(world: World) -> None:
    """Each is killed a little later than the one before, so that some die in the middle of a transaction."""
    letters = 20_000
    world.bury(*range(letters))
    command = [sys.executable, "-m", "penstock", "pipeline", "replay-dead-letters", world.dead, "-b", world.bootstrap]
    killed, patience = 0, 0.5
    while True:
        running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            out, _ = running.communicate(timeout=patience)
            break
        except subprocess.TimeoutExpired:
            running.kill()
            running.communicate()
            killed, patience = killed + 1, patience * 1.1

    assert running.returncode == 0, out
    print(f"{killed} were killed, {out.splitlines()[-1]}")
    assert world.numbers() == list(range(letters))


@pytest.mark.timeout(600)
def test_letters_are_shown_by_reason_with_a_sample(world: World, cli: CommandLine) -> None:
    world.bury(*range(3))
    world.bury(3, 4, reason="amount is not DOUBLE", field="amount", offset="17")
    world.bury(5, reason="no customer", pipeline="other")
    cli("pipeline", "replay-dead-letters", world.dead, "-b", world.bootstrap, "--reason", "JSON", "--limit", "1")

    def call(*options: str) -> dict[str, Any]:
        status, out, err = cli("pipeline", "dead-letters", world.dead, "-b", world.bootstrap, "--json", *options)
        assert status == 0, err
        return expect(dict, json.loads(out))

    causes = call("--sample", "2")["causes"]
    told = [(each["letters"], each["replayed"], each["field"], each["reason"]) for each in causes]
    assert told == [(3, 1, None, "not JSON"), (2, 0, "amount", "amount is not DOUBLE"), (1, 0, None, "no customer")]
    assert {each["value"] for each in causes[1]["samples"]} == {"3", "4"}
    assert causes[1]["samples"][0]["origin"] == f"{world.orders}-1 at offset 17"
    assert [each["letters"] for each in call("--reason", "double")["causes"]] == [2]
    assert sum(each["letters"] for each in call("--last", "1")["causes"]) <= 2

    status, out, _ = cli("pipeline", "dead-letters", world.dead, "-b", world.bootstrap)
    lines = out.splitlines()
    assert (status, lines[0].split()[:2], lines[2].split()[:4]) == (
        0,
        ["LETTERS", "REPLAYED"],
        ["2", "0", "shop", world.orders],
    )
    assert lines[-1] == f"{world.dead}: 6 dead letters"
    status, _, err = cli("pipeline", "dead-letters", f"{world.dead}-not", "-b", world.bootstrap)
    assert (status, "there is no topic" in err) == (1, True)
