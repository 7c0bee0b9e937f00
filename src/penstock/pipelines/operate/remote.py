"""Observes and controls pipelines from outside, through the topic `__pipelines` of their cluster."""

from __future__ import annotations

import getpass
import logging
import os
import socket
import time
from collections.abc import Callable

from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin
from penstock.model.ids import TopicPartition
from penstock.pipelines.operate.reports import CONTROL_KEY, REPORT_KEY, Control, PipelineReport, UnreadableReport
from penstock.pipelines.spec.problems import nearest
from penstock.spark.progress.topic import TOPIC, PipelinesTopic, last_words

logger = logging.getLogger("penstock.pipelines")

_REQUEST_S = 10.0
_POLL_S = 0.25


class NotRunning(ClientError):
    """A pipeline that cannot receive commands."""


class RunsAlready(ClientError):
    """Two runs of a pipeline on one checkpoint would make each other fail."""


def reports(bootstrap: str) -> dict[str, PipelineReport]:
    """The last report of every pipeline that ran on this cluster within a week, by name."""
    found = {}
    now_ms = _now_ms()
    for key, text in sorted(last_words(bootstrap).items()):
        if key.startswith(REPORT_KEY):
            try:
                found[key.removeprefix(REPORT_KEY)] = PipelineReport.from_json(text).as_of(now_ms)
            except UnreadableReport as error:
                logger.warning("%s: %s", TOPIC, error)
    return found


def report_of(bootstrap: str, name: str) -> PipelineReport:
    """NotRunning if there is no report of such a pipeline."""
    known = reports(bootstrap)
    if name not in known:
        hint = nearest(name, known) if known else "no pipeline has reported to it within a week"
        raise NotRunning(f'{bootstrap} knows no pipeline "{name}"; {hint}')
    return known[name]


def request_stop(bootstrap: str, report: PipelineReport, *, now: bool, timeout: float) -> PipelineReport:
    """Commands a run to stop; returns its report when it has ended or the time is up."""
    key = f"{REPORT_KEY}{report.name}"
    partition = TopicPartition(TOPIC, 0)
    with Admin(bootstrap, timeout=_REQUEST_S) as admin:
        begin = admin.topics.offsets([partition])[partition]
    order = Control(
        command="stop-now" if now else "stop",
        run_id=report.run_id,
        asked_ms=_now_ms(),
        by=f"{getpass.getuser()}@{socket.gethostname()}",
    )
    topic = PipelinesTopic(bootstrap, timeout=_REQUEST_S)
    try:
        topic.put(f"{CONTROL_KEY}{report.name}", order.to_json())
    finally:
        topic.close()
    deadline = time.monotonic() + timeout
    while report.is_live and time.monotonic() < deadline:
        time.sleep(min(_POLL_S, timeout))
        word = last_words(bootstrap, begin).get(key)
        if word is not None:
            heard = PipelineReport.from_json(word)
            if heard.run_id != report.run_id:
                raise NotRunning(f"{report.name} was started again meanwhile, on {heard.driver}; that run goes on")
            report = heard
        report = report.as_of(_now_ms())
    return report


def wait_until_alone(bootstrap: str, name: str, say: Callable[[str], None]) -> None:
    """Wait until no other run of the pipeline lives; RunsAlready if one does.

    The cluster does not know yet that a driver killed a moment ago is dead. If the driver ran on this machine, its
    process is looked up. If it ran on another machine, wait: it sends a heartbeat within 10 s, or is lost after 30.
    """
    first = report = reports(bootstrap).get(name)
    if first is None or not _may_run(first):
        return
    say(f"{name} was heard of on {first.driver}; waiting whether it still lives")
    while report is not None and _may_run(report):
        if report.heartbeat_ms > first.heartbeat_ms:
            raise RunsAlready(f"{name} runs already, on {report.driver}; stop it first: penstock pipeline stop {name}")
        time.sleep(_POLL_S)
        report = reports(bootstrap).get(name)


def _may_run(report: PipelineReport) -> bool:
    return report.is_live and _may_live(report.driver)


def _may_live(driver: str) -> bool:
    """False if it was a process of this machine that no longer exists, or is a zombie: it runs no more, and its parent
    has not asked yet how it ended."""
    host, _, process = driver.rpartition(":")
    if host != socket.gethostname() or not process.isdecimal():
        return True
    if int(process) == os.getpid():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return not _is_zombie(int(process))


def _is_zombie(process: int) -> bool:
    """False where there is no /proc: there, the process is gone as soon as its parent has asked."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            after_name = file.read().rpartition(b")")[2]  # a name may contain spaces and parentheses
    except OSError:
        return False
    return after_name.split()[:1] == [b"Z"]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
