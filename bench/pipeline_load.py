"""Events at a steady rate into topics, and how late what a pipeline makes of them can be read.

    python -m bench.pipeline_load '{"bootstrap": ..., "sources": [...], "sinks": [...], "rate": 400, ...}'

This is a process of its own, so that it does not share Python's lock with the driver of the queries. Every event has
the time it was sent at in its field `sequence`, and so has what is made of it. Another thread asks every few
milliseconds how far each sink can be read with `read_committed`. From that the latency of every record is known
afterwards, without a consumer that would compete with the queries for the processor.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrow import Writer, read_table
from penstock.client.wire.admin.topics import LATEST
from penstock.client.wire.leaders import Leaders
from penstock.client.wire.log_offsets import READ_COMMITTED, LogOffsets
from penstock.model.ids import TopicPartition

TICK_S = 0.01
WATCH_S = 0.005
IDLE_S = 1.0
TRUCKS = 100
_TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class LoadSettings:
    bootstrap: str
    sources: Sequence[str]
    """The events go to these in equal parts."""
    sinks: Sequence[str]
    """What is made of the first sources, one for one; those that are left over only load the machine."""
    rate: int
    """Events a second, into all sources together."""
    partitions: int
    warm_up_s: float
    seconds: float
    patience_s: float
    """How long is waited for the last records."""


@dataclass(frozen=True, kw_only=True)
class LoadResult:
    sent: int
    """In the seconds that count, of which `missing` had not come out when the wait ended."""
    missing: int
    p50_s: float
    p99_s: float
    """Of those that are missing, the latency is the time they were waited for."""
    sent_a_second: float


class Visible(threading.Thread):
    """Notes when the readable end of partitions moves."""

    def __init__(self, bootstrap: str, partitions: list[TopicPartition]) -> None:
        super().__init__(daemon=True)
        self._partitions = partitions
        self._leaders = Leaders(bootstrap, timeout=_TIMEOUT_S)
        self._leaders.find({partition.topic for partition in partitions})
        self._offsets = LogOffsets(self._leaders, READ_COMMITTED, _TIMEOUT_S)
        self._ending = threading.Event()
        self.ends: dict[TopicPartition, list[tuple[int, int]]] = {each: [(0, 0)] for each in partitions}
        """The end and the time in ns at which it was first seen."""

    def run(self) -> None:
        while not self._ending.wait(WATCH_S):
            found = self._offsets.at(self._partitions, LATEST)
            now = time.time_ns()
            for partition, end in found.items():
                if end > self.ends[partition][-1][0]:
                    self.ends[partition].append((end, now))

    def wait_until_idle(self, deadline: float) -> None:
        """Until nothing has come out for a while."""
        while time.monotonic() < deadline:
            last = max(ends[-1][1] for ends in self.ends.values())
            time.sleep(IDLE_S)
            if last == max(ends[-1][1] for ends in self.ends.values()):
                return

    def stop(self) -> None:
        self._ending.set()
        self.join()
        self._leaders.close()


def send(settings: LoadSettings) -> tuple[int, list[int]]:
    """How many events were sent, and the times in ns of those that come out of the sinks, in order."""
    keys = [f"truck-{number}" for number in range(TRUCKS)]
    before = pa.array([f'{{"truck": "{key}", "sequence": ' for key in keys])
    behind = ', "latitude": 52.5, "longitude": 8.25, "speed": 70, "litres": 62.5, "at": "'
    times: list[int] = []
    sent_each = 0
    with Writer(settings.bootstrap) as writer:
        began = time.monotonic()
        while (elapsed := time.monotonic() - began) < settings.warm_up_s + settings.seconds:
            each = int(elapsed * settings.rate / len(settings.sources)) - sent_each
            if each > 0:
                rows = np.arange(each) % TRUCKS
                for number, topic in enumerate(settings.sources):
                    sent = time.time_ns()
                    values = pc.binary_join_element_wise(before.take(rows), f'{sent}{behind}{_now()}"}}', "")
                    writer.write(topic, pa.table({"key": pa.array(keys).take(rows), "value": values}), key="key")
                    times += [sent] * (each if number < len(settings.sinks) else 0)
                sent_each += each
            time.sleep(TICK_S)
    return sent_each * len(settings.sources), times


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def latencies_ns(settings: LoadSettings, visible: Visible, since_ns: int) -> Any:
    """Of the records that came out and whose events were sent at this time or later."""
    found = []
    for sink in settings.sinks:
        table = read_table(settings.bootstrap, sink, columns=["partition", "offset", "value"], value="string")
        parsed = pc.extract_regex(table["value"], r'"sequence":(?P<sent>\d+)')
        sent = pc.struct_field(parsed, "sent").cast(pa.int64()).to_numpy()
        offsets, numbers = table["offset"].to_numpy(), table["partition"].to_numpy()
        for number in range(settings.partitions):
            ends = np.array(visible.ends[TopicPartition(sink, number)])
            chosen = (numbers == number) & (sent >= since_ns) & (offsets < ends[-1, 0])
            seen = ends[np.searchsorted(ends[:, 0], offsets[chosen], side="right"), 1]
            found.append(seen - sent[chosen])
    return np.concatenate(found)


def measure(settings: LoadSettings) -> LoadResult:
    partitions = [TopicPartition(sink, number) for sink in settings.sinks for number in range(settings.partitions)]
    visible = Visible(settings.bootstrap, partitions)
    visible.start()
    events, noted = send(settings)
    times = np.array(noted)
    since = int(times[0] + settings.warm_up_s * 1e9)
    sent = int((times >= since).sum())
    deadline = time.monotonic() + settings.patience_s
    visible.wait_until_idle(deadline)
    while len(found := latencies_ns(settings, visible, since)) < sent and time.monotonic() < deadline:
        visible.wait_until_idle(deadline)
    visible.stop()
    if len(found) > sent:
        raise RuntimeError(f"{len(found)} records came out of {sent} events")
    missing = np.full(sent - len(found), (settings.seconds + settings.patience_s) * 1e9)
    p50, p99 = np.percentile(np.concatenate([found, missing]), [50, 99]) / 1e9
    took = (times[-1] - times[0]) / 1e9
    return LoadResult(sent=sent, missing=len(missing), p50_s=float(p50), p99_s=float(p99), sent_a_second=events / took)


if __name__ == "__main__":
    print(json.dumps(measure(LoadSettings(**json.loads(sys.argv[1]))).__dict__))
