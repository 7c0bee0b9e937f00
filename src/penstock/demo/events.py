"""Generators of event streams as companies have them: deterministic, endless, and as untidy as real ones.

    for event in islice(fleet(Stream(seed=7)), 1000):
        producer.produce(event.topic, event.value, key=event.key, timestamp=event.timestamp_ms)

The same `Stream` always gives the same events. Keys are skewed: the first of a hundred has a fifth of all events. Times
advance in equal steps, a little out of order. Some events are hours late, so that every window they belong to is
closed; no event is late before the stream is older than `late_ms_max`. Some are poison, which no schema fits. The time
of an event is also the timestamp of its record.

The examples in examples/pipelines read these topics: `STREAMS` has the function for each of them. Only the standard
library is used here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import NamedTuple, TypeVar

HOUR_MS = 3_600_000
START_MS = int(datetime(2026, 5, 1, 6, tzinfo=UTC).timestamp() * 1000)

Choice = TypeVar("Choice")

_SKEWED_CHOICES_MIN = 4096
_POISON = (b"poison", b"", b"\xff\xfe\x00", b'{"broken": true}', None)
_BEGINNING_BYTES = 10
"""The length of a truncated value: too short for any format."""


class Event(NamedTuple):
    """The content of a record."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The parameters of a stream. `Stream(start_ms=now, step_ms=10)` keeps pace with the clock."""

    seed: int = 1
    start_ms: int = START_MS
    step_ms: float = 10.0
    """Between one event and the next."""
    disorder_ms: int = 60_000
    """The time of an event is at most this much before the time of its step,"""
    late: float = 0.01
    """except for this part of all events, which is late by `late_ms_min` to `late_ms_max`."""
    late_ms_min: int = 3 * HOUR_MS
    late_ms_max: int = 5 * HOUR_MS
    poison: float = 0.001
    keys: int = 100
    """Users, hosts, trucks, ..."""


def page_views(stream: Stream) -> Iterator[Event]:
    """`page-views`: what users look at in a shop."""
    random = Random(stream.seed)
    user = _skewed(random, [f"user-{number}" for number in range(stream.keys)])
    page = _skewed(random, ["/", "/shoes", "/search", "/hats", "/checkout/pay", "/account", "/help"])
    for at in _times(stream, random):
        who = user()
        value = f'{{"user": "{who}", "page": "{page()}", "at": "{_iso(at)}"}}'
        yield _event(stream, random, "page-views", who, value, at)


def measurements(stream: Stream) -> Iterator[Event]:
    """`measurements`: metrics of hosts, in quarters, so that sums are exact in any order."""
    random = Random(stream.seed)
    host = _skewed(random, [f"host-{number}" for number in range(stream.keys)])
    metric = _skewed(random, ["cpu", "memory", "requests", "errors"])
    for at in _times(stream, random):
        where = host()
        measured = int(random.random() * 400) / 4
        value = f'{{"host": "{where}", "metric": "{metric()}", "value": {measured}, "at": "{_iso(at)}"}}'
        yield _event(stream, random, "measurements", where, value, at)


_MESSAGES = {
    "ERROR": ["payment {} failed: timeout", "no route to warehouse {}", "order {} not found", "cart {} is stale"],
    "WARN": ["request {} took long", "retry {} of 5"],
    "INFO": ["served request {}", "order {} stored", "cache holds {} entries"],
}


def log_lines(stream: Stream) -> Iterator[Event]:
    """`logs`: lines of services, `time LEVEL service text`."""
    random = Random(stream.seed)
    service = _skewed(random, ["checkout", "search", "stock", "mail", "login"])
    level = _skewed(random, ["INFO", "WARN", "ERROR"])
    text = {each: _skewed(random, texts) for each, texts in _MESSAGES.items()}
    for at in _times(stream, random):
        who, kind = service(), level()
        value = f"{_iso(at)} {kind} {who} {text[kind]().format(random.randrange(100_000))}"
        yield _event(stream, random, "logs", who, value, at)


_SETS_OFF = 60


@dataclass(slots=True)
class _Truck:
    name: str
    latitude: float
    longitude: float
    heading: float
    speed: int = 0
    litres: float = 300.0


def fleet(stream: Stream) -> Iterator[Event]:
    """`truck-locations` and `truck-fuel`: where trucks are and how much fuel they have. Now and then fuel is
    stolen from a truck that is parked."""
    random = Random(stream.seed)
    trucks = [
        _Truck(f"truck-{number}", 48 + 5 * random.random(), 7 + 6 * random.random(), math.tau * random.random())
        for number in range(stream.keys)
    ]
    truck = _skewed(random, trucks)
    for at in _times(stream, random):
        one = truck()
        if random.random() < 0.7:
            value = _location(one, random, at)
            yield _event(stream, random, "truck-locations", one.name, value, at)
        else:
            value = _fuel(one, random, at)
            yield _event(stream, random, "truck-fuel", one.name, value, at)


def _location(truck: _Truck, random: Random, at: int) -> str:
    truck.speed = (
        0 if random.random() < 0.2 else min(90, max(20, (truck.speed or _SETS_OFF) + int(random.random() * 21) - 10))
    )
    truck.heading += random.random() - 0.5
    truck.latitude = min(55.0, max(46.0, truck.latitude + math.cos(truck.heading) * truck.speed / 100_000))
    truck.longitude = min(15.0, max(5.0, truck.longitude + math.sin(truck.heading) * truck.speed / 100_000))
    place = f'"latitude": {truck.latitude:.5f}, "longitude": {truck.longitude:.5f}'
    return f'{{"truck": "{truck.name}", {place}, "speed": {truck.speed}, "at": "{_iso(at)}"}}'


def _fuel(truck: _Truck, random: Random, at: int) -> str:
    if truck.litres < 60:
        truck.litres = 400.0
    elif truck.speed == 0 and random.random() < 0.01:
        truck.litres -= 50
    elif truck.speed > 0:
        truck.litres -= 0.25
    return f'{{"truck": "{truck.name}", "litres": {truck.litres}, "at": "{_iso(at)}"}}'


def orders(stream: Stream) -> Iterator[Event]:
    """`orders.web`, `orders.stores` and `orders.partners`: the same business in three formats. Partners send lines
    of `partner;number;cents`, and some of them twice."""
    random = Random(stream.seed)
    customer = _skewed(random, [f"customer-{number}" for number in range(stream.keys)])
    store = _skewed(random, [f"store-{number}" for number in range(max(1, stream.keys // 10))])
    partner = _skewed(random, ["alpha", "beta", "gamma"])
    again: Event | None = None
    for number, at in enumerate(_times(stream, random)):
        cents, kind = 100 + int(random.random() * 20_000), random.random()
        if kind < 0.5:
            who = customer()
            value = f'{{"id": {number}, "customer": "{who}", "amount": {cents / 100}, "at": "{_iso(at)}"}}'
            yield _event(stream, random, "orders.web", who, value, at)
        elif kind < 0.8:
            where = store()
            value = f'{{"store": "{where}", "receipt": {number}, "cents": {cents}, "sold_at": "{_iso(at)}"}}'
            yield _event(stream, random, "orders.stores", where, value, at)
        elif again is not None and random.random() < 0.05:
            yield again
            again = None
        else:
            who = partner()
            event = _event(stream, random, "orders.partners", who, f"{who};{number};{cents}", at)
            again = event if event.value is not None and b";" in event.value else None
            yield event


def notifications(stream: Stream) -> Iterator[Event]:
    """`notifications`: to people, over the channels they chose; some of these do not exist."""
    random = Random(stream.seed)
    person = _skewed(random, [f"person-{number}" for number in range(stream.keys)])
    channel = _skewed(random, ["mail"] * 3 + ["push", "sms", " SMS ", "pigeon"])
    for number, at in enumerate(_times(stream, random)):
        who, way = person(), channel()
        recipient = f"{who}@example.org" if way == "mail" else who
        urgent = ', "urgent": true' if random.random() < 0.05 else ""
        value = f'{{"id": {number}, "channel": "{way}", "recipient": "{recipient}", "text": "hello {number}"{urgent}}}'
        yield _event(stream, random, "notifications", who, value, at)


STREAMS: dict[str, Callable[[Stream], Iterator[Event]]] = {
    "activity": page_views,
    "feeds": orders,
    "fleet": fleet,
    "lake": page_views,
    "logs": log_lines,
    "metrics": measurements,
    "routing": notifications,
}
"""By the name of the example that reads them."""


def _skewed(random: Random, choices: list[Choice]) -> Callable[[], Choice]:
    """Draws one of the choices; the n-th is n times less likely than the first."""
    size = max(_SKEWED_CHOICES_MIN, 4 * len(choices))
    table = random.choices(choices, [1 / rank for rank in range(1, len(choices) + 1)], k=size)
    chance = random.random
    return lambda: table[int(chance() * size)]


def _times(stream: Stream, random: Random) -> Iterator[int]:
    late_from = stream.start_ms + stream.late_ms_max
    for number in count():
        now = stream.start_ms + int(number * stream.step_ms)
        if random.random() < stream.late and now >= late_from:
            yield now - random.randrange(stream.late_ms_min, stream.late_ms_max)
        else:
            yield now - int(random.random() * stream.disorder_ms)


def _event(stream: Stream, random: Random, topic: str, key: str, value: str, at: int) -> Event:
    data: bytes | None = value.encode()
    if random.random() < stream.poison:
        data = random.choice((*_POISON, value[:_BEGINNING_BYTES].encode()))
    return Event(topic, key.encode(), data, at)


def _iso(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"
