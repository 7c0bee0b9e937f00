"""A pipeline on a Spark cluster that is hurt: its topics, its Delta table and its table of PostgreSQL have what a plain
computation over the same events has, every row once, and every dead letter once.

Drivers, executors, brokers and the database are hurt in the middle of a batch, at moments that can be seen from
outside; a fault that came after the end of the batch does not count, and is tried again.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.pipeline_scene import Scene
from penstock.testing import Cluster
from postgres_server import postgres_server
from spark.standalone import start_standalone

TRIES = 10
MOMENT_S = 300.0
PROPERTIES = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


# -- moments of a batch

Moment = tuple[str, Callable[[Scene, int], bool]]
"""The query whose batch it is, and whether its moment has come."""

MOMENTS: dict[str, Moment] = {
    "dead letters are looked for": ("locations", lambda scene, batch: True),
    "a batch has begun": ("trucks", lambda scene, batch: True),
    "the lake has the batch": ("trucks", lambda scene, batch: scene.batch_in_lake() == batch),
    "lake and table have the batch": ("trucks", lambda scene, batch: scene.batch_in_table() == batch),
}


# -- faults: each takes aim while the run goes on, hurts when it is called again, and mends when it is called once more

Stages = Iterator[None]
Fault = Callable[[Scene], Stages]


def driver_killed(scene: Scene) -> Stages:
    yield
    scene.kill_driver()


def python_of_driver_killed(scene: Scene) -> Stages:
    """Its JVM finds out by itself, perhaps when the next driver runs already."""
    driver = scene.driver()
    yield
    driver.kill()
    driver.wait()


def java_of_driver_killed(scene: Scene) -> Stages:
    yield
    java = scene.java()  # only now: what starts it is a JVM, too
    assert java is not None
    os.kill(java, signal.SIGKILL)


def executor_killed(scene: Scene) -> Stages:
    scene.wait_for(scene.spark.executor_pids, "an executor")
    executor = random.choice(scene.spark.executor_pids())
    yield
    os.kill(executor, signal.SIGKILL)


def broker_killed(scene: Scene) -> Stages:
    """It comes back when some batch was done without it."""
    broker = scene.kafka.leader_of("trucks", random.randrange(2))
    yield
    scene.kafka.kill(broker)
    done = scene.batches_done()
    yield
    scene.wait_for(lambda: scene.batches_done() > done, "the end of a batch")
    scene.kafka.heal()


def postgres_stopped(scene: Scene) -> Stages:
    """It comes back when the pipeline was heard to miss it."""
    yield
    scene.postgres.stop()
    yield
    scene.wait_for(lambda: "PostgreSQL" in scene.trouble(), "what is said of it")
    scene.postgres.start()


FAULTS: dict[str, Fault] = {
    "driver killed": driver_killed,
    "Python of the driver killed": python_of_driver_killed,
    "Java of the driver killed": java_of_driver_killed,
    "executor killed": executor_killed,
    "broker killed": broker_killed,
    "PostgreSQL stopped": postgres_stopped,
}

STRIKES = [
    (fault, moment)
    for fault, moment in itertools.product(FAULTS, MOMENTS)
    if fault != "PostgreSQL stopped" or moment in ("a batch has begun", "the lake has the batch")
]


def strike(scene: Scene, fault: str, moment: str) -> bool:
    """Whether it hit the batch under way."""
    query, has_come = MOMENTS[moment]
    scene.feed()
    scene.driver()
    stages = FAULTS[fault](scene)
    next(stages)
    batch = _awaited(scene, query, has_come)
    if batch is None:
        return False
    next(stages, None)
    hit = not scene.is_done(query, batch)
    next(stages, None)
    return hit


def _awaited(scene: Scene, query: str, has_come: Callable[[Scene, int], bool]) -> int | None:
    """The batch whose moment it is; None if there was none."""
    driver = scene.driver()
    deadline = time.monotonic() + MOMENT_S
    while driver.poll() is None and time.monotonic() < deadline:
        batch = scene.batch_under_way(query)
        if batch is not None and has_come(scene, batch):
            return batch
        time.sleep(0.02)
    return None


@contextlib.contextmanager
def scenery(directory: Path, *, once: bool) -> Iterator[Scene]:
    with (
        postgres_server() as postgres,
        Cluster(brokers=3, properties=PROPERTIES) as kafka,
        start_standalone(workers=2) as spark,
    ):
        scene = Scene(spark, kafka, postgres, directory, once=once)
        try:
            yield scene
        finally:
            scene.end()


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("once", [True, False], ids=["once", "continuous"])
def test_a_pipeline_that_is_hurt(tmp_path: Path, once: bool) -> None:
    with scenery(tmp_path, once=once) as scene:
        for fault, moment in random.Random(10).sample(STRIKES, len(STRIKES)):
            began, hit, tries = time.monotonic(), False, 0
            while not hit:
                tries += 1
                assert tries <= TRIES, f"{fault} never came when {moment}"
                hit = strike(scene, fault, moment)
                scene.settle()
                assert scene.differences() == {}, f"{fault} when {moment}\n{scene.log_text()}"
            print(f"{fault} when {moment}: {time.monotonic() - began:.0f} s, {tries} tries", flush=True)
        if not once:
            print(f"stopped in {scene.stop():.1f} s", flush=True)
