"""What `bench.pipelines` reports of its samples."""

from __future__ import annotations

import re
from typing import Any

from bench.pipelines import is_held, rows_of
from bench.results import circumstances


def test_a_rate_that_was_not_sent_is_not_held() -> None:
    """The queries keep up with what little the generator sends: that says nothing about the nominal rate."""
    assert is_held(cell(20_000, sent=19_900))
    assert not is_held(cell(20_000, sent=19_500))
    assert not is_held(cell(20_000, sent=20_000, p99_s=5.1))
    assert not is_held(cell(20_000, sent=20_000, missing=1))


def test_the_report_says_when_the_generator_was_the_limit() -> None:
    samples = {
        "load": {"cells": [cell(100, sent=100), cell(20_000, sent=15_000)]},
        "highest": {"cells": [cell(20_000, sent=19_990), cell(40_000, sent=31_000)]},
    }
    assert [row[:2] for row in rows_of(samples)] == [
        ("1 queries, 100 events/s", "0.50 / 1.00 s"),
        ("1 queries, 20,000 events/s", "0.50 / 1.00 s, only 15,000/s sent"),
        ("1 queries, highest rate with p99 < 5 s", "20,000/s; the generator sent only 31,000 of 40,000/s"),
    ]


def test_a_highest_rate_that_the_queries_do_not_hold_is_their_limit() -> None:
    samples = {"highest": {"cells": [cell(20_000, sent=20_000), cell(40_000, sent=40_000, p99_s=9.0)]}}
    assert [row[1] for row in rows_of(samples)] == ["20,000/s"]


def test_a_further_file_is_a_difference_of_medians() -> None:
    """One slow round of the two must not become the cost of a file."""
    samples = {"commands": {"test, two tests": [12.0, 30.0, 10.0], "test, three files": [18.0, 16.0, 40.0]}}
    rows = {row[0]: row[1:] for row in rows_of(samples)}
    assert rows["test, each further file"] == ("3.00 s", "", "≤ 2 s")


def test_results_say_what_they_were_measured_on() -> None:
    found = circumstances()
    assert re.fullmatch("[0-9a-f]{12}( and changes)?|unknown", found["commit"])
    assert len(found["load_average"]) == 3


def cell(rate: int, sent: float, *, p99_s: float = 1.0, missing: int = 0) -> dict[str, Any]:
    return {"queries": 1, "rate": rate, "sent_a_second": sent, "p50_s": 0.5, "p99_s": p99_s, "missing": missing}
