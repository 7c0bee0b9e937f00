"""What happened between two samples, and how long it is remembered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from penstock.client.wire.admin.cluster import BrokerDescription, ClusterDescription
from penstock.client.wire.admin.group_members import GroupDescription
from penstock.client.wire.admin.topics import PartitionDescription, TopicDescription
from penstock.console.history import EVENTS_KEPT_S, EVENTS_MAX, History
from penstock.console.pages.overview import events
from penstock.console.views.events import EVENTS_MAX as OF_ONE_SAMPLE
from penstock.console.views.events import Event, Happening, happenings
from penstock.console.views.sample import GroupSeen, Sample


def topic(name: str, *partitions: tuple[int | None, tuple[int, ...]], topic_id: str = "id") -> TopicDescription:
    return TopicDescription(
        name,
        topic_id,
        False,
        tuple(PartitionDescription(i, leader, 1, (1, 2, 3), isr, ()) for i, (leader, isr) in enumerate(partitions)),
    )


def group(name: str, state: str) -> tuple[str, GroupSeen]:
    return name, GroupSeen(GroupDescription(name, "classic", state, "consumer", "range", 1, None, None, ()), ())


def sample(
    *topics: TopicDescription, up: tuple[int, ...] = (1, 2, 3), groups: tuple[tuple[str, GroupSeen], ...] = ()
) -> Sample:
    brokers = tuple(BrokerDescription(each, "h", 9092, None, fenced=each not in up) for each in (1, 2, 3))
    cluster = ClusterDescription("c", 1, brokers, None, 0, 0, (), ())
    return Sample(number=1, at_ms=0, cluster=cluster, topics={each.name: each for each in topics}, groups=dict(groups))


ALL = (1, (1, 2, 3))


def told(before: Sample, now: Sample) -> list[tuple[str, str]]:
    return [(each.severity, each.text) for each in happenings(before, now)]


def test_a_broker_dies_and_comes_back() -> None:
    whole = sample(topic("a", ALL, ALL), topic("b", ALL))
    without = sample(topic("a", (2, (2, 3)), (None, ())), topic("b", (2, (2, 3))), up=(2, 3))
    assert told(whole, without) == [
        ("bad", "broker 1 is gone"),
        ("warn", "2 partitions are led by 2; it was 1: a-0, b-0"),
        ("bad", "1 partition is without a leader; it was 1: a-1"),
        ("bad", "broker 1 is out of sync in 2 partitions: a-0, b-0"),
        ("bad", "brokers 1, 2, 3 are out of sync in 1 partition: a-1"),
    ]
    assert told(without, whole)[0] == ("good", "broker 1 is back")
    assert ("good", "1 partition is led by 1; there was none: a-1") in told(without, whole)
    assert ("good", "broker 1 is in sync in 2 partitions: a-0, b-0") in told(without, whole)
    assert told(whole, whole) == []


def test_topics_come_and_go() -> None:
    before = sample(topic("a", ALL), topic("old", ALL), topic("again", ALL))
    now = sample(topic("a", ALL, ALL), topic("new", ALL), topic("again", ALL, topic_id="other"))
    assert told(before, now) == [
        ("", "topic new is created"),
        ("warn", "topic old is deleted"),
        ("", "topic a has 2 partitions; it had 1"),
        ("warn", "topic again was deleted and created again"),
    ]
    assert [each.topic for each in happenings(before, now)] == ["new", "", "a", "again"]
    many = sample(*(topic(f"t{index}", ALL) for index in range(5000)))
    assert told(sample(), many) == [("", "5,000 topics are created: t0, t1, t2, t3, t4 and 4,995 more")]


def test_groups_change_and_what_was_not_observed_is_no_event() -> None:
    before = sample(groups=(group("a", "Stable"), group("b", "Empty")))
    now = sample(groups=(group("a", "PreparingRebalance"), group("c", "Stable")))
    assert told(before, now) == [
        ("", "group c is new"),
        ("warn", "group b is gone"),
        ("warn", "group a is PreparingRebalance; it was Stable"),
    ]
    assert told(before, replace(sample(), notes=("groups: timed out",))) == []


def test_one_sample_has_a_limited_number_of_events() -> None:
    states = [sample(groups=tuple(group(f"g{index}", state) for index in range(500))) for state in ("Stable", "Empty")]
    found = happenings(*states)
    assert len(found) == OF_ONE_SAMPLE
    assert found[-1].text == "and 441 more changes"


def test_events_are_kept_within_a_bound(tmp_path: Path) -> None:
    path = str(tmp_path / "history.sqlite")
    history = History(path)
    history.add_events("c", "ada", 5, [Happening("topic", "hers")])
    for first in range(0, EVENTS_MAX + 500, 100):
        history.add_events("c", None, first, [Happening("topic", str(first + each)) for each in range(100)])
    history.close()
    history = History(path)
    found = history.events("c", None, 10 * EVENTS_MAX)
    assert [event.happening.text for event in found] == [str(each) for each in range(EVENTS_MAX + 499, 499, -1)]
    assert [event.happening.text for event in history.events("c", "ada", 10)] == ["hers"]
    assert history.events("d", None, 10) == []
    history.add("c", (EVENTS_KEPT_S + 10) * 1000, {("lag", "g"): 1.0})
    assert history.events("c", "ada", 10) == []
    history.close()


def test_events_are_escaped_and_lead_somewhere() -> None:
    html = events([Event(0, Happening("group", "group <b> is new", "good", group="<b>"))])
    assert "<b>" not in html
    assert 'href="/group?name=%3Cb%3E"' in html
    assert "Nothing has happened." in events([])
