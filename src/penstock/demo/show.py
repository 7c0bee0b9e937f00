"""All of the demo together: what runs, what can be done to it, and what came of it.

In stages: cluster and load first; Spark is installed meanwhile, if it has to be; then the pipelines start, and read
everything from the beginning. Nothing waits for what comes later. Whatever happens, `close` leaves no process and no
file: see `penstock.demo.janitor`.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from penstock.demo.clients import Worker
from penstock.demo.cluster import DemoCluster
from penstock.demo.janitor import Janitor
from penstock.demo.ledger import Ledger, Verdict
from penstock.demo.poison import WHAT
from penstock.demo.reports import Reports
from penstock.demo.spark import Installation, NoSpark, Pipelines, download_mb, is_installed
from penstock.demo.streams import PIPELINES, topics_of
from penstock.demo.traffic import Traffic

POISON = 5
STALLED_SECONDS = 120.0
"""Nothing came out for so long: then nothing will."""
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Happening:
    seconds: float
    text: str


class Show:
    def __init__(self, *, rate: float, spark: bool, tell: Callable[[str], None] = lambda text: None) -> None:
        self._tell = tell
        self.wants_spark = spark
        self.rate = rate
        self.started = time.monotonic()
        self.happenings: deque[Happening] = deque(maxlen=100)
        self.failures: list[str] = []
        self.stopping = threading.Event()
        self.directory = tempfile.mkdtemp(prefix="penstock-demo-")
        self.janitor = Janitor(self.directory)
        self.cluster = DemoCluster(os.path.join(self.directory, "cluster"), self.janitor)
        os.mkdir(os.path.join(self.directory, "cluster"))
        self.ledger = Ledger({name: topics_of(name) for name in PIPELINES} if spark else {})
        self.reports = Reports()
        self.traffic: Traffic | None = None
        self.installation: Installation | None = None
        self.pipelines: Pipelines | None = None
        self.kills = 0
        self.interrupted = False
        self.is_unheard = False
        """Whoever was told what happens has gone."""
        self._acting = threading.Lock()
        self._workers: dict[str, Worker] = {}
        self._closed = threading.Lock()

    # Stages.

    def start(self) -> None:
        """Cluster and load; returns when events flow."""
        self.happened("three brokers and three controllers start")
        self.cluster.start(self.stopping.is_set)
        if self.stopping.is_set():
            return
        self.happened(f"the cluster is ready at {self.cluster.bootstrap.partition(',')[0]}")
        self.traffic = Traffic(
            self.cluster.bootstrap,
            [broker.node_id for broker in self.cluster.brokers],
            self.rate,
            self.ledger,
            self.reports,
            puts_aside=not self.wants_spark,
        )
        for name, run in self.traffic.parts().items():
            self._work(name, run)
        self.happened(f"trucks and shop write {self.rate:g} events a second, acks=all")
        if self.wants_spark:
            self._work("spark", self._spark)

    def _spark(self) -> None:
        try:
            if not is_installed():
                self.happened(f"Spark is installed meanwhile, about {download_mb()} MB")
                self.installation = Installation(self.janitor, os.path.join(self.directory, "pip"))
                began = time.monotonic()
                self.installation.run()
                self.happened(f"Spark was installed in {time.monotonic() - began:.0f} s")
                self.installation = None
            if self.stopping.is_set():
                return
            self.happened("Spark starts; the pipelines will read everything from the beginning")
            self.pipelines = Pipelines(self.cluster.bootstrap, os.path.join(self.directory, "pipelines"), self.janitor)
            self.pipelines.run()
        except NoSpark as error:
            self.failed(str(error))

    @property
    def flowing(self) -> Traffic:
        assert self.traffic is not None
        return self.traffic

    @property
    def everything_works(self) -> bool:
        """Events have come out wherever they should."""
        outputs = [self.ledger.topics, *self.ledger.outputs.values()]
        working = self.pipelines is not None and self.pipelines.are_working
        return all(len(output.seen) for output in outputs) and (working or not self.wants_spark)

    # What can be done to it. Each returns when it is done, and is told of in `happenings`.

    def kill_broker(self) -> None:
        """The one that leads the most partitions."""
        with self._acting:
            if self.cluster.down is not None:
                self.happened(f"broker {self.cluster.down.node_id} is down already; bring it back first (b)")
                return
            view = self.flowing.observer.view
            victim = max(self.cluster.brokers, key=lambda broker: self._leads(broker.node_id)).node_id
            leads = self._leads(victim)
            self.cluster.kill(victim)
            self.kills += 1
            began = time.monotonic()
            self.happened(f"broker {victim} killed (kill -9); it led {leads} of {view.partitions} partitions")
            if self._wait(lambda: not self._leads(victim) and not self.flowing.observer.view.without_leader):
                self.happened(f"all partitions have new leaders after {time.monotonic() - began:.1f} s")

    def bring_back(self) -> None:
        with self._acting:
            if self.cluster.down is None:
                self.happened("all brokers are up; kill one first (k)")
                return
            began = time.monotonic()
            broker = self.cluster.bring_back(self.stopping.is_set)
            if broker is None or self.stopping.is_set():
                return
            self.happened(f"broker {broker.node_id} is up again and reads what it has missed")
            if self._wait(lambda: self.flowing.observer.view.is_whole):
                self.happened(f"all replicas are in sync {time.monotonic() - began:.1f} s after its start")

    def send_poison(self) -> None:
        self.flowing.load.poison(POISON)
        self.happened(f"the next {POISON} events are poison: {WHAT}")

    def replay(self) -> None:
        with self._acting:
            if not self.flowing.letters.waiting:
                self.happened("no dead letters lie there; send poison first (p)")
                return
            count = self.flowing.letters.replay()
            self.happened(f"{count} dead letters repaired and sent again to the topics they came from")

    def _leads(self, broker_id: int) -> int:
        view = self.flowing.observer.view.brokers.get(broker_id)
        return view.leads if view is not None else 0

    # The end.

    def finish(self, hurry: Callable[[], bool] = lambda: False) -> list[Verdict]:
        """Write no more, wait until all that was acknowledged has come out, and judge. No verdicts for who is in a
        hurry, and none on pipelines that have not come so far as to work.

        A stream that stands still for long does not move again; what is missing then is lost.
        """
        pipelines = self.everything_works
        self.flowing.load.stop()
        self._workers["load"].join()
        self.happened(f"{len(self.ledger.acknowledged):,} events were acknowledged; waiting for the last to come out")
        best, moved = -1, time.monotonic()
        while not (hurry() or self.stopping.is_set()):
            verdicts = self.ledger.verdicts(pipelines=pipelines and not self.failures)
            missing = sum(len(verdict.missing) for verdict in verdicts)
            if missing != best:
                best, moved = missing, time.monotonic()
            if not missing or time.monotonic() - moved > STALLED_SECONDS:
                return verdicts
            time.sleep(_POLL_SECONDS)
        return []

    def interrupt(self) -> None:
        """From a signal handler."""
        self.interrupted = True
        self.stopping.set()

    def close(self) -> None:
        """Everything ends; may be called twice, and from a demo that has not quite started."""
        with self._closed:
            self.stopping.set()
            if self.traffic is not None:
                self.traffic.stop()
            if self.installation is not None:
                self.installation.stop()
            if self.pipelines is not None:
                self.pipelines.stop()
            self.cluster.stop()
            self.janitor.close()

    def happened(self, text: str) -> None:
        self.happenings.append(Happening(time.monotonic() - self.started, text))
        try:
            self._tell(text)
        except BrokenPipeError:
            self.is_unheard = True
            self.stopping.set()

    def failed(self, text: str) -> None:
        if not self.stopping.is_set():
            self.failures.append(text)
            self.happened(f"failed: {text}")

    def _work(self, name: str, run: Callable[[], None]) -> None:
        worker = self._workers[name] = Worker(name, run, self.failed)
        worker.start()

    def _wait(self, condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + STALLED_SECONDS
        while not condition():
            if self.stopping.wait(_POLL_SECONDS) or time.monotonic() > deadline:
                return False
        return True
