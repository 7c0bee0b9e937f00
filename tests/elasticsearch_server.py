"""A private Elasticsearch or OpenSearch, one node, from what Maven finds (`spark/connector/pom.xml`).

Elasticsearch's jars have no launcher and none of the modules of the distribution; `ElasticsearchServer.java` starts a
node with the one module that it cannot do without, HTTP. Requests that belong to other modules get 400. OpenSearch
comes whole, as a zip. It does not run as root.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from spark.connector_jars import DIRECTORY, elasticsearch_jars, opensearch_zip

START_S = 300.0
_MODULE = "transport-netty4"
_FLAGS = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.disable.jmx=true"]
_DESCRIPTOR = """\
name={module}
description=HTTP
version={version}
elasticsearch.version={version}
java.version=17
classname=org.elasticsearch.transport.netty4.Netty4Plugin
has.native.controller=false
"""


class SearchServer:
    def __init__(self, home: str, command: Callable[[dict[str, str]], list[str]], user: str | None = None) -> None:
        self._home = home
        self._command = command
        self._user = user
        self._log = os.path.join(home, "log")
        self._process: subprocess.Popen[bytes] | None = None
        self._http, self._transport = _free_ports(2)
        self.address = f"http://127.0.0.1:{self._http}"

    def start(self) -> None:
        """On the same ports, with the same documents."""
        settings = {
            "cluster.name": "tests",
            "node.name": "tests",
            "network.host": "127.0.0.1",
            "http.port": str(self._http),
            "transport.port": str(self._transport),
            "discovery.type": "single-node",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }
        as_user: dict[str, Any] = {"user": self._user, "extra_groups": []} if self._user else {}
        with open(self._log, "w") as output:
            self._process = subprocess.Popen(
                self._command(settings), cwd=self._home, stdout=output, stderr=subprocess.STDOUT, **as_user
            )
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
                        pytest.fail(f"the server does not start: {file.read()[-3000:]}")
            time.sleep(0.1)


@contextmanager
def elasticsearch_server(home: str) -> Iterator[SearchServer]:
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
    modules = ":".join(jar for jar in jars if jar not in of_module)

    def command(settings: dict[str, str]) -> list[str]:
        source = os.path.join(DIRECTORY, "ElasticsearchServer.java")
        flags = [*_FLAGS, "--add-modules=jdk.net", "--add-modules=ALL-MODULE-PATH", "--module-path", modules]
        return ["java", *flags, source, home, *(f"{name}={value}" for name, value in settings.items())]

    yield from _running(SearchServer(home, command))


@contextmanager
def opensearch_server() -> Iterator[SearchServer]:
    archive = opensearch_zip()
    user = "nobody" if os.getuid() == 0 else None
    directory = tempfile.mkdtemp(prefix="opensearch-", dir="/tmp")  # another user gets into no directory of pytest's
    try:
        with zipfile.ZipFile(archive) as file:
            file.extractall(directory)
        (home,) = (os.path.join(directory, name) for name in os.listdir(directory))
        if user is not None:
            for place, _, _ in os.walk(directory):
                shutil.chown(place, user)

        def command(settings: dict[str, str]) -> list[str]:
            given = {"opensearch.path.home": home, "opensearch.path.conf": f"{home}/config", "java.io.tmpdir": home}
            flags = [*_FLAGS, *(f"-D{name}={value}" for name, value in given.items()), "-cp", f"{home}/lib/*"]
            asked = [f"-E{name}={value}" for name, value in settings.items()]
            return ["java", *flags, "org.opensearch.bootstrap.OpenSearch", *asked]

        yield from _running(SearchServer(home, command, user))
    finally:
        shutil.rmtree(directory)


def _running(server: SearchServer) -> Iterator[SearchServer]:
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
