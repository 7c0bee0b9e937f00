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
from penstock.demo.letters import Letters
from penstock.demo.load import Load
from penstock.demo.observer import Observer
from penstock.demo.poison import WHAT
from penstock.demo.readers import GroupReader, ResultsReader
from penstock.demo.reports import Reports
from penstock.demo.spark import DOWNLOAD_MB, Installation, NoSpark, Pipelines, is_installed
from penstock.demo.streams import FLOWS, GROUPS, PIPELINES, topics_of

POISON = 5
STALLED_SECONDS = 120.0
"""Nothing came out for so long: then nothing will."""
_POLL_SECONDS = 0.1
_HISTORY = 60


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
        self.cluster = DemoCluster(os.path.join(self.directory, "cluster"))
        os.mkdir(os.path.join(self.directory, "cluster"))
        self.ledger = Ledger({name: topics_of(name) for name in PIPELINES} if spark else {})
        self.reports = Reports()
        self.installation: Installation | None = None
        self.pipelines: Pipelines | None = None
        self.kills = 0
        self._acting = threading.Lock()
        self._workers: list[Worker] = []
        self._closed = threading.Lock()

    # Stages.

    def start(self) -> None:
        """Cluster and load; returns when events flow."""
        self.happened("three brokers and three controllers start")
        self.cluster.start(self.stopping.is_set)
        if self.stopping.is_set():
            return
        bootstrap = self.cluster.bootstrap
        self.happened(f"the cluster is ready at {bootstrap}")
        self.letters = Letters(bootstrap, self.ledger.letters)
        self.load = Load(bootstrap, self.rate, self.ledger.acknowledged)
        aside = None if self.wants_spark else self.letters
        self.groups = {name: GroupReader(bootstrap, name, self.ledger, aside) for name in GROUPS}
        self.results = ResultsReader(bootstrap, self.ledger, self.letters, self.reports, self.load.marks)
        self.observer = Observer(bootstrap, [broker.node_id for broker in self.cluster.brokers])
        for name, group in self.groups.items():
            self._work(f"group {name}", group.run)
        self._work("results", self.results.run)
        self._work("observer", self.observer.run)
        self._loading = self._work("load", self.load.run)
        self.happened(f"trucks and shop write {self.rate:g} events a second, acks=all")
        if self.wants_spark:
            self._work("spark", self._spark)

    def _spark(self) -> None:
        try:
            if not is_installed():
                self.happened(f"Spark is installed meanwhile, about {DOWNLOAD_MB} MB")
                self.installation = Installation(self.janitor, os.path.join(self.directory, "pip"))
                began = time.monotonic()
                self.installation.run()
                self.happened(f"Spark was installed in {time.monotonic() - began:.0f} s")
                self.installation = None
            if self.stopping.is_set():
                return
            self.happened("Spark starts; the pipelines will read everything from the beginning")
            self.pipelines = Pipelines(self.cluster.bootstrap, os.path.join(self.directory, "spark"), self.janitor)
            self.pipelines.run()
        except NoSpark:
            if not self.stopping.is_set():
                raise

    @property
    def everything_works(self) -> bool:
        """Events have come out wherever they should."""
        outlets = [self.ledger.topics, *self.ledger.outlets.values()]
        working = self.pipelines is not None and self.pipelines.are_working
        return all(len(outlet.seen) for outlet in outlets) and (working or not self.wants_spark)

    # What can be done to it. Each returns when it is done, and is told of in `happenings`.

    def kill_broker(self) -> None:
        """The one that leads the most partitions."""
        with self._acting:
            if self.cluster.down is not None:
                self.happened(f"broker {self.cluster.down.node_id} is down already; bring it back first (b)")
                return
            view = self.observer.view
            victim = max(self.cluster.brokers, key=lambda broker: self._leads(broker.node_id)).node_id
            leads = self._leads(victim)
            self.cluster.kill(victim)
            self.kills += 1
            began = time.monotonic()
            self.happened(f"broker {victim} killed (kill -9); it led {leads} of {view.partitions} partitions")
            if self._wait(lambda: not self._leads(victim) and not self.observer.view.without_leader):
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
            if self._wait(lambda: self.observer.view.is_whole):
                self.happened(f"all replicas are in sync {time.monotonic() - began:.1f} s after its start")

    def send_poison(self) -> None:
        self.load.poison(POISON)
        self.happened(f"the next {POISON} events are poison: {WHAT}")

    def replay(self) -> None:
        with self._acting:
            if not self.letters.waiting:
                self.happened("no dead letters lie there; send poison first (p)")
                return
            count = self.letters.replay()
            self.happened(f"{count} dead letters repaired and sent again to the topics they came from")

    def _leads(self, broker_id: int) -> int:
        view = self.observer.view.brokers.get(broker_id)
        return view.leads if view is not None else 0

    # The end.

    def finish(self, hurry: Callable[[], bool] = lambda: False) -> list[Verdict]:
        """Write no more, wait until all that was acknowledged has come out, and judge. Who is in a hurry does not wait.

        A stream that stands still for long does not move again; what is missing then is lost.
        """
        self.load.stop()
        self._loading.join()
        self.happened(f"{len(self.ledger.acknowledged):,} events were acknowledged; waiting for the last to come out")
        best, moved = -1, time.monotonic()
        while not hurry() and not self.failures:
            missing = self.ledger.waiting()
            if not missing:
                break
            if missing != best:
                best, moved = missing, time.monotonic()
            if time.monotonic() - moved > STALLED_SECONDS:
                break
            time.sleep(_POLL_SECONDS)
        return self.ledger.verdicts()

    def close(self) -> None:
        """Everything ends; may be called twice, and from a demo that has not quite started."""
        with self._closed:
            self.stopping.set()
            for reader in (*getattr(self, "groups", {}).values(), *filter(None, [getattr(self, "results", None)])):
                reader.stopping.set()
            if hasattr(self, "load"):
                self.load.stop()
                self.observer.stopping.set()
            if self.installation is not None:
                self.installation.stop()
            if self.pipelines is not None:
                self.pipelines.stop()
            self.cluster.stop()
            self.janitor.close()

    def happened(self, text: str) -> None:
        self.happenings.append(Happening(time.monotonic() - self.started, text))
        self._tell(text)

    def failed(self, text: str) -> None:
        if not self.stopping.is_set():
            self.failures.append(text)
            self.happened(f"failed: {text}")

    def _work(self, name: str, run: Callable[[], None]) -> Worker:
        worker = Worker(name, run, self.failed)
        self._workers.append(worker)
        worker.start()
        return worker

    def _wait(self, condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + STALLED_SECONDS
        while not condition():
            if self.stopping.wait(_POLL_SECONDS) or time.monotonic() > deadline:
                return False
        return True


def flows_of(pipeline: str) -> list[str]:
    return [flow.output for flow in FLOWS if flow.pipeline == pipeline]
