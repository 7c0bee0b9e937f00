"""Reads the newest records of a topic, without Spark."""

from __future__ import annotations

from datetime import datetime

from penstock.arrow import read_table
from penstock.client.errors import ClientError, UnknownTopic
from penstock.client.wire.admin import Admin
from penstock.client.wire.admin.topics import EARLIEST
from penstock.model.ids import TopicPartition
from penstock.pipelines.operate.scaffold import Sampled
from penstock.pipelines.spec.problems import nearest

_TIMEOUT_S = 10.0


def newest_offsets(bootstrap: str, topic: str, count: int) -> dict[TopicPartition, int]:
    """Where to begin to read about so many records, taken from all partitions alike; UnknownTopic if there is none."""
    with Admin(bootstrap, timeout=_TIMEOUT_S) as admin:
        topics = {each.name: each for each in admin.topics.list(internal=True)}
        if topic not in topics:
            known = [name for name in topics if not name.startswith("__")]
            raise UnknownTopic(f"{bootstrap} has no topic {topic!r}; {nearest(topic, known)}")
        places = [TopicPartition(topic, each.partition) for each in topics[topic].partitions]
        begins, ends = admin.topics.offsets(places, EARLIEST), admin.topics.offsets(places)
    each = -(-count // len(places))
    return {place: max(begins[place], ends[place] - each) for place in places}


def newest_records(bootstrap: str, topic: str, count: int) -> list[Sampled]:
    """At most so many, in the order of their timestamps; an error if the topic has no records."""
    start: dict[int | TopicPartition, str | int | datetime] = dict(newest_offsets(bootstrap, topic, count).items())
    table = read_table(bootstrap, topic, start=start, columns=["key", "value", "timestamp"])
    records = [
        Sampled(key=row["key"], value=row["value"], timestamp_ms=round(row["timestamp"].timestamp() * 1000))
        for row in table.to_pylist()
    ]
    if not any(each.value is not None for each in records):
        raise ClientError(f"topic {topic!r} has no records to infer a schema from: produce some first")
    return sorted(records, key=lambda each: each.timestamp_ms)[-count:]
