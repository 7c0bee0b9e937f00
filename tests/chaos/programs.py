"""Programs that tests start, kill, pause and end, each a process of its own that tells what it does, line by line.

A program ends by itself on request, and when its output is closed: none outlives the test run.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_PATHS = os.path.dirname(_HERE)

Event = Mapping[str, Any]
KILLED = -signal.SIGKILL


class Program:
    """The test's side: `heard` is called with every event, on a thread."""

    def __init__(self, module: str, settings: Mapping[str, Any], heard: Callable[[Program, Event], None]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([_PATHS, *_given_paths()])},
            process_group=0,  # what it has started is killed and paused with it
        )
        self.is_paused = False
        self._heard = heard
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):  # a killed program may have been in the middle of one
                    self._heard(self, json.loads(line))

    def _signal(self, signal_number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal_number)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._end(10)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def print_stacks(self) -> None:
        """It prints what its threads do, soon: for failures that a program which hangs may explain."""
        self._signal(signal.SIGUSR1)

    def leave(self, timeout: float = 60) -> int:
        """Let it finish what it does, and its status; everything it had to tell has been heard on return.

        One that hangs is killed: a librdkafka (2.16) whose broker goes away while it asks for the end of an epoch may
        wait for itself forever (librdkafka#5476).
        """
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            return self._end(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return KILLED

    def _end(self, timeout: float) -> int:
        status = self.process.wait(timeout)
        self._thread.join(timeout)
        assert self.process.stdin is not None
        self.process.stdin.close()
        return status


def _given_paths() -> list[str]:
    return [path for path in (os.environ.get("PYTHONPATH"),) if path]


class Reports:
    """The program's side."""

    def __init__(self) -> None:
        self._leaving = threading.Event()
        faulthandler.register(signal.SIGUSR1)
        threading.Thread(target=self._wait_for_end, daemon=True).start()

    def _wait_for_end(self) -> None:
        sys.stdin.read()
        self._leaving.set()

    @property
    def is_to_leave(self) -> bool:
        return self._leaving.is_set()

    def tell(self, **event: Any) -> None:
        """Heard even if this program is killed right afterwards."""
        os.write(sys.stdout.fileno(), json.dumps(event).encode() + b"\n")


def settings() -> dict[str, Any]:
    return dict(json.loads(sys.argv[1]))
