"""The programs in examples/ print what they should, each on a fresh broker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.testing.nodes import start_node

EXAMPLES = Path(__file__).parents[2] / "examples"

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A command on a broker of its own; what it prints."""
    with start_node(tmp_path / "node") as node:

        def command(*arguments: str, stdin: str = "") -> str:
            result = subprocess.run(
                [sys.executable, *arguments],
                input=stdin,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
                cwd=tmp_path,
                env={**os.environ, "PENSTOCK_BOOTSTRAP": node.bootstrap},
            )
            assert (result.returncode, result.stderr) == (0, ""), result.stderr
            return result.stdout

        yield command


def example(name: str) -> str:
    return str(EXAMPLES / f"{name}.py")


def test_every_example_is_tried() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    assert [path.stem for path in EXAMPLES.glob("*.py") if f'"{path.stem}"' not in here] == []


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("latest_value", ["prices ends at offset 4"]),
        ("trucks", ["truck-1 is at 52.89, 14.40", "truck-3 is at", "to be refuelled: truck-2 truck-3"]),
        ("work_queue", ["299 jobs done, 1 rejected"]),
        ("request_reply", ["apples cost 3.50\npears cost 4.00"]),
        ("avro_orders", ["alice ordered Order(item='apples', cents=350, currency='EUR')"]),
        ("dead_letters", ["booked Payment(account='carol', cents=100)", '{"account": "bob"} from payments-0-1']),
        ("arrow_tables", ["│ sensor-3 ┆ 99.9  │", "│ sensor-0 │   250 │          1 │"]),
    ],
)
def test_example(name: str, printed: list[str], run: Run) -> None:
    text = run(example(name))
    for part in printed:
        assert part in text


def test_a_key_has_one_partition(run: Run) -> None:
    lines = run(example("keyed_producer")).splitlines()
    first, _, last = (line.split() for line in lines)
    assert first[0] == last[0] == "alice"
    assert first[3] == last[3]


def test_counting_and_splitting_words(run: Run) -> None:
    run("-m", "penstock", "produce", "lines", stdin="to be or\nnot to be\n")
    assert run(example("word_count")) == "4 words counted\n"
    counts = run("-m", "penstock", "consume", "counts", "--from-beginning", "--exit", "--key-separator", " ")
    assert sorted(counts.splitlines()) == ["be 2", "not 1", "or 1", "to 2"]
    assert run(example("exactly_once")) == "6 words written\n"
    assert run(example("exactly_once")) == "0 words written\n"
    words = run("-m", "penstock", "consume", "words", "--from-beginning", "--exit", "--read-committed")
    assert sorted(words.split()) == ["be", "be", "not", "or", "to", "to"]


def test_a_users_tests() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", example("test_shop")],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert "2 passed" in result.stdout, result.stdout


@pytest.mark.soak
@pytest.mark.timeout(330)
def test_counting_with_spark(tmp_path: Path) -> None:
    with start_node(tmp_path / "node") as node:
        result = subprocess.run(
            [sys.executable, example("spark_counts")],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={**os.environ, "PENSTOCK_BOOTSTRAP": node.bootstrap},
        )
    assert result.returncode == 0, result.stderr
    assert "customer-0 12:00 10\n" in result.stdout
    assert "customer-1 12:03 10\n" in result.stdout
    assert "orders-a-minute terminated lag 0\n" in result.stdout
