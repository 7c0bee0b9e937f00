"""What happened between two samples: brokers gone and back, leaders, in-sync replicas, topics, groups.

A broker that dies moves the leaders of hundreds of partitions: changes of one kind become one event, which counts them
and names some. What happens and is undone between two samples is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.console.views.sample import Sample
from penstock.model.ids import TopicPartition

Severity = Literal["good", "bad", "warn", ""]

NAMED_MAX = 5
EVENTS_MAX = 60
"""Of one sample; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Happening:
    kind: str
    """broker, controller, leader, isr, topic, group, cluster."""
    text: str
    severity: Severity = ""
    topic: str = ""
    """The topic it is about, if it is about one alone."""
    group: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    at_ms: int
    happening: Happening


def happenings(before: Sample, now: Sample) -> list[Happening]:
    found = [
        *_brokers(before, now),
        *_controller(before, now),
        *_partitions(before, now),
        *_topics(before, now),
        *_groups(before, now),
    ]
    if len(found) <= EVENTS_MAX:
        return found
    return [*found[: EVENTS_MAX - 1], Happening("cluster", f"and {len(found) - EVENTS_MAX + 1} more changes")]


def _up(sample: Sample) -> set[int]:
    return {broker.broker_id for broker in sample.cluster.brokers if not broker.fenced}


def _brokers(before: Sample, now: Sample) -> Iterator[Happening]:
    earlier, later = _up(before), _up(now)
    known = {broker.broker_id for broker in before.cluster.brokers} | {
        replica for topic in before.topics.values() for each in topic.partitions for replica in each.replicas
    }
    for broker_id in sorted(earlier - later):
        yield Happening("broker", f"broker {broker_id} is gone", "bad")
    for broker_id in sorted(later - earlier):
        yield Happening("broker", f"broker {broker_id} is {'back' if broker_id in known else 'new'}", "good")


def _controller(before: Sample, now: Sample) -> Iterator[Happening]:
    if before.cluster.quorum is None or now.cluster.quorum is None:
        return
    earlier, later = before.cluster.quorum.leader_id, now.cluster.quorum.leader_id
    if earlier != later:
        yield Happening("controller", f"the active controller is {later}; it was {earlier}", "warn")


def _partitions(before: Sample, now: Sample) -> Iterator[Happening]:
    """Of topics that were there before."""
    leaders: dict[tuple[int | None, int | None], list[TopicPartition]] = {}
    shrunk: dict[tuple[int, ...], list[TopicPartition]] = {}
    grown: dict[tuple[int, ...], list[TopicPartition]] = {}
    for name, topic in now.topics.items():
        earlier_topic = before.topics.get(name)
        if earlier_topic is None or earlier_topic is topic or earlier_topic.topic_id != topic.topic_id:
            continue
        earlier_partitions = {each.partition: each for each in earlier_topic.partitions}
        for partition in topic.partitions:
            earlier = earlier_partitions.get(partition.partition)
            if earlier is None or earlier == partition:
                continue
            place = TopicPartition(name, partition.partition)
            if earlier.leader != partition.leader:
                leaders.setdefault((earlier.leader, partition.leader), []).append(place)
            lost = tuple(sorted(set(earlier.isr) - set(partition.isr)))
            won = tuple(sorted(set(partition.isr) - set(earlier.isr)))
            if lost:
                shrunk.setdefault(lost, []).append(place)
            if won:
                grown.setdefault(won, []).append(place)
    for (old, new), places in leaders.items():
        if new is None:
            text, severity = f"{_count(places)} without a leader; it was {old}", "bad"
        else:
            was = "there was none" if old is None else f"it was {old}"
            text, severity = f"{_count(places)} led by {new}; {was}", "good" if old is None else "warn"
        yield Happening("leader", f"{text}: {_names(places)}", _severity(severity), _alone(places))
    for brokers, places in shrunk.items():
        text = f"{_ids(brokers)} out of sync in {_plural(len(places), 'partition')}: {_names(places)}"
        yield Happening("isr", text, "bad", _alone(places))
    for brokers, places in grown.items():
        text = f"{_ids(brokers)} in sync in {_plural(len(places), 'partition')}: {_names(places)}"
        yield Happening("isr", text, "good", _alone(places))


def _topics(before: Sample, now: Sample) -> Iterator[Happening]:
    yield from _named("topic", "created", [name for name in now.topics if name not in before.topics])
    yield from _named("topic", "deleted", [name for name in before.topics if name not in now.topics], "warn")
    for name, topic in now.topics.items():
        earlier = before.topics.get(name)
        if earlier is None or earlier is topic:
            continue
        if earlier.topic_id != topic.topic_id:
            yield Happening("topic", f"topic {name} was deleted and created again", "warn", name)
        elif len(earlier.partitions) < len(topic.partitions):
            grown = f"{len(topic.partitions)} partitions; it had {len(earlier.partitions)}"
            yield Happening("topic", f"topic {name} has {grown}", "", name)


def _groups(before: Sample, now: Sample) -> Iterator[Happening]:
    if any(note.startswith("groups:") for note in (*before.notes, *now.notes)):
        return  # they could not be observed
    yield from _named("group", "new", [name for name in now.groups if name not in before.groups])
    yield from _named("group", "gone", [name for name in before.groups if name not in now.groups], "warn")
    for name, group in now.groups.items():
        if name not in before.groups:
            continue
        earlier, later = before.groups[name].description, group.description
        if earlier.state != later.state:
            severity: Severity = "good" if later.state == "Stable" else "warn" if later.state != "Empty" else ""
            text = f"group {name} is {later.state}; it was {earlier.state}"
            yield Happening("group", text, severity, group=name)
        elif len(earlier.members) != len(later.members):
            text = f"group {name} has {_plural(len(later.members), 'member')}; it had {len(earlier.members)}"
            yield Happening("group", text, group=name)


def _named(kind: str, what: str, names: Sequence[str], severity: Severity = "") -> Iterator[Happening]:
    """Few have an event each; many have one together."""
    if len(names) <= NAMED_MAX:
        for name in names:
            about: Mapping[str, str] = {kind: name} if what not in ("deleted", "gone") else {}
            yield Happening(kind, f"{kind} {name} is {what}", severity, about.get("topic", ""), about.get("group", ""))
    else:
        yield Happening(kind, f"{len(names):,} {kind}s are {what}: {_names(names)}", severity)


def _severity(text: str) -> Severity:
    return "bad" if text == "bad" else "good" if text == "good" else "warn"


def _alone(places: Sequence[TopicPartition]) -> str:
    return places[0].topic if len({place.topic for place in places}) == 1 else ""


def _count(places: Sequence[TopicPartition]) -> str:
    return f"{_plural(len(places), 'partition')} {'is' if len(places) == 1 else 'are'}"


def _ids(brokers: Sequence[int]) -> str:
    return f"broker {brokers[0]} is" if len(brokers) == 1 else f"brokers {', '.join(map(str, brokers))} are"


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _names(things: Iterable[object]) -> str:
    names = [str(thing) for thing in things]
    more = f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
