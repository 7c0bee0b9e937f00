"""Topic to topic on a real Spark cluster that is hurt: every window is written once, and nothing stays open.

A master, two workers, and a driver that starts its query again. Each fault hits while the query works off what was fed;
then the output so far is that of a batch run over the same input, or will be with the next input (windows that are not
complete yet are written later, so the whole is compared at the end).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos import spark_sink_query
from chaos.spark_fail_points import (
    AFTER_DECISION,
    BEFORE_CHECKPOINT,
    BEFORE_DECISION,
    BEFORE_PREPARE,
    BETWEEN_COMMITS,
    IN_WRITE,
    SLOW_ATTEMPT,
    arm,
    is_reached,
)
from chaos.spark_sink_query import END_OF_TIME, expected_windows, feed
from penstock.arrow import read_table
from penstock.testing import Cluster
from spark.standalone import StandaloneCluster, start_standalone
from waiting import wait_until

PATIENCE_S = 600.0
ENDED_WITHIN_S = 10.0
A_CHUNK = 300
SOURCE, TARGET = "source", "target"
PROPERTIES = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


class Scene:
    def __init__(self, spark: StandaloneCluster, kafka: Cluster, directory: Path) -> None:
        self.spark, self.kafka, self.directory = spark, kafka, directory
        self.fed = 0
        self.drivers: list[subprocess.Popen[bytes]] = []
        self.said = 0
        kafka.create_topic(SOURCE, spark_sink_query.PARTITIONS, configs={"retention.ms": "-1"})
        kafka.create_topic(TARGET, 3, configs={"retention.ms": "-1"})

    def feed(self) -> None:
        feed(self.kafka.bootstrap, SOURCE, range(self.fed, self.fed + A_CHUNK))
        self.fed += A_CHUNK

    def arm(self, point: str, action: str) -> None:
        for name in (point, point + ".reached", "go"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.directory / name)
        arm(self.directory, point, action)

    def go(self) -> None:
        (self.directory / "go").touch()

    def start(self, **settings: str) -> subprocess.Popen[bytes]:
        self.said += 1
        given = [f"{name}={value}" for name, value in settings.items()]
        with open(self.directory / f"driver-{self.said}.log", "w") as log:
            driver = subprocess.Popen(
                [
                    sys.executable,
                    spark_sink_query.__file__,
                    self.spark.master,
                    self.kafka.bootstrap,
                    SOURCE,
                    TARGET,
                    str(self.directory),
                    *given,
                ],
                env=self.spark.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self.drivers.append(driver)
        return driver

    def complete(self, driver: subprocess.Popen[bytes] | None = None, /, **settings: str) -> None:
        """Until a driver came to its end; one that was killed has a successor."""
        deadline = time.monotonic() + PATIENCE_S
        driver = driver or self.start(**settings)
        while True:
            status = driver.wait(max(deadline - time.monotonic(), 0.1))
            if status == 0:
                return
            driver = self.start(**settings)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, lambda: f"{what}\n{self.log_text()}", PATIENCE_S)

    def written(self) -> Counter[str]:
        table = read_table(self.kafka.bootstrap, TARGET, value="string", columns=["value"])
        return Counter(table["value"].to_pylist())

    def check(self) -> None:
        """Nothing twice, nothing that is not expected, everything that is complete; and nothing left open."""
        written, expected = self.written(), expected_windows(range(self.fed))
        assert not written - expected, f"too much: {written - expected}\n{self.log_text()}"
        complete = expected_windows(range((self.fed - 1 - 30) // 10 * 10))
        assert not complete - written, f"missing: {complete - written}\n{self.log_text()}"
        wait_until(
            lambda: not self.still_open(),
            lambda: f"transactions end: {self.still_open()}\n{self.log_text()}",
            ENDED_WITHIN_S,
        )

    def still_open(self) -> list[str]:
        with self.kafka.admin() as admin:
            return [each.transactional_id for each in admin.transactions.list(states=["Ongoing"])]

    def log_text(self) -> str:
        """The end of what the last drivers have said."""
        logs = [self.directory / f"driver-{number}.log" for number in range(max(1, self.said - 1), self.said + 1)]
        return "\n".join(path.read_text()[-4000:] for path in logs if path.exists())

    def is_said(self, text: str) -> bool:
        """By the last driver."""
        return text in (self.directory / f"driver-{self.said}.log").read_text()

    def end(self) -> None:
        for driver in self.drivers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()


# -- faults


def killed(point: str, action: str) -> Callable[[Scene], None]:
    def strike(scene: Scene) -> None:
        scene.arm(point, action)
        scene.complete()
        assert is_reached(scene.directory, point), scene.log_text()

    return strike


def speculation(scene: Scene) -> None:
    """An attempt that has written hangs; another one of the same task is started beside it, and wins."""
    scene.arm(SLOW_ATTEMPT, "")
    scene.complete(
        **{
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.3",
            "spark.speculation.minTaskRuntime": "500ms",
            "spark.task.reaper.enabled": "true",
            "spark.task.reaper.killTimeout": "5s",
        }
    )
    assert is_reached(scene.directory, SLOW_ATTEMPT), scene.log_text()


def zombie(scene: Scene) -> None:
    """A driver stops before it decides; another one does the rest; the first goes on, too late."""
    scene.arm(BEFORE_DECISION, "wait")
    first = scene.start()
    scene.wait_for(lambda: is_reached(scene.directory, BEFORE_DECISION), "the first driver")
    os.killpg(first.pid, signal.SIGSTOP)
    # What it has been given on the cluster it keeps: the second takes over on this machine.
    second = scene.start(**{"spark.master": "local[2]"})
    assert second.wait(PATIENCE_S) == 0, scene.log_text()
    written = scene.written()
    scene.go()
    os.killpg(first.pid, signal.SIGCONT)
    first.wait(PATIENCE_S)
    assert scene.written() == written


def expired(scene: Scene) -> None:
    """The transactions of the batch time out before it is decided."""
    scene.arm(BEFORE_PREPARE, "wait")
    driver = scene.start(**{"sink.kafka.transaction.timeout.ms": "10000"})
    scene.wait_for(lambda: is_reached(scene.directory, BEFORE_PREPARE), "the commit")
    scene.wait_for(lambda: not scene.still_open(), "the end of transactions")
    scene.go()
    scene.wait_for(lambda: scene.is_said("is not open any more"), "what is said of it")
    scene.complete(driver)


def broker_killed(scene: Scene) -> None:
    driver = scene.start()
    before = scene.written().total()
    scene.wait_for(lambda: scene.written().total() > before or driver.poll() is not None, "output")
    broker = scene.kafka.leader_of(TARGET)
    scene.kafka.kill(broker)
    scene.complete(driver)
    scene.kafka.heal()


FAULTS: dict[str, Callable[[Scene], None]] = {
    "executor killed in write": killed(IN_WRITE, "kill jvm"),
    "task killed in write": killed(IN_WRITE, "kill"),
    "driver killed before the decision": killed(BEFORE_DECISION, "kill jvm"),
    "commit killed before the decision": killed(BEFORE_DECISION, "kill"),
    "driver killed after the decision": killed(AFTER_DECISION, "kill jvm"),
    "commit killed after the decision": killed(AFTER_DECISION, "kill"),
    "driver killed between two commits": killed(BETWEEN_COMMITS, "kill jvm"),
    "commit killed between two commits": killed(BETWEEN_COMMITS, "kill"),
    "driver killed before the checkpoint": killed(BEFORE_CHECKPOINT, "kill jvm"),
    "commit killed before the checkpoint": killed(BEFORE_CHECKPOINT, "kill"),
    "speculation": speculation,
    "zombie": zombie,
    "expired": expired,
    "broker killed": broker_killed,
}


@contextlib.contextmanager
def scenery(directory: Path, *, brokers: int) -> Iterator[Scene]:
    with Cluster(brokers=brokers, properties=PROPERTIES) as kafka, start_standalone(workers=2, cores=2) as spark:
        scene = Scene(spark, kafka, directory)
        try:
            yield scene
        finally:
            scene.end()


def campaign(scene: Scene, faults: list[str]) -> None:
    for fault in faults:
        began = time.monotonic()
        scene.feed()
        FAULTS[fault](scene)
        scene.check()
        print(f"{fault}: {time.monotonic() - began:.0f} s, {scene.written().total()} rows", flush=True)
    feed(scene.kafka.bootstrap, SOURCE, END_OF_TIME)
    scene.complete()
    assert scene.written() == expected_windows(range(scene.fed)), scene.log_text()
    scene.check()


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(2))
def test_many_faults(tmp_path: Path, seed: int) -> None:
    """Every fault at least twice a seed, and so every point four times."""
    rng = random.Random(seed)
    faults = [fault for _ in range(2) for fault in rng.sample(sorted(FAULTS), len(FAULTS))]
    with scenery(tmp_path, brokers=3) as scene:
        campaign(scene, faults)
