"""How recent the metadata image is, whatever the order of fetches, answers and replay."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.metadata.freshness import Freshness


def test_an_image_is_as_recent_as_the_fetch_whose_high_watermark_it_has_reached() -> None:
    freshness = Freshness()
    assert freshness.as_of(100) == -math.inf
    freshness.answered(1.0, 120, 100)
    assert freshness.as_of(119) == -math.inf
    assert freshness.as_of(120) == 1.0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_it_never_claims_more_than_is_so(steps: list[tuple[int, int]]) -> None:
    """Each step commits some records, fetches, and replays some of what is committed."""
    freshness, committed, image_end = Freshness(), 0, 0
    history: list[int] = []  # what was committed when each fetch was sent
    for moment, (more, replayed) in enumerate(steps):
        history.append(committed)
        committed += more
        freshness.answered(float(moment), committed, image_end)
        image_end = min(committed, image_end + replayed)
        as_of = freshness.as_of(image_end)
        if as_of >= 0:
            assert image_end >= history[int(as_of)]
        if image_end == committed:
            assert as_of == moment
