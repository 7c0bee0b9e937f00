"""One node as a real process.

    DIR/server.properties   its settings
    DIR/pid                 the process id, while it runs
    DIR/server.log          everything the process prints
    DIR/data/               its log directory

`start` returns once the process exists, `wait_ready` once it can be used: a broker answers ApiVersions, and Metadata
that includes itself; a controller answers ApiVersions. A lifeline ties the process to ours, so that none is left
behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from penstock.client.errors import ClientError
from penstock.client.wire.connection import Connection
from penstock.client.wire.login import login_from, tls_from
from penstock.local.lifeline import Lifeline
from penstock.local.properties import merge_properties
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse

CONTROLLER_LISTENER = "CONTROLLER"

_POLL_S = 0.01
_LOG_TAIL_BYTES = 4096


class NodeFailed(Exception):
    """A node did not start, or did not become ready; the message is one line."""


class LocalNode:
    def __init__(
        self,
        node_id: int,
        directory: str,
        *,
        host: str,
        port: int,
        roles: str = "broker,controller",
        properties: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        client_options: Mapping[str, str] | None = None,
    ) -> None:
        """`properties` override server.properties; `defaults` apply only to settings that it lacks.

        `wrapper` is a command that executes the node's (`nice`, `ip netns exec`); `environment` is added to ours.
        `client_options`: security settings of clients, for the check whether a broker is ready.
        """
        self.node_id = node_id
        self.directory = os.path.abspath(directory)
        self.host = host
        self.port = port
        self.roles = roles
        self.properties = dict(properties or {})
        self.defaults = dict(defaults or {})
        self._wrapper = list(wrapper)
        self._environment = dict(environment or {})
        self.client_options = dict(client_options or {})
        self.checked_at = (host, port)
        """Where `client_options` lead to an answer, for the check whether the node is ready."""
        self.process: subprocess.Popen[bytes] | None = None
        self._lifeline: Lifeline | None = None

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def stops_after(self) -> int:
        """What is stopped in order: those that use brokers, brokers, controllers."""
        return 1 if self.is_broker else 2

    @property
    def title(self) -> str:
        return f"{'node' if self.is_broker else 'controller'} {self.node_id}"

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def properties_path(self) -> str:
        return os.path.join(self.directory, "server.properties")

    @property
    def log_path(self) -> str:
        return os.path.join(self.directory, "server.log")

    @property
    def pid_path(self) -> str:
        return os.path.join(self.directory, "pid")

    @property
    def data_path(self) -> str:
        return os.path.join(self.directory, "data")

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
                    pass_fds=(lifeline.child_fd,),
                    process_group=0,  # we get Ctrl-C and stop the nodes in order; same session: see `lifeline`
                )
            finally:
                lifeline.handed_over()
        self._lifeline = lifeline
        with open(self.pid_path, "w", encoding="ascii") as pid:
            pid.write(f"{self.process.pid}\n")

    def command(self) -> list[str]:
        return [sys.executable, "-m", "penstock", "server", self.properties_path]

    def wait_ready(self, timeout: float = 30.0, *, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Return when clients can connect, or when it is `cancelled`."""
        deadline = time.monotonic() + timeout
        while not self.is_ready() and not cancelled():
            if not self.running:
                raise NodeFailed(f"{self.title} did not start: {self.last_words()}")
            if time.monotonic() > deadline:
                raise NodeFailed(f"{self.title} is not ready after {timeout:g} s; see {self.log_path}")
            time.sleep(_POLL_S)

    def is_ready(self) -> bool:
        """Whether clients can use the node: a broker must be in the list of brokers that it reports."""
        if self.is_broker:
            return self.node_id in self.known_brokers()
        try:
            Connection(*self.checked_at, timeout=2.0, tls=tls_from(self.client_options)).close()
        except ClientError:
            return False
        return True

    def known_brokers(self) -> set[int]:
        """Return the brokers that this one reports to clients; none if it does not answer."""
        try:
            login, tls = login_from(self.client_options), tls_from(self.client_options)
            with Connection(*self.checked_at, timeout=2.0, login=login, tls=tls) as connection:
                metadata = connection.request(MetadataRequest(topics=[]), MetadataResponse)
        except ClientError:
            return set()
        return {broker.node_id for broker in metadata.brokers}

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

    def write_properties(self) -> None:
        host = f"[{self.host}]" if ":" in self.host else self.host
        ours = {
            "process.roles": self.roles,
            "node.id": str(self.node_id),
            "listeners": f"{'PLAINTEXT' if self.is_broker else CONTROLLER_LISTENER}://{host}:{self.port}",
            "log.dirs": self.data_path,
            **self.properties,
        }
        try:
            with open(self.properties_path, encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError:
            text = ""
        with open(self.properties_path, "w", encoding="utf-8") as file:
            file.write(merge_properties(text, ours, self.defaults))
