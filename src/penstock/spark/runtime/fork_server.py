"""Forks Spark's Python workers from a process that has already imported what they need.

For one streaming query from topic to topic Spark starts six Python processes, one after the other: to look up, create,
plan, read and write the source and the sink. Each imports PySpark, and those that touch records import numba and Arrow:
four seconds until the first batch. So a local session starts one process beside Java that imports all of it meanwhile.
The script that Spark takes for Python (`worker_python`) hands over what it was started with (arguments, environment,
working directory, standard streams) and waits; this process forks a child that goes on as if it had been started that
way.

    python -m penstock.spark.runtime.fork_server SOCKET

The server ends when its standard input does, which is a pipe from the driver. It never makes a worker fail: where it is
missing, ends, or does not want to fork, the script starts Python as before. It does not fork if

- a thread runs in it, other than the memory allocator's: locks that it holds would stay locked in the child;
- the child is to have another hash seed, which cannot be changed once Python runs.

numpy's own threads are off here and in all workers: tasks run in parallel already.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from penstock.spark.runtime import kernels

VARIABLE = "PENSTOCK_FORK_SERVER"
"""In the environment of Java and its workers: the server's socket."""
SETTING = "spark.penstock.forkServer"
FORKED, REFUSED = b"\x01", b"\x00"

PRELOADED = (
    "penstock.spark.datasource",
    "penstock.spark.sink.writer",
    "penstock.spark.source.reader",
    "penstock.spark.source.fetching",
    "penstock.spark.source.stream_planner",
    "penstock.spark.worker_daemon",
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
)
_STREAMS = 3
_HARMLESS_THREADS = ("jemalloc_bg_thd",)  # it knows of forks
_REQUEST_S = 10.0
_END_S = 2.0
_REQUEST_BYTES_MAX = 4 << 20
_PATH_BYTES_MAX = 107


class _Running(NamedTuple):
    process: subprocess.Popen[bytes]
    path: str


_running: _Running | None = None  # its standard input stays open until this process ends


def start_fork_server(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Start a server, unless one runs already; returns the environment variables that lead workers to it. It lives as
    long as this process. If it cannot be started, workers start without it."""
    global _running
    if _running is not None and _running.process.poll() is None:
        return {VARIABLE: _running.path}
    directory = tempfile.mkdtemp(prefix="penstock-fork-")  # only this user may look into it
    path = os.path.join(directory, "s")
    if len(os.fsencode(path)) > _PATH_BYTES_MAX:
        os.rmdir(directory)
        return {}
    seed = environment.get("PYTHONHASHSEED") or "0"  # as Spark sets it for its workers
    try:
        server = subprocess.Popen(
            [sys.executable, "-m", "penstock.spark.runtime.fork_server", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**environment, "PYTHONHASHSEED": seed, "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is meant for the driver
        )
    except OSError:
        os.rmdir(directory)
        return {}
    _running = _Running(server, path)
    atexit.register(_end, server)
    return {VARIABLE: path}


def _end(server: subprocess.Popen[bytes]) -> None:
    assert server.stdin is not None
    server.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(_END_S)


def wanted(config: Mapping[str, str]) -> bool:
    return config.get(SETTING, "true").strip().lower() != "false"


class ForkServer:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._children: dict[int, socket.socket] = {}
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Until standard input ends."""
        signal.set_wakeup_fd(self._wake)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        poller = select.poll()
        for file in (0, self._listener.fileno(), self._woken):
            poller.register(file, select.POLLIN)
        while True:
            ready = {file for file, _ in poller.poll()}
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap()
            if 0 in ready:
                return
            if self._listener.fileno() in ready:
                connection, _ = self._listener.accept()
                with contextlib.suppress(OSError, ValueError):  # the script starts Python itself
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(_REQUEST_S)
        request, files = _received(connection)
        try:
            if len(files) != _STREAMS or not _may_fork(request["environment"]) or (process := _forked()) is None:
                connection.sendall(REFUSED)
                connection.close()
                return
            if not process:
                self._listener.close()
                # The child keeps the connection, too: should this process end, the script still waits for the child.
                connection.sendall(FORKED)
                _become(request, files)
            self._children[process] = connection
        finally:
            for file in files:
                os.close(file)

    def _reap(self) -> None:
        """Hand the exit status of a child to the process that waits for it."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                process, status = ended
                with contextlib.suppress(OSError), self._children.pop(process) as connection:
                    connection.sendall(bytes([os.waitstatus_to_exitcode(status) & 0xFF]))


def _forked() -> int | None:
    try:
        return os.fork()
    except OSError:
        return None


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A request: its length in four bytes, and JSON; the standard streams come with the first bytes."""
    data, files, _, _ = socket.recv_fds(connection, 4, _STREAMS)
    try:
        size = int.from_bytes(data)
        if len(data) != 4 or size > _REQUEST_BYTES_MAX:
            raise ValueError("not a request")
        content = b""
        while len(content) < size:
            received = connection.recv(size - len(content))
            if not received:
                raise ConnectionResetError("the request ends early")
            content += received
        return json.loads(content), files
    except BaseException:
        for file in files:
            os.close(file)
        raise


def _may_fork(environment: Mapping[str, str]) -> bool:
    if environment.get("PYTHONHASHSEED") != os.environ.get("PYTHONHASHSEED"):
        return False
    names = []
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/comm", encoding="utf-8") as file:
            names.append(file.read().strip())
    return sum(name not in _HARMLESS_THREADS for name in names) == 1


def _become(request: Mapping[str, Any], files: list[int]) -> NoReturn:
    """In the child: go on as `python -m MODULE ARGUMENT...` would."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for target, file in enumerate(files):
            os.dup2(file, target)
            os.close(file)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["directory"])
        paths = [path for path in os.environ.get("PYTHONPATH", "").split(":") if path and path not in sys.path]
        sys.path[:0] = paths
        module, *arguments = request["arguments"]
        sys.argv = [module, *arguments]
        sys.modules.pop(module, None)  # it becomes __main__
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except (BrokenPipeError, ConnectionResetError):
        status = 1  # Spark has stopped the query, and reads no more
    except BaseException:  # noqa: BLE001  # as the interpreter would, at its end
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status & 0xFF)


def _draw_anew() -> None:
    """In the child and in all that it forks: numpy would draw the same numbers in each. (Python's `random` and numba
    see to that themselves; so do modules of Penstock that have an identity.)"""
    import numpy as np

    np.random.seed()  # what users draw from who do not seed


def main() -> None:
    (path,) = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)  # requests that come while modules are imported wait for them
        try:
            kernels.main()  # the first time on this machine they are compiled here, while Java starts
            for name in PRELOADED:
                importlib.import_module(name)
            os.register_at_fork(after_in_child=_draw_anew)
            gc.collect()
            gc.freeze()  # children do not search these objects, nor copy their pages
            ForkServer(listener).serve()
        finally:
            os.unlink(path)
            os.rmdir(os.path.dirname(path))


if __name__ == "__main__":
    main()
