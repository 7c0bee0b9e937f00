"""The running demo: its parts, what can be done to them, and its result.

It starts in stages: cluster and clients first, then the web console; Spark is installed in the background, if it is
missing; then the pipelines start, and read everything from the beginning. No stage waits for a later one. Whatever
happens, `close` leaves no process and no file: see `penstock.demo.cleanup`.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from penstock.demo.cleanup import Cleanup
from penstock.demo.clients import Clients
from penstock.demo.cluster import ClusterView, DemoCluster
from penstock.demo.console import DemoConsole, NoConsole
from penstock.demo.dead_letters import POISON_DESCRIPTION
from penstock.demo.ledger import Ledger, Verdict
from penstock.demo.reports import Reports
from penstock.demo.spark import Installation, PipelineProcess, SparkUnavailable, download_mb, is_installed
from penstock.demo.workload import PIPELINES, topics_of

POISON = 5
STALLED_S = 120.0
"""After this long without any progress nothing more is expected."""
_POLL_S = 0.1


class Worker(threading.Thread):
    """A thread that reports the exception that ended it."""

    def __init__(self, name: str, run: Callable[[], None], failed: Callable[[str], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._work = run
        self._failed = failed

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001  # reported, and the demo fails by it
            self._failed(f"{self.name}: {type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class LogLine:
    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class DemoResult:
    verdicts: tuple[Verdict, ...]
    acknowledged: int
    kills: int
    poison: int
    replayed: int
    failures: tuple[str, ...]
    started_seconds: float
    """Until events flowed."""
    running_seconds: float
    """Until they had come out everywhere."""
    seconds: float

    @property
    def is_good(self) -> bool:
        judged = bool(self.verdicts) and self.acknowledged > 0
        return judged and not self.failures and all(verdict.is_good for verdict in self.verdicts)


class Demo:
    def __init__(self, *, rate: float, spark: bool, report: Callable[[str], None] = lambda text: None) -> None:
        """`report` is called with each line of the log."""
        self._report = report
        self.wants_spark = spark
        self.rate = rate
        self._started = time.monotonic()
        self.log_lines: deque[LogLine] = deque(maxlen=100)
        self.failures: list[str] = []
        self.stopping = threading.Event()
        self.directory = tempfile.mkdtemp(prefix="penstock-demo-")
        self._cleanup = Cleanup(self.directory)
        self.cluster = DemoCluster(os.path.join(self.directory, "cluster"), self._cleanup)
        os.mkdir(os.path.join(self.directory, "cluster"))
        self.ledger = Ledger({name: topics_of(name) for name in PIPELINES} if spark else {})
        self.reports = Reports()
        self.clients: Clients | None = None
        self.installation: Installation | None = None
        self.pipelines: PipelineProcess | None = None
        self.console: DemoConsole | None = None
        self.kills = 0
        self.interrupted = False
        self.output_closed = False
        """Nothing reads the reported lines any more."""
        self._acting = threading.Lock()
        self._workers: dict[str, Worker] = {}
        self._closing = threading.Lock()

    # Stages.

    def start(self) -> None:
        """Starts cluster and clients; returns when events flow."""
        self.log("three brokers and three controllers start")
        self.cluster.start(self.stopping.is_set)
        if self.stopping.is_set():
            return
        self.log(f"the cluster is ready at {self.cluster.bootstrap.partition(',')[0]}")
        self.clients = Clients(
            self.cluster.bootstrap,
            [broker.node_id for broker in self.cluster.brokers],
            self.rate,
            self.ledger,
            self.reports,
            groups_write_dead_letters=not self.wants_spark,
        )
        for name, run in self.clients.threads().items():
            self._work(name, run)
        self.log(f"trucks and shop write {self.rate:g} events a second, acks=all")
        self.console = DemoConsole(os.path.join(self.directory, "console"), self.cluster.bootstrap, self._cleanup)
        self._work("console", self._open_console)
        if self.wants_spark:
            self._work("spark", self._spark)

    def _open_console(self) -> None:
        """The demo goes on without it."""
        assert self.console is not None
        try:
            self.console.start(self.stopping.is_set)
        except (NoConsole, OSError) as reason:
            if not self.stopping.is_set():
                self.log(f"no web console: {reason}")
        else:
            if self.console.url is not None:
                self.log(f"the web console draws the fleet and the shop: {self.console.url}")

    def _spark(self) -> None:
        try:
            if not is_installed():
                self.log(f"installing Spark in the background, about {download_mb()} MB")
                self.installation = Installation(self._cleanup, os.path.join(self.directory, "pip"))
                began = time.monotonic()
                self.installation.run()
                self.log(f"Spark was installed in {time.monotonic() - began:.0f} s")
                self.installation = None
            if self.stopping.is_set():
                return
            self.log("Spark starts; the pipelines will read everything from the beginning")
            directory = os.path.join(self.directory, "pipelines")
            self.pipelines = PipelineProcess(self.cluster.bootstrap, directory, self._cleanup)
            self.pipelines.run()
        except SparkUnavailable as error:
            self.failed(str(error))

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._started

    @property
    def started_clients(self) -> Clients:
        assert self.clients is not None
        return self.clients

    @property
    def everything_runs(self) -> bool:
        """Events have come out of all outputs."""
        outputs = [self.ledger.topics, *self.ledger.outputs.values()]
        running = self.pipelines is not None and self.pipelines.all_have_rows
        return all(len(output.seen) for output in outputs) and (running or not self.wants_spark)

    # What can be done to it. Each returns when it is done, and writes to the log.

    def kill_broker(self) -> None:
        """Kills the broker that leads the most partitions."""
        with self._acting:
            if self.cluster.down is not None:
                self.log(f"broker {self.cluster.down.node_id} is down already; bring it back first (b)")
                return
            partitions = self._view.partitions
            victim = max(self.cluster.brokers, key=lambda broker: self._leads(broker.node_id)).node_id
            leads = self._leads(victim)
            self.cluster.kill(victim)
            self.kills += 1
            began = time.monotonic()
            self.log(f"broker {victim} killed (kill -9); it led {leads} of {partitions} partitions")
            if self._wait(lambda: not self._leads(victim) and not self._view.without_leader):
                self.log(f"all partitions have new leaders after {time.monotonic() - began:.1f} s")

    def restart_broker(self) -> None:
        with self._acting:
            if self.cluster.down is None:
                self.log("all brokers are up; kill one first (k)")
                return
            began = time.monotonic()
            broker = self.cluster.restart(self.stopping.is_set)
            if broker is None or self.stopping.is_set():
                return
            self.log(f"broker {broker.node_id} is up again and fetches what it has missed")
            if self._wait(lambda: self._view.is_in_sync):
                self.log(f"all replicas are in sync {time.monotonic() - began:.1f} s after its start")

    def send_poison(self) -> None:
        self.started_clients.producer.poison(POISON)
        self.log(f"the next {POISON} events are poison: {POISON_DESCRIPTION}")

    def replay(self) -> None:
        with self._acting:
            if not self.started_clients.dead_letters.waiting:
                self.log("there are no dead letters; send poison first (p)")
                return
            count = self.started_clients.dead_letters.replay()
            self.log(f"{count} dead letters repaired and sent again to the topics they came from")

    @property
    def _view(self) -> ClusterView:
        return self.started_clients.observer.view

    def _leads(self, broker_id: int) -> int:
        view = self._view.brokers.get(broker_id)
        return view.leads if view is not None else 0

    # The end.

    def finish(self, hurry: Callable[[], bool] = lambda: False) -> list[Verdict]:
        """Stop writing, wait until everything acknowledged has come out, and judge. There are no verdicts in a hurry,
        and none on pipelines that were not running yet.

        An output that has stopped for long does not move again; what is missing then is lost.
        """
        pipelines = self.everything_runs
        self.started_clients.producer.stop()
        self._workers["producer"].join()
        self.log(f"{len(self.ledger.acknowledged):,} events were acknowledged; waiting for the last to come out")
        best, moved = -1, time.monotonic()
        while not (hurry() or self.stopping.is_set()):
            verdicts = self.ledger.verdicts(pipelines=pipelines and not self.failures)
            missing = sum(len(verdict.missing) for verdict in verdicts)
            if missing != best:
                best, moved = missing, time.monotonic()
            if not missing or time.monotonic() - moved > STALLED_S:
                return verdicts
            time.sleep(_POLL_S)
        self.log("interrupted: nothing was counted")
        return []

    def result(self, verdicts: list[Verdict], started: float, running: float) -> DemoResult:
        return DemoResult(
            tuple(verdicts),
            len(self.ledger.acknowledged),
            self.kills,
            self.started_clients.producer.poisoned,
            self.started_clients.dead_letters.replayed,
            tuple(self.failures),
            started,
            running,
            self.elapsed,
        )

    def interrupt(self) -> None:
        """For signal handlers."""
        self.interrupted = True
        self.stopping.set()

    def close(self) -> None:
        """Ends everything; may be called twice, and before the demo has started completely."""
        with self._closing:
            self.stopping.set()
            for part in (self.clients, self.console, self.installation, self.pipelines, self.cluster):
                if part is not None:
                    part.stop()
            self._cleanup.close()

    def log(self, text: str) -> None:
        self.log_lines.append(LogLine(self.elapsed, text))
        try:
            self._report(text)
        except BrokenPipeError:
            self.output_closed = True
            self.stopping.set()

    def failed(self, text: str) -> None:
        if not self.stopping.is_set():
            self.failures.append(text)
            self.log(f"failed: {text}")

    def _work(self, name: str, run: Callable[[], None]) -> None:
        worker = self._workers[name] = Worker(name, run, self.failed)
        worker.start()

    def _wait(self, condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + STALLED_S
        while not condition():
            if self.stopping.wait(_POLL_S) or time.monotonic() > deadline:
                return False
        return True
