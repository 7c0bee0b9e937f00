"""Backfills that were started from a page: child processes of the console, which end with it.

A backfill reports to the cluster as any pipeline does, so the pages show it as one. One that was stopped with the
console goes on where it was when it is started again under the same name.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence

from penstock.client.errors import ClientError

RUNNING_MAX = 2
_GRACE_S = 10.0
_TAIL_BYTES = 4096
_COMMAND = (sys.executable, "-m", "penstock")


class Backfills:
    def __init__(self, command: Sequence[str] = _COMMAND) -> None:
        self._command = list(command)
        self._lock = threading.Lock()
        self._running: dict[str, tuple[subprocess.Popen[bytes], str]] = {}

    def start(self, name: str, arguments: Sequence[str]) -> None:
        """ClientError if it runs already, or too many do."""
        with self._lock:
            running = [each for each, (process, _) in self._running.items() if process.poll() is None]
            if name in running:
                raise ClientError(f"the backfill {name} is running")
            if len(running) >= RUNNING_MAX:
                raise ClientError(f"{RUNNING_MAX} backfills are running: {', '.join(running)}; wait, or stop one")
            self._forget(name)
            descriptor, log = tempfile.mkstemp(prefix="penstock-backfill-", suffix=".log")
            with os.fdopen(descriptor, "wb") as output:
                process = subprocess.Popen(
                    [*self._command, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._running[name] = (process, log)

    def states(self) -> dict[str, str]:
        """The backfills of this console, and what became of each."""
        with self._lock:
            return {name: _state(process, log) for name, (process, log) in self._running.items()}

    def close(self) -> None:
        with self._lock:
            for process, _ in self._running.values():
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
            for name in list(self._running):
                process, _ = self._running[name]
                try:
                    process.wait(_GRACE_S)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                self._forget(name)

    def _forget(self, name: str) -> None:
        known = self._running.pop(name, None)
        if known is not None:
            os.unlink(known[1])


def _state(process: subprocess.Popen[bytes], log: str) -> str:
    status = process.poll()
    if status is None:
        return "running"
    if status == 0:
        return "ended"
    with open(log, "rb") as output:
        output.seek(max(0, os.path.getsize(log) - _TAIL_BYTES))
        lines = output.read().decode(errors="replace").strip().splitlines()
    return f"failed: {lines[-1].strip() if lines else f'status {status}'}"
