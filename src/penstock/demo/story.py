"""The events of the demo: trucks that drive and burn fuel, people in a web shop, the logs of its services.

They are the events of `penstock.demo.events`, of today and without poison (the demo has its own, on a key), each with
a sequence that counts up for its topic and key. The lines of logs come as a log shipper sends them, in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import cycle
from typing import NamedTuple

from penstock.demo import events

TRUCKS = 24
USERS = 60
DISORDER_MS = 2000

# Of ten events five are of trucks, three of people and two of services.
_TURNS = ("fleet", "activity", "fleet", "logs", "fleet", "activity", "fleet", "logs", "fleet", "activity")


class Event(NamedTuple):
    topic: str
    key: str
    sequence: int
    value: bytes


def story(start_ms: int, rate: float, seed: int = 7) -> Iterator[Event]:
    """Endless, for so many events a second."""
    sequences: dict[tuple[str, str], int] = {}
    tellers = {
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
        event = next(tellers[name])
        assert event.key is not None and event.value is not None
        key = event.key.decode()
        topic = "shop-logs" if name == "logs" else event.topic
        sequence = sequences.get((topic, key), 0)
        sequences[topic, key] = sequence + 1
        yield Event(topic, key, sequence, _numbered(name, key, event.value, sequence))


def _numbered(name: str, key: str, value: bytes, sequence: int) -> bytes:
    if name == "logs":
        return json.dumps({"service": key, "line": value.decode(), "sequence": sequence}).encode()
    return b'%s, "sequence": %d}' % (value.removesuffix(b"}"), sequence)
