"""Two runs beside each other: what differs by less than the noise of both is not called a change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench import readers, replicated
from bench.compare import Verdict, changes, read_samples
from bench.loads import READER_LOADS, REPLICATED_LOADS
from bench.results import Row, Unit
from bench.subjects import PEER, PENSTOCK


def row(*samples: float, unit: Unit = "requests/s") -> Row:
    return Row("load", "a load", unit, samples={PENSTOCK: list(samples)})


@pytest.mark.parametrize(
    ("before", "now", "unit", "verdict"),
    [
        ((100, 110, 90), (120, 115, 130), "requests/s", "better"),
        ((100, 110, 90), (80, 75, 83), "requests/s", "worse"),
        ((100, 110, 90), (105, 100, 112), "requests/s", "within the noise"),
        ((100, 110, 90), (80, 75, 83), "ms", "better"),
        ((2.0, 2.1, 1.9), (3.0, 3.1, 2.9), "times", "worse"),
        ((100,), (200, 190, 210), "requests/s", "one round only"),
    ],
)
def test_verdicts(
    tmp_path: Path, before: tuple[float, ...], now: tuple[float, ...], unit: Unit, verdict: Verdict
) -> None:
    path = tmp_path / "before.json"
    path.write_text(json.dumps([row(*before, unit=unit).to_json()]))
    [change] = changes([row(*now, unit=unit)], read_samples(str(path)))
    assert change.verdict == verdict


def test_rows_that_one_run_lacks_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "before.json"
    path.write_text(json.dumps([row(1, 2).to_json()]))
    other = Row("other", "a load", "requests/s", samples={PENSTOCK: [1.0, 2.0]})
    assert changes([other], read_samples(str(path))) == []


def test_rows_of_readers_and_of_replicated_loads() -> None:
    load = next(load for load in READER_LOADS if load.name == "read-1MiB-older-4")
    samples = {
        readers.NOW: readers.Samples([150.0, 140.0], [5000.0, 5100.0]),
        readers.SENDFILE: readers.Samples([100.0, 100.0], [9000.0, 9000.0]),
        PEER: readers.Samples([300.0, 310.0], [2500.0, 2500.0]),
    }
    rate, to_sendfile = readers.rows({load.name: samples}, [load])
    assert rate.peer_ratio == pytest.approx(5050 / 2500)
    assert to_sendfile.result == pytest.approx(1.45)
    assert to_sendfile.met
    replicated_load = REPLICATED_LOADS[0]
    results = {
        replicated_load.name: {
            way.name: replicated.Samples([10.0 * way.replicas] * 2, [1.0, 1.0], [100.0, 100.0])
            for way in replicated.WAYS
        }
    }
    rows = replicated.rows(results, None, [replicated_load])
    assert [row.unit for row in rows] == ["requests/s", "requests/s", "times", "requests/s", "times"]
    assert (rows[-1].result, rows[-1].met) == (3.0, False)
