"""A private Elasticsearch, one node, from the jars that Maven finds (`spark/connector/pom.xml`).

The jars have no launcher and none of the modules of the distribution; `ElasticsearchServer.java` starts a node with the
one module that it cannot do without, HTTP. Requests that belong to other modules get 400.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from spark.connector_jars import DIRECTORY, elasticsearch_jars

START_S = 300.0
_MODULE = "transport-netty4"
_FLAGS = [
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dlog4j2.disable.jmx=true",
    "--add-modules=jdk.net",
    "--add-modules=ALL-MODULE-PATH",
]
_DESCRIPTOR = """\
name={module}
description=HTTP
version={version}
elasticsearch.version={version}
java.version=17
classname=org.elasticsearch.transport.netty4.Netty4Plugin
has.native.controller=false
"""


class ElasticsearchServer:
    def __init__(self, home: str, jars: list[str]) -> None:
        self._home = home
        self._log = os.path.join(home, "log")
        self._jars = jars
        self._process: subprocess.Popen[bytes] | None = None
        self._http, self._transport = _free_ports(2)
        self.address = f"http://127.0.0.1:{self._http}"

    def start(self) -> None:
        """On the same ports, with the same documents."""
        settings = {
            "cluster.name": "tests",
            "node.name": "tests",
            "network.host": "127.0.0.1",
            "http.port": self._http,
            "transport.port": self._transport,
            "discovery.type": "single-node",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }
        source = os.path.join(DIRECTORY, "ElasticsearchServer.java")
        command = ["java", *_FLAGS, "--module-path", ":".join(self._jars), source, self._home]
        command += [f"{name}={value}" for name, value in settings.items()]
        with open(self._log, "w") as output:
            self._process = subprocess.Popen(command, cwd=self._home, stdout=output, stderr=subprocess.STDOUT)
        self._wait(self._process)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def request(self, method: str, path: str, body: Any = None) -> Any:
        given = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(
            f"{self.address}/{path}", given, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.load(answer)

    def documents(self, index: str) -> dict[str, dict[str, Any]]:
        self.request("POST", f"{index}/_refresh")
        found = self.request("GET", f"{index}/_search?size=1000")["hits"]["hits"]
        return {hit["_id"]: hit["_source"] for hit in found}

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.request("GET", "_cluster/health?wait_for_status=yellow&timeout=1s")
                return
            except (urllib.error.URLError, ConnectionError):
                if process.poll() is not None or time.monotonic() > deadline:
                    with open(self._log) as file:
                        pytest.fail(f"Elasticsearch does not start: {file.read()[-3000:]}")
            time.sleep(0.1)


@contextmanager
def elasticsearch_server(home: str) -> Iterator[ElasticsearchServer]:
    jars = elasticsearch_jars()
    module = os.path.join(home, "modules", _MODULE)
    for each in ("config", "plugins", os.path.join("modules", _MODULE)):
        os.makedirs(os.path.join(home, each))
    of_module = [jar for jar in jars if os.path.basename(jar).startswith(("netty-", _MODULE))]
    for jar in of_module:
        shutil.copy(jar, module)
    version = next(jar for jar in of_module if _MODULE in jar).removesuffix(".jar").rpartition("-")[2]
    with open(os.path.join(module, "plugin-descriptor.properties"), "w") as file:
        file.write(_DESCRIPTOR.format(module=_MODULE, version=version))
    server = ElasticsearchServer(home, [jar for jar in jars if jar not in of_module])
    try:
        server.start()
        yield server
    finally:
        server.kill()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
