"""A private Cassandra, one node, from the jars that Maven finds (`connector/pom.xml`)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from spark.connector_jars import cassandra_jars

START_S = 600.0
_OPENED = (
    "io",
    "lang",
    "lang.module",
    "lang.reflect",
    "math",
    "net",
    "nio",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
)
_INSIDE = ("loader", "math", "misc", "module", "ref", "reflect", "util.jar")
_FLAGS = [
    *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED),
    *(f"--add-opens=java.base/jdk.internal.{name}=ALL-UNNAMED" for name in _INSIDE),
    *(f"--add-exports=java.base/jdk.internal.{name}=ALL-UNNAMED" for name in _INSIDE),
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
    "--add-exports=java.management.rmi/com.sun.jmx.remote.internal.rmi=ALL-UNNAMED",
    "--add-exports=java.rmi/sun.rmi.registry=ALL-UNNAMED",
    "--add-exports=java.rmi/sun.rmi.server=ALL-UNNAMED",
    "--add-exports=java.rmi/sun.rmi.transport.tcp=ALL-UNNAMED",
    "--add-exports=java.sql/java.sql=ALL-UNNAMED",
    "--add-exports=jdk.unsupported/sun.misc=ALL-UNNAMED",
    "-Djdk.attach.allowAttachSelf=true",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
]
_CONFIGURATION = """\
cluster_name: tests
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
storage_port: {storage}
native_transport_port: {native}
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "127.0.0.1:{storage}"}}]
commitlog_sync: periodic
commitlog_sync_period: 10000ms
data_file_directories: ["{place}/data"]
commitlog_directory: {place}/commitlog
saved_caches_directory: {place}/caches
hints_directory: {place}/hints
cdc_raw_directory: {place}/cdc
memtable_heap_space: 64MiB
memtable_offheap_space: 64MiB
"""


@contextmanager
def cassandra_server(place: str) -> Iterator[dict[str, str]]:
    """The options of a sink."""
    pytest.importorskip("cassandra", reason="no cassandra-driver here: pip install cassandra-driver")
    if shutil.which("java") is None:
        pytest.skip("Cassandra needs java")
    jars = cassandra_jars()
    storage, native = _free_ports(2)
    configuration = os.path.join(place, "cassandra.yaml")
    with open(configuration, "w") as file:
        file.write(_CONFIGURATION.format(place=place, storage=storage, native=native))
    settings = {
        "cassandra.config": f"file://{configuration}",
        "cassandra.storagedir": place,
        "cassandra-foreground": "yes",
        "cassandra.ring_delay_ms": "1",
        "cassandra.skip_wait_for_gossip_to_settle": "0",
    }
    given = [f"-D{name}={value}" for name, value in settings.items()]
    command = ["java", *_FLAGS, *given, "-cp", ":".join(jars), "org.apache.cassandra.service.CassandraDaemon"]
    log = os.path.join(place, "log")
    with open(log, "w") as output:
        process = subprocess.Popen(command, cwd=place, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait(native, process, log)
        yield {"hosts": "127.0.0.1", "port": str(native), "consistency": "ONE"}
    finally:
        process.kill()
        process.wait()


def _wait(port: int, process: subprocess.Popen[bytes], log: str) -> None:
    deadline = time.monotonic() + START_S
    while True:
        with socket.socket() as trying:
            if trying.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            with open(log) as file:
                pytest.fail(f"Cassandra does not start: {file.read()[-3000:]}")
        time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
