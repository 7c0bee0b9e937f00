"""Spark's Python workers, forked from a process that has imported what they need: real processes, without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.spark.runtime import fork_client, fork_server
from penstock.spark.runtime.worker_python import worker_python
from waiting import wait_until

PROGRAM = """
import os, sys
print(os.getppid(), "numba" in sys.modules, os.environ["WHO"], os.getcwd(), *sys.argv[1:], sys.stdin.read(), flush=True)
print("to stderr", file=sys.stderr)
sys.exit(7)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    (path,) = fork_server.start_fork_server().values()
    running = fork_server._running
    assert running is not None
    wait_until(lambda: os.path.exists(path), "the server's socket")
    yield path
    assert running.process.stdin is not None
    running.process.stdin.close()
    running.process.wait()
    assert not os.path.exists(os.path.dirname(path))


def started(place: Path, server: str, program: str = PROGRAM, **environment: str) -> subprocess.CompletedProcess[str]:
    """A module of the test's, as Spark would start it."""
    (place / "program.py").write_text(program)
    client = [sys.executable, "-I", "-S", fork_client.__file__, sys.executable, server]
    variables = {**os.environ, "PYTHONPATH": f"{place}:{os.environ.get('PYTHONPATH', '')}", "WHO": "me", **environment}
    return subprocess.run(
        [*client, "-m", "program", "a", "b c"],
        input="in",
        capture_output=True,
        text=True,
        cwd=place,
        env={"PYTHONHASHSEED": "0", **variables},
    )


def test_a_worker_is_forked_and_looks_as_if_it_had_been_started(tmp_path: Path, server: str) -> None:
    running = fork_server._running
    assert running is not None
    for _ in range(2):
        done = started(tmp_path, server)
        assert done.stdout == f"{running.process.pid} True me {tmp_path} a b c in\n"
        assert done.stderr == "to stderr\n"
        assert done.returncode == 7


@pytest.mark.parametrize("reason", ["another hash seed", "no server"])
def test_a_worker_that_cannot_be_forked_is_started(tmp_path: Path, server: str, reason: str) -> None:
    path, seed = (server, "1") if reason == "another hash seed" else (str(tmp_path / "none"), "0")

    done = started(tmp_path, path, PYTHONHASHSEED=seed)

    assert done.stdout == f"{os.getpid()} False me {tmp_path} a b c in\n"
    assert (done.stderr, done.returncode) == ("to stderr\n", 7)


IDENTITY = """
import os
import numpy
from penstock.spark.sink import worker_connections, writer

def identity():
    slot = worker_connections._slots.take("sink", "run", 0)
    return f"{slot} {writer._application} {numpy.random.random()}"

print(identity(), flush=True)
for _ in range(2):  # as Spark's daemon does
    if not os.fork():
        print(identity(), flush=True)
        os._exit(0)
    os.wait()
"""


def test_forked_workers_share_no_identity_and_no_chance(tmp_path: Path, server: str) -> None:
    """Two workers with the same transactional ids would abort each other's transactions."""
    said = [started(tmp_path, server, IDENTITY).stdout.splitlines() for _ in range(2)]

    identities = [line.split() for lines in said for line in lines]
    assert len(identities) == 6
    for each in zip(*identities, strict=True):
        assert len(set(each)) == 6


@pytest.mark.parametrize(("error", "printed"), [("BrokenPipeError", False), ("ValueError", True)])
def test_only_a_reader_that_has_gone_is_not_worth_a_traceback(
    tmp_path: Path, server: str, error: str, printed: bool
) -> None:
    done = started(tmp_path, server, f"raise {error}('x')\n")

    assert (error in done.stderr, done.returncode) == (printed, 1)


@pytest.fixture
def directory() -> Iterator[str]:
    """With a short name: that of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory() as path:
        yield path


def test_a_daemon_of_spark_lives_until_its_input_ends(directory: str, server: str) -> None:
    environment = {
        **os.environ,
        fork_server.VARIABLE: server,
        "PYTHONHASHSEED": "0",
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": directory,
    }
    command = [worker_python(), "-m", "pyspark.daemon", "pyspark.sql.worker.lookup_data_sources"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        size = int.from_bytes(daemon.stdout.read(4))
        path = daemon.stdout.read(size).decode()
        assert os.path.dirname(path) == directory
        assert os.path.exists(path)
        daemon.stdin.close()
        daemon.wait()
        assert daemon.stderr is not None
        assert daemon.stderr.read() == b""
    assert not os.path.exists(path)
