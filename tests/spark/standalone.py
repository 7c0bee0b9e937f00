"""A real Spark cluster on this machine: a master and workers as processes, on free ports, in a directory of their own.

    with start_standalone(workers=2) as cluster:
        driver = cluster.start_driver("query.py", "orders")     # a process with its own JVM
        os.kill(cluster.executor_pids()[0], signal.SIGKILL)
        cluster.kill_worker(0)
        cluster.start_worker()
        ...

Everything that belongs to the cluster (daemons, executors, their Python workers, drivers) carries its mark in the
environment. Leaving the block ends whatever carries it, process by process; should the test run die, a warden process
does so in its place.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from penstock.local.ports import free_ports
from penstock.spark.runtime.java import find_java, java_home

MARK = "PENSTOCK_STANDALONE"
READY_S = 90.0
_POLL_S = 0.05

# Daemons that do next to nothing, and shall start quickly and be small.
_DAEMON_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"


class StandaloneCluster:
    def __init__(self, directory: str, *, cores: int, memory: str, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self.mark = os.urandom(8).hex()
        self._cores, self._memory = cores, memory
        self._port, self._ui_port = free_ports(2)
        self._own_environment = dict(environment)
        self._master: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        """For `session(master=...)`."""
        return f"spark://127.0.0.1:{self._port}"

    def environment(self, **more: str) -> dict[str, str]:
        """Of the cluster's processes, and of drivers. Nothing of Spark's own settings leaks in from outside."""
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        return outside | {
            MARK: self.mark,
            "JAVA_HOME": java_home(find_java()),
            "SPARK_CONF_DIR": os.path.join(self.directory, "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": os.path.join(self.directory, "local"),
            **more,
        }

    def start_master(self) -> None:
        os.makedirs(os.path.join(self.directory, "conf"), exist_ok=True)
        where = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._ui_port)]
        self._master = self._start("master", "org.apache.spark.deploy.master.Master", *where)
        self.wait_until(lambda: self.state()["status"] == "ALIVE", "the master")

    def start_worker(self) -> int:
        """Its index in `workers`. It still has to register: `wait_for_workers`.

        Each has an address of its own: Spark does not start a second attempt of a task on the machine of the first.
        """
        number = len(self.workers)
        address = f"127.0.0.{number + 1}"
        size = ["--cores", str(self._cores), "--memory", self._memory]
        where = ["--host", address, "--webui-port", "0", "--work-dir", os.path.join(self.directory, "work")]
        worker = "org.apache.spark.deploy.worker.Worker"
        started = self._start(f"worker-{number}", worker, *where, *size, self.master, SPARK_LOCAL_IP=address)
        self.workers.append(started)
        return number

    def wait_for_workers(self, count: int) -> None:
        def registered() -> bool:
            return [worker["state"] for worker in self.state()["workers"]].count("ALIVE") == count

        self.wait_until(registered, f"{count} workers")

    def kill_worker(self, number: int) -> None:
        """kill -9. Its executors notice and end by themselves."""
        self.workers[number].kill()
        self.workers[number].wait()

    def state(self) -> Any:
        """What the master tells of itself: `workers`, `activeapps`, ..."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._ui_port}/json/", timeout=10) as answer:
            return json.load(answer)

    def start_driver(
        self, script: str | os.PathLike[str], *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """`python SCRIPT MASTER ARGUMENT...`; both of its outputs arrive on `stdout`."""
        return subprocess.Popen(
            [sys.executable, os.fspath(script), self.master, *arguments],
            cwd=self.directory,
            env=self.environment(**(environment or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def executor_pids(self) -> list[int]:
        """The executors' JVMs."""
        return [pid for pid in marked(self.mark) if "CoarseGrainedExecutorBackend" in _command_line(pid)]

    def wait_until(self, condition: Callable[[], bool], what: str, timeout: float = READY_S) -> None:
        deadline = time.monotonic() + timeout
        while True:
            # A master whose page is not complete yet answers with something else than JSON.
            with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError, json.JSONDecodeError):
                if condition():
                    return
            assert self._master is not None and self._master.poll() is None, f"the master ended\n{self.log_text()}"
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not there after {timeout:g} s\n{self.log_text()}")
            time.sleep(_POLL_S)

    def log_text(self) -> str:
        """What master and workers have printed."""
        texts = []
        for name in sorted(os.listdir(self.directory)):
            if name.endswith(".log"):
                with open(os.path.join(self.directory, name), encoding="utf-8", errors="replace") as log:
                    texts.append(f"--- {name}\n{log.read()}")
        return "\n".join(texts)

    def end(self) -> None:
        """Whatever carries the mark; returns when it is gone."""
        end_marked(self.mark)
        for daemon in filter(None, (self._master, *self.workers)):
            daemon.wait()

    def _start(self, name: str, main: str, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        import pyspark

        home = os.path.dirname(pyspark.__file__)
        environment = self.environment(
            SPARK_HOME=home, SPARK_DAEMON_MEMORY="256m", SPARK_DAEMON_JAVA_OPTS=_DAEMON_OPTIONS, **more
        )
        with open(os.path.join(self.directory, f"{name}.log"), "ab") as log:
            return subprocess.Popen(
                [os.path.join(home, "bin", "spark-class"), main, *arguments],
                cwd=self.directory,
                env=environment | self._own_environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )


@contextmanager
def start_standalone(
    workers: int = 2, *, cores: int = 1, memory: str = "1g", environment: Mapping[str, str] | None = None
) -> Iterator[StandaloneCluster]:
    """A master and its workers, registered on return. `cores` and `memory` are what one worker has to give;
    `environment` is laid over that of the daemons, and so of the executors."""
    directory = tempfile.mkdtemp(prefix="penstock-standalone-")
    cluster = StandaloneCluster(directory, cores=cores, memory=memory, environment=environment or {})
    warden = subprocess.Popen(
        [sys.executable, __file__, cluster.mark, directory], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        cluster.start_master()
        for _ in range(workers):
            cluster.start_worker()
        cluster.wait_for_workers(workers)
        yield cluster
    finally:
        cluster.end()
        warden.communicate()


def marked(mark: str) -> list[int]:
    """The processes that carry it, but for this one."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and int(entry) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as environ:
                if wanted in environ.read().split(b"\0"):
                    found.append(int(entry))
    return found


def end_marked(mark: str) -> None:
    """Again and again, because a process that ends may have started another."""
    while pids := marked(mark):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def _command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as command:
            return command.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def keep_watch(mark: str, directory: str) -> None:
    """The warden: waits until whoever started it closes its end, by intent or by dying, and cleans up."""
    sys.stdin.buffer.read()
    end_marked(mark)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    keep_watch(*sys.argv[1:])
