"""The demo's verdict: it counts what it claims to count."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.demo.ledger import EventSet, Ledger
from penstock.demo.workload import EventId

EVENTS = st.builds(EventId, st.sampled_from(["a", "b"]), st.sampled_from(["k", "l"]), st.integers(0, 5))


@given(st.lists(EVENTS), st.lists(EVENTS), st.lists(EVENTS), st.sets(EVENTS))
def test_a_verdict_is_that_of_sets(
    acknowledged: list[EventId], topics: list[EventId], forwarded: list[EventId], letters: set[EventId]
) -> None:
    ledger = Ledger({"pipeline": ("a",)})
    for event in acknowledged:
        ledger.acknowledged.add(event)
    for event in topics:
        ledger.topics.see(event)
    for event in forwarded:
        ledger.outputs["pipeline"].see(event)
    for event in letters:
        ledger.dead_letters.add(event)
    of_topics, of_pipeline = ledger.verdicts()
    assert set(of_topics.missing) == set(acknowledged) - set(topics)
    assert of_topics.expected == len(set(acknowledged))
    assert of_topics.doubled == sum(count - 1 for count in Counter(topics).values())
    mine = {event for event in acknowledged if event.topic == "a"}
    assert set(of_pipeline.missing) == mine - set(forwarded) - letters
    assert of_pipeline.expected == len(mine)
    assert of_pipeline.arrived == len(mine & set(forwarded))
    assert of_pipeline.dead_letters == len(mine & letters - set(forwarded))
    assert of_pipeline.doubled == len(forwarded) - len(set(forwarded))
    assert of_pipeline.is_good == (not of_pipeline.missing and not of_pipeline.doubled)
    assert ledger.verdicts(pipelines=False) == [of_topics]


def test_a_pipeline_is_behind_by_what_is_neither_out_nor_a_dead_letter() -> None:
    ledger = Ledger({"pipeline": ("a",)})
    for sequence in range(10):
        ledger.acknowledged.add(EventId("a", "k", sequence))
        ledger.acknowledged.add(EventId("b", "k", sequence))
    for sequence in range(4):
        ledger.outputs["pipeline"].see(EventId("a", "k", sequence))
    ledger.dead_letters.add(EventId("a", "k", 9))
    assert ledger.lag("pipeline") == 5


@given(st.lists(st.tuples(st.booleans(), EVENTS)))
def test_an_event_set_is_a_set(steps: list[tuple[bool, EventId]]) -> None:
    events, model = EventSet(), set[EventId]()
    for adds, event in steps:
        if adds:
            assert events.add(event) == (event not in model)
            model.add(event)
        else:
            events.discard(event)
            model.discard(event)
        assert len(events) == len(model)
        assert (event in events) == (event in model)
    assert events.of_topic("a") == sum(event.topic == "a" for event in model)


def test_an_offset_that_is_read_again_counts_once() -> None:
    output = Ledger({}).topics
    assert output.is_new("a", 0, 0)
    assert output.is_new("a", 0, 4)
    assert not output.is_new("a", 0, 4)
    assert not output.is_new("a", 0, 1)
    assert output.is_new("a", 1, 1)


def test_a_bad_verdict_names_what_is_missing() -> None:
    ledger = Ledger({})
    ledger.acknowledged.add(EventId("a", "truck-1", 0))
    ledger.acknowledged.add(EventId("a", "truck-1", 1))
    ledger.topics.see(EventId("a", "truck-1", 0))
    ledger.topics.see(EventId("a", "truck-1", 0))
    (verdict,) = ledger.verdicts()
    assert verdict.text == "1 of 2 are missing, first truck-1 #1 of a; 1 came more than once"
