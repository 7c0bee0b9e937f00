"""A worker of Kafka Connect with two connectors: one writes the lines of a file to a topic, exactly once, and the other
writes the records of that topic to a file."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apache_kafka import JAVA, LOGGING
from penstock.local.ports import free_ports
from spark.connector_jars import connect_jars
from waiting import wait_until

TOPIC = "connect-lines"
READY_S = 240.0
STRINGS = "org.apache.kafka.connect.storage.StringConverter"


class ConnectWorker:
    def __init__(self, bootstrap: str, directory: Path) -> None:
        directory.mkdir()
        self.source, self.sink = directory / "source.txt", directory / "sink.txt"
        self.source.touch()
        self._log = directory / "worker.log"
        (self._port,) = free_ports(1)
        properties = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "key.converter": STRINGS,
            "value.converter": STRINGS,
            "offset.flush.interval.ms": "2000",
            "exactly.once.source.support": "enabled",
            "listeners": f"http://127.0.0.1:{self._port}",
            **{f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.replication.factor": "3" for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.partitions": "2" for kind in ("offset", "status")},
        }
        path, logging = directory / "worker.properties", directory / "log4j2.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        logging.write_text(LOGGING)
        command = [*JAVA, "-Xmx256m", f"-Dlog4j2.configurationFile={logging}", "-cp", ":".join(connect_jars())]
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [*command, "org.apache.kafka.connect.cli.ConnectDistributed", str(path)], stdout=log, stderr=log
            )

    def start_connectors(self) -> None:
        wait_until(lambda: self._ask("/connectors") is not None, self._tail, seconds=READY_S)
        file = "org.apache.kafka.connect.file.FileStream"
        self._create("lines", {"connector.class": f"{file}SourceConnector", "file": self.source, "topic": TOPIC})
        self._create("copy", {"connector.class": f"{file}SinkConnector", "file": self.sink, "topics": TOPIC})

    def append(self, numbers: range) -> None:
        with open(self.source, "a") as file:
            file.write("".join(f"{number}\n" for number in numbers))

    def copied(self) -> list[int]:
        text = self.sink.read_text() if self.sink.exists() else ""
        return [int(line) for line in text.splitlines() if line]

    def failures(self) -> list[str]:
        """Of connectors and tasks that do not run."""
        found = []
        for name in ("lines", "copy"):
            status = self._ask(f"/connectors/{name}/status") or {}
            found += [str(task) for task in status.get("tasks", []) if task["state"] == "FAILED"]
        return found

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _create(self, name: str, config: Mapping[str, str | os.PathLike[str]]) -> None:
        body = json.dumps({name: str(value) for name, value in config.items()}).encode()
        deadline = time.monotonic() + READY_S
        while self._ask(f"/connectors/{name}/config", body) is None:
            assert time.monotonic() < deadline, self._tail()
            time.sleep(1)

    def _ask(self, path: str, body: bytes | None = None) -> Any:
        """The answer; None if there is none yet, such as while its group is being formed."""
        assert self.process.poll() is None, self._tail()
        url = f"http://127.0.0.1:{self._port}{path}"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        request.method = "GET" if body is None else "PUT"
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return None

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]
