"""Starts a Spark session that is ready for topics: `spark = session("orders")`.

This module settles everything that must be known before Java starts, because afterwards it is too late, or the error is
a page of Java: which Java, which Python, whether the master's address answers. The environment variables that PySpark
reads are set only for the start and restored afterwards.

Settings have this precedence: the caller's, the command line's (`penstock spark run --conf`), Penstock's defaults,
Spark's defaults. The caller's come first, as with Spark's own `spark-submit`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import re
import socket
import sys
import time
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from penstock.spark.runtime import fork_server
from penstock.spark.runtime.class_archive import (
    TRAINING,
    ClassArchive,
    archive_options,
    class_archive,
    make_behind,
    training_options,
    wanted,
)
from penstock.spark.runtime.defaults import (
    JAVA_OPTIONS,
    is_local,
    is_master,
    master_addresses,
    session_defaults,
    with_defaults,
)
from penstock.spark.runtime.errors import MasterUnreachable, NoSession, SessionConflict, SparkMissing
from penstock.spark.runtime.fork_server import start_fork_server
from penstock.spark.runtime.java import Java, find_java, java_home
from penstock.spark.runtime.kernels import compile_kernels_behind
from penstock.spark.runtime.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Setting = str | int | float | bool

COMMAND_LINE = "PENSTOCK_SPARK"
"""The environment variable in which `penstock spark run` hands its options to the script."""

_MASTER = "spark.master"
_NAME = "spark.app.name"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit, which has started Java and chosen the master
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_CONNECT_S = 5.0
_ARCHIVES = re.compile(r"-XX:(SharedArchiveFile|ArchiveClassesAtExit|AOT\w+)=|-Xshare:")  # the caller's own choice

_ours: str | None = None  # the id of the application that this module has started


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The options of `penstock spark run`."""

    master: str | None = None
    ship_env: bool = False
    ship_without: Collection[str] = ()
    archive: str | None = None
    """The archive for executors, if it is packed already."""
    config: Mapping[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Plan:
    """What Spark is started with."""

    config: Mapping[str, str]
    environment: Mapping[str, str]
    archive: str | None = None
    """The archive that is sent to executors."""
    classes: ClassArchive | None = None
    """The archive of Java's classes, if it has to be made."""
    forks_workers: bool = False
    """Whether Python workers are forked from a process that has imported what they need."""


def session(
    name: str = "penstock",
    master: str | None = None,
    config: Mapping[str, Setting] | None = None,
    *,
    ship_env: bool | None = None,
    ship_without: Collection[str] = (),
    quiet: bool = True,
) -> SparkSession:
    """The running session if it has these settings, else a new one.

    `master` defaults to `local[*]`, all cores of this machine. `config` has Spark's settings by Spark's names, and
    overrides every default of Penstock. `ship_env` packs this Python environment for executors that lack it, without
    the packages named in `ship_without`. `quiet` keeps everything but errors off the terminal. Raises `NoSession`, with
    one line that says what to do.
    """
    global _ours
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise SparkMissing('Spark is not installed: pip install "penstock[spark]"') from error
    from penstock.spark.progress.listener import watch

    said = _command_line()
    asked = {**said.config, **{key: _text(value) for key, value in (config or {}).items()}}
    if chosen := master or asked.get(_MASTER) or said.master:
        asked[_MASTER] = chosen
    if (running := SparkContext._active_spark_context) is not None:
        existing = SparkSession.builder.getOrCreate()
        _check_same(existing, {**asked, _NAME: name}, is_ours=running.applicationId == _ours)
        watch(existing)
        return existing

    ship = said.ship_env if ship_env is None else ship_env
    archive = None if ship_without else said.archive
    left_out = [*said.ship_without, *ship_without]
    planned = plan(name, asked, ship_env=ship, ship_without=left_out, archive=archive, quiet=quiet)
    forking = start_fork_server() if planned.forks_workers else {}
    if not forking:
        compile_kernels_behind()  # the fork server does that first of all
    if quiet:
        _silence_errors_in_json()
    with _environment({**planned.environment, **forking}):
        try:
            started = SparkSession.builder.config(map=dict(planned.config)).getOrCreate()
        except Exception as error:
            raise NoSession(f"Spark did not start: {_reason(error)}") from error
    _ours = started.sparkContext.applicationId
    watch(started)
    if planned.classes is not None:
        make_behind(planned.classes, planned.config)
    return started


def plan(
    name: str,
    asked: Mapping[str, str],
    *,
    ship_env: bool = False,
    ship_without: Collection[str] = (),
    archive: str | None = None,
    quiet: bool = True,
) -> Plan:
    """Find and check everything that a session called `name` starts with. Packs the environment unless `archive` names
    one that is packed already."""
    if _SUBMITTED in os.environ:
        return Plan({**asked, _NAME: name}, {})
    master = asked.get(_MASTER, "local[*]")
    _check_master(master)
    java = find_java()
    defaults = session_defaults(master, java=java.major, quiet=quiet)
    classes = _class_archive(java, asked, defaults)
    config = with_defaults({**asked, _MASTER: master, _NAME: name}, defaults)
    environment = {"JAVA_HOME": java_home(java)}
    forks_workers = False
    if ship_env and not is_local(master):
        from penstock.spark.runtime.shipping import packed_environment, ship

        archive = archive or packed_environment(ship_without)
        shipped = ship(archive)
        config = shipped.config(config)
        environment |= shipped.environment()
    else:
        # On a cluster: the Python that the user knows to be installed on its machines.
        named = None if is_local(master) else os.environ.get("PYSPARK_PYTHON")
        python = config.get("spark.pyspark.python") or named
        if not python:
            forks_workers = is_local(master) and fork_server.wanted(config)
            python = worker_python() if is_local(master) else sys.executable
        environment |= {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    if COMMAND_LINE in os.environ:
        environment[_SUBMIT_ARGUMENTS] = "pyspark-shell"  # `config` contains what the command line put there
    return Plan(config, environment, archive, classes, forks_workers)


def _class_archive(java: Java, asked: Mapping[str, str], defaults: dict[str, str]) -> ClassArchive | None:
    """Add the options for the archive of Java's classes to the defaults. Returns an archive that has to be made."""
    if training := os.environ.get(TRAINING):
        defaults[JAVA_OPTIONS] += f" {training_options(training, java.major)}"
        return None
    if not wanted(asked) or _ARCHIVES.search(asked.get(JAVA_OPTIONS, "")):
        return None
    archive = class_archive(java, _spark_home(), asked)
    if archive is None:
        return None
    if (options := archive_options(archive, java.major)) is None:
        return archive
    defaults[JAVA_OPTIONS] += f" {options}"
    return None


def _spark_home() -> str:
    """Where Spark's jars are, found without importing it."""
    package = importlib.util.find_spec("pyspark")
    return os.environ.get("SPARK_HOME") or os.path.dirname((package.origin if package else None) or "")


def _silence_errors_in_json() -> None:
    """PySpark logs every error in SQL as JSON with the whole trace and plan, and raises it as an exception, too."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _command_line() -> CommandLine:
    text = os.environ.get(COMMAND_LINE)
    return CommandLine(**json.loads(text)) if text else CommandLine()


def _check_master(master: str) -> None:
    if not is_master(master):
        raise NoSession(
            f"{master!r} is not a master: it is local[*], local[4] or the like for this machine, spark://HOST:PORT for "
            "a standalone cluster, or yarn or k8s://..."
        )
    try:
        addresses = master_addresses(master)
    except ValueError as error:
        raise NoSession(str(error)) from None
    if not addresses:
        return
    # Try all of them, because only one of several masters is active; Spark finds out which.
    reasons = []
    deadline = time.monotonic() + _CONNECT_S
    for host, port in addresses:
        try:
            socket.create_connection((host, port), timeout=max(0.1, deadline - time.monotonic())).close()
            return
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
    raise MasterUnreachable(f"no Spark master answers at {master} ({'; '.join(reasons)})")


def _check_same(running: SparkSession, asked: Mapping[str, str], *, is_ours: bool) -> None:
    different = []
    for key, value in asked.items():
        has = running.conf.get(key, None)
        if has != value and not (key == JAVA_OPTIONS and value in (has or "")):
            different.append(f"{key} is {has}, not {value}")
    if different:
        raise SessionConflict(f"a Spark session runs already, and {'; '.join(different)}: stop() it first")
    if not is_ours:
        warnings.warn(
            "a Spark session that was started elsewhere is used as it is, without Penstock's defaults; "
            "stop() it first to have them",
            stacklevel=3,
        )


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reason(error: Exception) -> str:
    """A Java exception arrives with its whole stack trace; one line of it says what is wrong."""
    lines = str(error).splitlines()
    return next((line[2:] for line in lines if line.startswith(": ")), lines[0] if lines else repr(error))
