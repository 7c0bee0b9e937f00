"""What clients sent last, as samples for Prometheus: bounded in number, and forgotten when the client falls silent.

`org.apache.kafka.producer.record.send.total` becomes `penstock_client_producer_record_send_total`. The labels are the
client's id, instance id, software and version, and the attributes that it sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from penstock.telemetry.otlp import Attributes, Point
from penstock.telemetry.subscriptions import Client

PREFIX: Final = "penstock_client_"
_KAFKA: Final = "org.apache.kafka."
_TOTAL: Final = "_total"

_OURS: Final = frozenset({"client_id", "client_instance_id", "client_software_name", "client_software_version"})
_forbidden: Final = re.compile(r"[^a-zA-Z0-9_]")


class Key(NamedTuple):
    name: str
    is_counter: bool
    labels: Attributes


class _Sent(NamedTuple):
    values: dict[Key, float]
    expires_ms: int


class ClientSamples:
    def __init__(self) -> None:
        self.left_out = 0
        """Data points that were not kept because there were too many."""
        self._sent: dict[str, _Sent] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, client: Client, points: Iterable[Point], now_ms: int, *, keep_ms: int, series_max: int) -> None:
        """Keep the points instead of the client's earlier ones."""
        self.expire(now_ms)
        earlier = self._forget(client.client_instance_id)
        labels = _labels_of(client)
        values: dict[Key, float] = {}
        for point in points:
            key = _key(point, labels)
            if key not in values and self._count + len(values) >= series_max:
                self.left_out += 1
                continue
            values[key] = point.value + (earlier.get(key, 0) if point.is_delta else 0)
        self._sent[client.client_instance_id] = _Sent(values, now_ms + keep_ms)
        self._count += len(values)

    def expire(self, now_ms: int) -> None:
        for instance_id in [each for each, sent in self._sent.items() if sent.expires_ms <= now_ms]:
            self._forget(instance_id)

    def by_name(self) -> Iterator[tuple[str, bool, list[tuple[Attributes, float]]]]:
        """Name, whether it counts, and the samples: their labels and values."""
        names: dict[str, list[tuple[Attributes, float]]] = {}
        gauges: set[str] = set()
        for sent in self._sent.values():
            for key, value in sent.values.items():
                names.setdefault(key.name, []).append((key.labels, value))
                if not key.is_counter:
                    gauges.add(key.name)
        for name, samples in sorted(names.items()):
            yield name, name not in gauges, samples

    def _forget(self, instance_id: str) -> dict[Key, float]:
        sent = self._sent.pop(instance_id, None)
        if sent is None:
            return {}
        self._count -= len(sent.values)
        return sent.values


def _labels_of(client: Client) -> Attributes:
    return (
        ("client_id", client.client_id or ""),
        ("client_instance_id", client.client_instance_id),
        ("client_software_name", client.client_software_name),
        ("client_software_version", client.client_software_version),
    )


def _key(point: Point, labels: Attributes) -> Key:
    name = PREFIX + _word(point.name.removeprefix(_KAFKA))
    if point.is_monotonic and not name.endswith(_TOTAL):
        name += _TOTAL
    theirs = {word: value for name, value in point.attributes if (word := _word(name)) not in _OURS}
    return Key(name, point.is_monotonic, (*labels, *sorted(theirs.items())))


def _word(text: str) -> str:
    word = _forbidden.sub("_", text).lstrip("_")
    return f"n{word}" if not word or word[0].isdigit() else word
