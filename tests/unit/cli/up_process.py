"""`penstock up` as a process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.local.node import LocalNode

DEADLINE_S = 60


class Up:
    def __init__(self, data: Path, port: int, *options: str) -> None:
        self.data, self.port = data, port
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "up", "--data", str(data), "--port", str(port), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ready_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def error_line(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, out, err

    @property
    def node_pid(self) -> int:
        return int((self.data / "node-1" / "pid").read_text())

    def answers(self) -> bool:
        return LocalNode(1, str(self.data / "node-1"), host="127.0.0.1", port=self.port).is_ready()


StartUp = Callable[..., Up]


@contextlib.contextmanager
def starting_up(directory: Path, free_port: Callable[[], int]) -> Iterator[StartUp]:
    """What starts `penstock up`; every process that it has started ends with the block."""
    started: list[Up] = []

    def start(*options: str, data: Path = directory, port: int | None = None) -> Up:
        running = Up(data, free_port() if port is None else port, *options)
        started.append(running)
        return running

    yield start
    for running in started:
        running.process.kill()
        running.process.communicate()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
