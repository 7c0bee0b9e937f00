"""A child process of a local cluster: how it starts, becomes ready and stops.

    DIR/pid                 the process id, while it runs
    DIR/server.log          everything the process prints

`start` returns once the process exists, `wait_ready` once it can be used. A lifeline ties the process to ours, so that
none is left behind. Nodes, the registry and the console are such processes (`node`, `web`); the supervisor keeps all of
them running in the same way.
"""

from __future__ import annotations

import abc
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from penstock.local.lifeline import Lifeline

_POLL_S = 0.01
_LOG_TAIL_BYTES = 4096


class NodeFailed(Exception):
    """A process did not start, or did not become ready; the message is one line."""


class LocalProcess(abc.ABC):
    is_broker = False
    stops_after = 0
    """Its place in the order of stopping: first what uses brokers (0), then brokers (1), then controllers (2)."""

    def __init__(
        self,
        title: str,
        directory: str,
        *,
        host: str,
        port: int,
        wrapper: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        cores: Sequence[int] = (),
    ) -> None:
        """`title`: its name in messages. `wrapper`: a command that executes this one (`nice`, `ip netns exec`).
        `environment` is added to ours. `cores`: the only ones that the process may use."""
        self.title = title
        self.directory = os.path.abspath(directory)
        self.host = host
        self.port = port
        self._wrapper = list(wrapper)
        self._environment = dict(environment or {})
        self.cores = tuple(cores)
        self.process: subprocess.Popen[bytes] | None = None
        self.inherited_fds: tuple[int, ...] = ()
        """Further file descriptors that the process inherits, and keeps open until it ends."""
        self._lifeline: Lifeline | None = None

    @abc.abstractmethod
    def command(self) -> list[str]:
        """The command; it must accept the option --lifeline."""

    @abc.abstractmethod
    def is_ready(self) -> bool:
        """Whether clients can use it."""

    def write_properties(self) -> None:  # noqa: B027  # not every process has some
        """Write the settings that the process reads when it starts."""

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def log_path(self) -> str:
        return os.path.join(self.directory, "server.log")

    @property
    def pid_path(self) -> str:
        return os.path.join(self.directory, "pid")

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Write the settings and start the process. It is not ready yet."""
        assert not self.running
        self._release()
        os.makedirs(self.directory, exist_ok=True)
        self.write_properties()
        lifeline = Lifeline()
        with open(self.log_path, "ab") as log:
            try:
                self.process = subprocess.Popen(
                    [*self._wrapper, *self.command(), "--lifeline", str(lifeline.child_fd)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **self._environment},
                    pass_fds=(lifeline.child_fd, *self.inherited_fds),
                    process_group=0,  # we get Ctrl-C and stop the nodes in order; same session: see `lifeline`
                )
            finally:
                lifeline.handed_over()
        self._lifeline = lifeline
        if self.cores:
            # Threads inherit it, and the process has none yet: it has just begun to load Python.
            os.sched_setaffinity(self.process.pid, self.cores)
        with open(self.pid_path, "w", encoding="ascii") as pid:
            pid.write(f"{self.process.pid}\n")

    def wait_ready(self, timeout: float = 30.0, *, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Return when clients can connect, or when it is `cancelled`."""
        deadline = time.monotonic() + timeout
        while not self.is_ready() and not cancelled():
            if not self.running:
                raise NodeFailed(f"{self.title} did not start: {self.last_words()}")
            if time.monotonic() > deadline:
                raise NodeFailed(f"{self.title} is not ready after {timeout:g} s; see {self.log_path}")
            time.sleep(_POLL_S)

    def stop(self, grace_seconds: float = 30.0) -> int:
        """Send SIGTERM, then SIGKILL after the grace period; return the exit status."""
        if self.process is None:
            return 0
        self.begin_stop()
        try:
            self.process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        return self._release()

    def begin_stop(self) -> None:
        """Send SIGTERM, and SIGCONT so that a stopped (SIGSTOP) process handles it."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process is gone."""
        if self.process is not None:
            self.signal(signal.SIGKILL)
            self.process.wait()
            self._release()

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def log_text(self) -> str:
        try:
            with open(self.log_path, encoding="utf-8", errors="replace") as log:
                return log.read()
        except FileNotFoundError:
            return ""

    def last_words(self) -> str:
        """Return the last line of server.log, for a one-line message."""
        try:
            with open(self.log_path, "rb") as log:
                log.seek(max(0, os.path.getsize(self.log_path) - _LOG_TAIL_BYTES))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except FileNotFoundError:
            lines = []
        return lines[-1].strip() if lines else f"nothing in {self.log_path}"

    def _release(self) -> int:
        """Release a process that has ended."""
        status = 0
        if self.process is not None:
            status = self.process.wait()
            self.process = None
        if self._lifeline is not None:
            self._lifeline.cut()
            self._lifeline = None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.pid_path)
        return status
