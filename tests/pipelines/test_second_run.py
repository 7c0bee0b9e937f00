"""A pipeline is started while the cluster knows another run of it: what waits, and for how long."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from penstock.pipelines.operate.remote import RunsAlready, reports, wait_until_alone
from penstock.pipelines.operate.reports import REPORT_KEY, PipelineReport
from penstock.spark.progress.topic import PipelinesTopic

if TYPE_CHECKING:
    from penstock.testing import Cluster

AN_HOUR_MS = 3_600_000


class Driver:
    """A process that reports for a pipeline. Its heartbeats are of later, so that none is overdue in the test."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap, self.name = bootstrap, name
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        self.heartbeat_ms = time.time_ns() // 1_000_000 + AN_HOUR_MS

    def report(self) -> None:
        self.heartbeat_ms += 1
        report = PipelineReport(
            name=self.name,
            run_id="first",
            state="running",
            driver=f"{socket.gethostname()}:{self.process.pid}",
            started_ms=0,
            heartbeat_ms=self.heartbeat_ms,
        )
        topic = PipelinesTopic(self.bootstrap, timeout=30)
        try:
            topic.put(f"{REPORT_KEY}{self.name}", report.to_json())
        finally:
            topic.close()

    def become_zombie(self) -> None:
        self.process.kill()
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is not reaped


@pytest.fixture
def driver(penstock_broker: Cluster, unique_topic: Callable[[str], str]) -> Iterator[Driver]:
    made = Driver(penstock_broker.bootstrap, unique_topic("shop"))
    made.report()
    yield made
    made.process.kill()
    made.process.wait()


def test_a_driver_that_was_killed_on_this_machine_is_not_waited_for(driver: Driver) -> None:
    said: list[str] = []
    driver.become_zombie()

    wait_until_alone(driver.bootstrap, driver.name, said.append)

    assert said == []
    assert reports(driver.bootstrap)[driver.name].is_live


def test_the_wait_ends_when_the_driver_does(driver: Driver) -> None:
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        driver.become_zombie()

    wait_until_alone(driver.bootstrap, driver.name, say)

    assert len(said) == 1 and "waiting whether it still lives" in said[0]
    assert reports(driver.bootstrap)[driver.name].is_live


def test_a_driver_that_is_heard_of_again_runs(driver: Driver) -> None:
    with pytest.raises(RunsAlready, match=f"penstock pipeline stop {driver.name}"):
        wait_until_alone(driver.bootstrap, driver.name, lambda text: driver.report())
