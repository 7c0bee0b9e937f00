"""Clients that are not Python live in a process of their own: one JSON request a line, one JSON answer a line."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from clients.drivers import DEADLINE_S, FETCH_WAIT_MS, ClusterDescription, Header, Position, Record, Refused
from clients.group_members import Given, Read


@contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """One process at a time: test workers share what has to be built or downloaded once."""
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read(path: str) -> str:
    with open(path) as file:
        return file.read()


def to_text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def to_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def to_json(record: Record) -> dict[str, Any]:
    return {
        "key": to_text(record.key),
        "value": to_text(record.value),
        "headers": [[name, to_text(value)] for name, value in record.headers],
        "timestamp": record.timestamp,
        "partition": record.partition,
    }


def from_json(record: Mapping[str, Any]) -> Record:
    return Record(
        to_bytes(record["key"]),
        to_bytes(record["value"]),
        tuple(Header(name, to_bytes(value)) for name, value in record["headers"]),
        record["timestamp"],
        record["partition"],
        record["offset"],
    )


class ClientCrashed(AssertionError):
    """The client itself failed; no broker has refused anything."""


class ProcessReader:
    def __init__(self, client: ProcessClient, number: int) -> None:
        self._client = client
        self._number = number

    def take(self, count: int, *, timeout_s: float = DEADLINE_S) -> list[Record]:
        answer = self._client.call("take", reader=self._number, count=count, timeoutMs=int(timeout_s * 1000))
        return [from_json(record) for record in answer]


class ProcessClient:
    """The verbs of `Client`, each one a request to the process."""

    name: str
    sends_null_headers: bool

    def __init__(self, command: Sequence[str], directory: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed with the client
        self._process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._answers: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def kill(self) -> None:
        """It has no time to say anything to anybody."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(DEADLINE_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._listener.join()
            self._process.stdout.close()
            self._errors.close()

    def call(self, operation: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"operation": operation, **arguments}), file=self._process.stdin, flush=True)
        line = self._answers.get(timeout=2 * DEADLINE_S)
        assert line, f"{self.name} ended: {self._error_text()}"
        answer = json.loads(line)
        if error := answer.get("error"):
            if "crash" in error:
                raise ClientCrashed(f"{self.name}, {operation}: {error['crash']}")
            raise Refused(error["code"], error["message"])
        return answer["result"]

    def _error_text(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        batch_bytes: int | None = None,
    ) -> list[Position]:
        positions = self.call(
            "produce",
            topic=topic,
            records=[to_json(record) for record in records],
            codec=codec,
            acks=acks,
            idempotent=idempotent,
            batchBytes=batch_bytes or 16384,
        )
        return [Position(*position) for position in positions]

    @contextmanager
    def reader(self, topic: str, starts: Mapping[int, int], *, wait_ms: int = FETCH_WAIT_MS) -> Iterator[ProcessReader]:
        number = self.call("open", topic=topic, starts=list(starts.items()), waitMs=wait_ms)
        try:
            yield ProcessReader(self, number)
        finally:
            self.call("close", reader=number)

    def earliest(self, topic: str, partition: int) -> int:
        return int(self.call("offsets", topic=topic, partition=partition)["earliest"])

    def latest(self, topic: str, partition: int) -> int:
        return int(self.call("offsets", topic=topic, partition=partition)["latest"])

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        offset = self.call("offset_for_time", topic=topic, partition=partition, timestamp=timestamp)
        return None if offset is None else int(offset)

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        self.call("create_topic", topic=topic, partitions=partitions, configs=dict(configs))

    def delete_topic(self, topic: str) -> None:
        self.call("delete_topic", topic=topic)

    def topics(self) -> set[str]:
        return set(self.call("topics"))

    def partition_count(self, topic: str) -> int:
        return int(self.call("partition_count", topic=topic))

    def create_partitions(self, topic: str, total: int) -> None:
        self.call("create_partitions", topic=topic, total=total)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self.call("delete_records", topic=topic, partition=partition, before=before)

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        configs = self.call("topic_configs", topic=topic)
        assert isinstance(configs, dict)
        return configs

    def alter_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self.call("alter_topic_configs", topic=topic, configs=dict(configs))

    def cluster(self) -> ClusterDescription:
        description = self.call("cluster")
        return ClusterDescription(description["clusterId"], description["controller"], dict(description["brokers"]))


class ProcessMember:
    """A member of a group, polled in the client's process."""

    def __init__(self, client: ProcessClient, group: str, topic: str, settings: Mapping[str, Any]) -> None:
        self._client = client
        self._number = client.call("join", group=group, topic=topic, settings=settings)

    def call(self, operation: str, **arguments: Any) -> Any:
        return self._client.call(operation, member=self._number, **arguments)

    @property
    def given(self) -> list[Given]:
        return [Given(generation, frozenset(partitions)) for generation, partitions in self.call("given")]

    def poll(self) -> list[Read]:
        return [Read(partition, offset, to_bytes(value) or b"") for partition, offset, value in self.call("poll")]

    def commit(self) -> dict[int, int]:
        return {int(partition): offset for partition, offset in self.call("commit").items()}

    def assignment(self) -> set[int]:
        return set(self.call("assignment"))

    def leave(self) -> None:
        self.call("leave")
