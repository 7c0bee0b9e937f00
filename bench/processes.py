"""Processes under measurement: start, wait for the first sign of life, CPU and memory from /proc, end by pid."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE_SIZE = resource.getpagesize()


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process so far.

    `schedstat` counts nanoseconds where `stat` counts ticks of 10 ms; a load of half a second needs the former.
    Threads that ended in between are missing from it, so the larger of the two figures is the better one.
    """
    nanoseconds = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with (
                contextlib.suppress(FileNotFoundError, ProcessLookupError),
                open(f"/proc/{pid}/task/{thread}/schedstat") as file,
            ):
                nanoseconds += int(file.read().split()[0])
    except FileNotFoundError as missing:
        raise ProcessLookupError(f"no process {pid}") from missing
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return max(nanoseconds / 1e9, ticks * _TICK_S)


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * _PAGE_SIZE


def listening_pid(port: int) -> int | None:
    """The local process that listens on a port, if /proc lets us see it: a peer is given by its address only."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError), open(table) as file:
            for line in file.readlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(FileNotFoundError, PermissionError, ProcessLookupError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(FileNotFoundError):
                    if os.readlink(f"/proc/{pid}/fd/{descriptor}") in inodes:
                        return int(pid)
    return None


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = START_TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.002)


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True


class ServerProcess:
    """A child process that listens on a port; its output is kept in a file, shown when it dies too early."""

    def __init__(
        self, command: Sequence[str], port: int, log_path: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.port = port
        self._log_path = log_path
        with open(log_path, "ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **(environment or {})}
            )
        self.pid = self._process.pid

    def wait_for(self, ready: Callable[[], bool]) -> None:
        def alive_and_ready() -> bool:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended with status {self._process.returncode}:\n{self.output()}")
            return ready()

        wait_until(alive_and_ready, f"server on port {self.port}")

    def output(self) -> str:
        with open(self._log_path, errors="replace") as log:
            return log.read()[-4000:]

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()


@contextlib.contextmanager
def stopped_at_end(server: ServerProcess) -> Iterator[ServerProcess]:
    try:
        yield server
    finally:
        server.stop()


class Job:
    """A load generator: a module of this package that reads its JSON arguments and prints a JSON result."""

    def __init__(self, module: str, arguments: Mapping[str, Any]) -> None:
        self._module = module
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def result(self, timeout_s: float = 300.0) -> dict[str, Any]:
        try:
            output, errors = self._process.communicate(timeout=timeout_s)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        if self._process.returncode != 0:
            raise RuntimeError(f"{self._module} failed with status {self._process.returncode}:\n{errors[-4000:]}")
        result: dict[str, Any] = json.loads(output.splitlines()[-1])
        return result


def run_job(module: str, arguments: Mapping[str, Any], timeout_s: float = 300.0) -> dict[str, Any]:
    return Job(module, arguments).result(timeout_s)
