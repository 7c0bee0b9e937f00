"""Runs several pipelines in one Spark session: a Java process for all of them instead of one for each.

    together = Together([Runner(orders, spark), Runner(fleet, spark)])
    together.run()
    together.failures  # by pipeline

Each pipeline has its runner, its queries and checkpoints, and reports to its own cluster. One that fails ends alone. If
Spark itself ends, all fail.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from penstock.pipelines.engine.runner import Runner

_POLL_S = 0.1


class Together:
    def __init__(self, runners: Sequence[Runner], failed: Callable[[Runner, Exception], None] | None = None) -> None:
        """`failed` is called for each pipeline that fails, when it has ended, in the thread that calls `run`."""
        self.runners = list(runners)
        self.failures: dict[str, Exception] = {}
        self._tell = failed or (lambda runner, error: None)
        self._stopping = threading.Event()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """From any thread or signal handler: running batches finish, and `run` returns."""
        self._stopping.set()
        for runner in self.runners:
            runner.stop()

    def cut(self) -> None:
        """The same without waiting for running batches."""
        self._stopping.set()
        for runner in self.runners:
            runner.cut()

    def run(self, tick: Callable[[], None] = lambda: None, *, once: bool = False) -> None:
        """Until all have ended: when they are stopped or, with `once`, when they have read what exists."""
        running = [_Run(runner, once) for runner in self.runners]
        for each in running:
            each.start()
        try:
            while any(each.is_alive() for each in running):
                tick()
                self._collect(running)
                time.sleep(_POLL_S)
        finally:
            if any(each.is_alive() for each in running):
                self.stop()
            for each in running:
                each.join()
        tick()
        self._collect(running)

    def _collect(self, running: list[_Run]) -> None:
        for each in running:
            name = each.runner.loaded.pipeline.name
            if each.error is not None and not each.is_alive() and name not in self.failures:
                self.failures[name] = each.error
                self._tell(each.runner, each.error)


class _Run(threading.Thread):
    def __init__(self, runner: Runner, once: bool) -> None:
        super().__init__(name=f"pipeline {runner.loaded.pipeline.name}", daemon=True)
        self.runner = runner
        self.error: Exception | None = None
        self._once = once

    def run(self) -> None:
        try:
            (self.runner.run_once if self._once else self.runner.run)()
        except Exception as error:  # noqa: BLE001  # the caller reports it
            self.error = error
