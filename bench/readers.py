"""`python -m bench.readers`: what readers cost a broker, at the tail of a partition and behind it.

Every round sends each load to a broker, to a bare `sendfile` of the same bytes, and, with `--before SOURCE`, to a
broker of another source tree (a git worktree of the commit to compare with), in turn; `make bench` also takes a peer.
The CPU of a process comes from /proc, so that other work on the machine matters little; ratios are medians of the
ratios within a round.

All data is in the page cache. At the tail are the last 4 MiB of a partition, which was filled before; older data is in
a segment that is closed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.blaster import BlastSettings
from bench.fill import fill
from bench.frames import batch_of_size
from bench.loads import (
    FETCH_BATCH_SIZE,
    FETCH_SEGMENT_BYTES,
    MIB,
    READER_LOADS,
    SENDFILE_TARGET,
    SENDFILE_TARGET_FROM,
    RequestLoad,
)
from bench.processes import run_job
from bench.progress import Steps
from bench.results import Row, spread_of
from bench.run import blast_settings
from bench.subjects import PEER, PENSTOCK, SENDFILE_FLOOR, Kafka, floors, keep_bytecode, penstock
from penstock.records.batch import read_header

TOPIC = "bench-readers"
FILLED_BYTES = 160 * MIB
NOW, BEFORE, SENDFILE = "now", "before", "sendfile"


@dataclass
class Samples:
    """Of one subject: CPU us a request and requests a second, those of one round at the same place."""

    cpu_us: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)


Results = dict[str, dict[str, Samples]]


@contextlib.contextmanager
def _source(directory: str | None) -> Iterator[None]:
    """Processes that are started within the block import penstock from there."""
    if directory is None:
        yield
        return
    earlier = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = directory
    try:
        yield
    finally:
        if earlier is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = earlier


class Readers:
    def __init__(
        self,
        directory: str,
        *,
        seconds: float,
        before: str | None = None,
        peer: Kafka | None = None,
        steps: Steps | None = None,
    ) -> None:
        self._directory = directory
        self._seconds = seconds
        self._before = before
        self._peer = peer
        self._steps = steps
        batch = batch_of_size(FETCH_BATCH_SIZE)
        self._batch = batch
        self._batches = FILLED_BYTES // len(batch)
        self._records_a_batch = read_header(batch).count

    @contextlib.contextmanager
    def brokers(self) -> Iterator[dict[str, Kafka]]:
        with ExitStack() as stack:
            found: dict[str, Kafka] = {}
            for name, source in ((NOW, None), (BEFORE, self._before)):
                if name == NOW or source is not None:
                    with _source(source):
                        found[name] = stack.enter_context(penstock(os.path.join(self._directory, name)))
            if self._peer is not None:
                found[PEER] = self._peer
            for kafka in found.values():
                stack.enter_context(kafka.topic(TOPIC, 1, {"segment.bytes": str(FETCH_SEGMENT_BYTES)}))
                fill(kafka, TOPIC, self._batch, self._batches)
            yield found

    def measure(self, loads: Sequence[RequestLoad], rounds: int) -> Results:
        results: Results = {load.name: {} for load in loads}
        with self.brokers() as brokers:
            for load in loads:
                offsets = load.offsets(self._batches, self._records_a_batch)
                samples = results[load.name]
                with floors(self._directory, load.floor_settings(TOPIC), (SENDFILE_FLOOR,)) as running:
                    server = running[SENDFILE_FLOOR]
                    for _ in range(rounds):
                        for name, kafka in brokers.items():
                            settings = self._settings(load, kafka.port, kafka.pid, offsets, kafka=True)
                            self._sample(load, name, samples, settings)
                        settings = self._settings(load, server.port, server.pid, offsets, kafka=False)
                        self._sample(load, SENDFILE, samples, settings)
        return results

    def _settings(self, load: RequestLoad, port: int, pid: int, offsets: list[int], *, kafka: bool) -> BlastSettings:
        return blast_settings(
            load, port=port, pid=pid, topic=TOPIC, offsets=offsets, seconds=self._seconds, kafka=kafka
        )

    def _sample(self, load: RequestLoad, name: str, of_load: dict[str, Samples], settings: BlastSettings) -> None:
        if self._steps is not None:
            self._steps.doing(f"{load.title}: {name}")
        result = run_job("bench.blaster", asdict(settings))
        samples = of_load.setdefault(name, Samples())
        samples.cpu_us.append(result["server_cpu_us"] or 0.0)  # a peer's process may not be known
        samples.rate.append(result["requests_per_second"])
        if self._steps is not None:
            self._steps.advance()


def rows(results: Results, loads: Sequence[RequestLoad]) -> list[Row]:
    """For the table of `make bench`: the rate, and the CPU beside that of a bare `sendfile`."""
    found = []
    for load in loads:
        samples = results[load.name]
        rate = Row(load.name, load.title, "requests/s", None, load.request_bytes)
        target = SENDFILE_TARGET if load.fetch_size >= SENDFILE_TARGET_FROM else None
        to_sendfile = Row(load.name, f"{load.title}: CPU to sendfile", "times", target)
        for name, subject in ((NOW, PENSTOCK), (PEER, PEER)):
            if name in samples:
                for cpu_us, value in zip(samples[name].cpu_us, samples[name].rate, strict=True):
                    rate.add(subject, value, cpu_us)
                for cpu_us, bare in zip(samples[name].cpu_us, samples[SENDFILE].cpu_us, strict=True):
                    if cpu_us:
                        to_sendfile.add(subject, cpu_us / bare)
        found += [rate, to_sendfile]
    return found


def cpu_ratio(samples: Samples, base: Samples) -> float:
    return median(ours / other for ours, other in zip(samples.cpu_us, base.cpu_us, strict=True))


def table(results: Results, loads: Sequence[RequestLoad], rounds: int) -> Table:
    title = f"CPU us a fetch request, medians of {rounds} rounds; load of the machine {os.getloadavg()[0]:.1f}"
    shown = Table(title=title, title_justify="left")
    headings = ["load", "broker", "spread", "us a MiB", "sendfile", "to sendfile", "requests/s"]
    has_before = any(BEFORE in samples for samples in results.values())
    for heading in [*headings, "before", "to before", "requests/s before"] if has_before else headings:
        shown.add_column(heading, justify="left" if heading == "load" else "right")
    for load in loads:
        samples = results[load.name]
        now, bare = samples[NOW], samples[SENDFILE]
        middle = median(now.cpu_us)
        cells = [load.title, f"{middle:.1f}", f"±{spread_of(now.cpu_us):.0%}", f"{middle * MIB / load.fetch_size:.0f}"]
        cells += [f"{median(bare.cpu_us):.1f}", f"{cpu_ratio(now, bare):.2f}", f"{median(now.rate):,.0f}"]
        if BEFORE in samples:
            before = samples[BEFORE]
            cells += [f"{median(before.cpu_us):.1f}", f"{cpu_ratio(now, before):.2f}", f"{median(before.rate):,.0f}"]
        shown.add_row(*cells)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.readers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of each load (default: 5)")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help="of each sample (default: 1)")
    parser.add_argument("--only", action="append", metavar="TEXT", help="loads whose name contains it; repeatable")
    parser.add_argument("--before", metavar="SOURCE", help="the src directory of another working tree, measured beside")
    parser.add_argument("--json", metavar="FILE", help="write every sample")
    parser.add_argument("--directory", metavar="DIR", help="where the data goes (default: the system's temporary one)")
    arguments = parser.parse_args()
    loads = [load for load in READER_LOADS if not arguments.only or any(text in load.name for text in arguments.only)]
    if not loads:
        parser.error(f"no load is chosen; there are {', '.join(load.name for load in READER_LOADS)}")
    with tempfile.TemporaryDirectory(prefix="penstock-readers-", dir=arguments.directory) as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        readers = Readers(directory, seconds=arguments.seconds, before=arguments.before)
        results = readers.measure(loads, arguments.rounds)
    Console(width=150).print(table(results, loads, arguments.rounds))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({load: {name: asdict(each) for name, each in of.items()} for load, of in results.items()}, file)


if __name__ == "__main__":
    main()
