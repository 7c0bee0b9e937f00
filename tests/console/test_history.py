"""Lag and rates over time: down-sampled, bounded, kept from one start to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.console import history as history_module
from penstock.console.history import RESOLUTIONS_S, History


def test_points_are_kept_in_the_finest_resolution_that_reaches_back(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "history.sqlite")
    history = History(path)
    begin = 1_700_000_000_000
    for second in range(0, 600, 2):
        history.add("c", begin + second * 1000, {("lag", "billing"): second})
    fine = history.read("c", "lag", "billing", begin)
    assert len(fine) == pytest.approx(60, abs=1)
    assert fine[-1][1] == pytest.approx(594, abs=1)
    assert history.read("c", "lag", "billing", begin, peak=True)[-1][1] == 598
    coarse = history.read("c", "lag", "billing", begin - 24 * 3600 * 1000)
    assert len(coarse) == pytest.approx(10, abs=1)
    assert history.read("c", "lag", "nobody", begin) == []
    assert history.read("other", "lag", "billing", begin) == []
    history.close()
    again = History(path)
    assert again.read("c", "lag", "billing", begin) == fine
    again.close()


def test_old_points_go_and_the_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "SERIES_MAX", 10)
    monkeypatch.setattr(history_module, "_TRIM_EVERY", 2)
    history = History(":memory:")
    day_ms = 86_400_000
    assert history.add("c", day_ms, {("lag", str(index)): 1.0 for index in range(12)}) == 2
    assert history.rows() == 10 * len(RESOLUTIONS_S)
    for day in range(2, 60):
        history.add("c", day * day_ms, {("lag", "0"): 1.0})
    assert history.rows() <= 32 + 4 + 2
    assert history.add("c", 60 * day_ms, {("lag", "new"): 1.0}) == 0
    history.close()
