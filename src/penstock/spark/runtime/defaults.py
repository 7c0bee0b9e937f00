"""The default settings of a Spark session.

Spark's own defaults suit clusters and large batches: 200 shuffle partitions, a web server, checksums beside every
checkpoint file. On one machine each of them costs more than the work of a small batch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

LOG_SETTINGS = os.path.join(os.path.dirname(__file__), "log4j2.properties")

JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_CLUSTER_URL = re.compile(r"(spark|k8s)://\S+|yarn|local-cluster\[.+\]")
_LOCAL_URL = re.compile(r"local(\[(?P<cores>\*|[1-9]\d*)(\s*,\s*[1-9]\d*)?\])?")
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_WITHOUT_VFORK = 22  # newer versions deprecate it, and print five lines about that
_LOOPBACK = ("127.", "localhost", "[::1]")


def is_local(master: str) -> bool:
    return _LOCAL_URL.fullmatch(master) is not None


def is_master(master: str) -> bool:
    """Whether Spark knows this kind of master. Spark itself takes seconds and a page of Java to report that."""
    return is_local(master) or _CLUSTER_URL.fullmatch(master) is not None


def master_addresses(master: str) -> list[tuple[str, int]]:
    """The addresses in `spark://a:7077,b:7077`; none for masters that are not reached that way."""
    scheme, _, rest = master.partition("://")
    if scheme != "spark":
        return []
    addresses = []
    for address in rest.split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"{master}: an address is HOST:PORT, not {address!r}")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def session_defaults(master: str, *, java: int, quiet: bool) -> dict[str, str]:
    """The defaults for Java of that version."""
    options = []
    if java < _WITHOUT_VFORK:
        options.append("-Djdk.lang.Process.launchMechanism=VFORK")  # starts a process without an intermediate one
    if quiet:
        options.append(f"-Dlog4j2.configurationFile=file:{LOG_SETTINGS}")
    defaults = {
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
        # Queries share the cores, each with a pool of its own. Otherwise a large batch holds up all other queries.
        "spark.scheduler.mode": "FAIR",
        "spark.sql.streaming.noDataProgressEventInterval": "1s",  # until a query is reported as idle
        # How long a Python worker may take to start. Spark allows 15 s, which the imports alone may take on a busy
        # machine.
        "spark.python.authenticate.socketTimeout": "120s",
    }
    if is_local(master):
        options.append("-XX:+UseParallelGC")  # fewer threads and barriers than G1; small batches are short
        defaults |= {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": str(_cores(master)),
            "spark.python.daemon.module": "penstock.spark.worker_daemon",  # which is silent where a reader has gone
            # Over TCP, small messages between Spark and its workers take 40 ms, during which both wait.
            "spark.python.unix.domain.socket.enabled": "true",
            # Without a checksum file beside every checkpoint file there are half as many files and renames.
            "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
            "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
        }
    if is_local(master) or all(host.startswith(_LOOPBACK) for host in _hosts(master)):
        defaults |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return defaults | {JAVA_OPTIONS: " ".join(options)}


_RAW_FILES = ("spark.hadoop.fs.file.impl", "spark.hadoop.fs.AbstractFileSystem.file.impl")


def uses_rocksdb(config: Mapping[str, str]) -> bool:
    """Whether state is kept in RocksDB, whose files need Hadoop's local file system with checksums."""
    return "RocksDB" in config.get("spark.sql.streaming.stateStore.providerClass", "")


def with_defaults(config: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """`config` overrides the defaults. Java's options are concatenated: the JVM takes the last of two that differ, but
    refuses two garbage collectors."""
    if uses_rocksdb(config):
        defaults = {name: value for name, value in defaults.items() if name not in _RAW_FILES}
    options = config.get(JAVA_OPTIONS, "")
    ours = defaults.get(JAVA_OPTIONS, "")
    if _COLLECTOR.search(options):
        ours = _COLLECTOR.sub("", ours)
    joined = " ".join(f"{ours} {options}".split())
    return {**defaults, **config, **({JAVA_OPTIONS: joined} if joined else {})}


def _hosts(master: str) -> list[str]:
    return [host for host, _ in master_addresses(master)] or [master]


def _cores(master: str) -> int:
    matched = _LOCAL_URL.fullmatch(master)
    cores = matched["cores"] if matched is not None else None
    if cores is None:
        return 1
    return len(os.sched_getaffinity(0)) if cores == "*" else int(cores)
