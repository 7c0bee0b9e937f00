"""The demo's workload: four topics of events, the pipelines that read them, the topics these write, and the events.

Each event has a key and, for that key, a sequence that counts up from 0. Every pipeline forwards each of its events,
with something added, to a topic of its own, so that what went in can be counted against what came out.

The events are those of `penstock.demo.events`, of today and without poison (the demo has its own, on a key). Log lines
are wrapped in JSON, as a log shipper sends them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import NamedTuple

from penstock.demo import events

PARTITIONS = 3
TRUCKS = 24
USERS = 60
DISORDER_MS = 2000

# Of ten events five are from trucks, three from people and two from services.
_TURNS = ("fleet", "activity", "fleet", "logs", "fleet", "activity", "fleet", "logs", "fleet", "activity")


@dataclass(frozen=True, slots=True)
class EventTopic:
    name: str
    key: str
    """The field of the event that is the record's key."""
    group: str
    """The consumer group that reads it."""
    pipeline: str
    output: str
    """The topic to which the pipeline forwards the events."""


EVENT_TOPICS = (
    EventTopic("truck-locations", "truck", "dispatchers", "fleet", "fleet.locations"),
    EventTopic("truck-fuel", "truck", "dispatchers", "fleet", "fleet.fuel"),
    EventTopic("page-views", "user", "shop-desk", "shop", "shop.views"),
    EventTopic("shop-logs", "service", "shop-desk", "shop", "shop.logs"),
)
PIPELINES = ("fleet", "shop")
GROUPS = ("dispatchers", "shop-desk")
REPORTS = {"fleet": "fleet.report", "shop": "shop.report"}
DEAD_LETTERS = {"fleet": "fleet.dead-letters", "shop": "shop.dead-letters"}
BY_NAME = {topic.name: topic for topic in EVENT_TOPICS}
BY_OUTPUT = {topic.output: topic for topic in EVENT_TOPICS}
TOPICS = (*BY_NAME, *BY_OUTPUT, *REPORTS.values(), *DEAD_LETTERS.values())


def topics_of(pipeline: str) -> tuple[str, ...]:
    return tuple(topic.name for topic in EVENT_TOPICS if topic.pipeline == pipeline)


def pipeline_file(pipeline: str) -> str:
    return os.path.join(os.path.dirname(__file__), "pipelines", f"{pipeline}.yaml")


class EventId(NamedTuple):
    topic: str
    key: str
    sequence: int


def demo_events(start_ms: int, rate: float, seed: int = 7) -> Iterator[tuple[EventId, bytes]]:
    """Endless, at `rate` events per second of their own time."""
    sequences: dict[tuple[str, str], int] = {}
    streams = {
        name: events.STREAMS[name](
            events.Stream(
                seed=seed,
                start_ms=start_ms,
                step_ms=1000 * len(_TURNS) / _TURNS.count(name) / rate,
                disorder_ms=DISORDER_MS,
                late=0.0,
                poison=0.0,
                keys=TRUCKS if name == "fleet" else USERS,
            )
        )
        for name in dict.fromkeys(_TURNS)
    }
    for name in cycle(_TURNS):
        event = next(streams[name])
        assert event.key is not None and event.value is not None
        key = event.key.decode()
        topic = "shop-logs" if name == "logs" else event.topic
        sequence = sequences.get((topic, key), 0)
        sequences[topic, key] = sequence + 1
        yield EventId(topic, key, sequence), _numbered(name, key, event.value, sequence)


def _numbered(name: str, key: str, value: bytes, sequence: int) -> bytes:
    if name == "logs":
        return json.dumps({"service": key, "line": value.decode(), "sequence": sequence}).encode()
    return b'%s, "sequence": %d}' % (value.removesuffix(b"}"), sequence)
