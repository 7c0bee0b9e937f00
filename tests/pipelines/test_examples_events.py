"""The events of the examples: the same for the same seed, and as untidy as they say."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from penstock.demo.events import HOUR_MS, STREAMS, Event, Stream
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.spec.model import TopicSource

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
COUNT = 4000


def some(name: str, **settings: float) -> list[Event]:
    stream = Stream(**{"step_ms": 12 * HOUR_MS / COUNT, **settings})  # type: ignore[arg-type]
    return list(islice(STREAMS[name](stream), COUNT))


def test_each_example_has_its_events() -> None:
    assert sorted(STREAMS) == sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
    for name in STREAMS:
        sources = load_checked(str(EXAMPLES / f"{name}.yaml"))[0].pipeline.sources.values()
        read = {topic for source in sources if isinstance(source, TopicSource) for topic in source.topic}
        assert {event.topic for event in some(name)} <= read


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_events_are_the_same_for_the_same_seed(name: str) -> None:
    assert some(name) == some(name)
    assert some(name) != some(name, seed=2)


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_keys_are_skewed_and_some_events_late_or_poison(name: str) -> None:
    events = some(name, late=0.05, poison=0.05)

    (_, most), *_, (_, least) = Counter(event.key for event in events).most_common()
    assert most > 3 * least
    latest = 0
    ages = []
    for event in events:
        ages.append(latest - event.timestamp_ms)
        latest = max(latest, event.timestamp_ms)
    late = [age for age in ages if age > HOUR_MS]
    assert 0.01 * COUNT < len(late) < 0.05 * COUNT
    assert min(late) > 2.9 * HOUR_MS
    assert max(age for age in ages if age <= HOUR_MS) < 300_000
    assert events[0].timestamp_ms < events[-1].timestamp_ms
    assert 0.02 * COUNT < sum(event.value in (b"poison", b"", None) for event in events) < 0.05 * COUNT
    assert None not in {event.value for event in some(name, poison=0.0)}
