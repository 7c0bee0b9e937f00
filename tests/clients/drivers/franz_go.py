"""franz-go, in a process of its own (`franz_go/`), which Go builds on first use."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from typing import NamedTuple

import pytest

from clients.drivers.process import ProcessClient, ProcessMember, locked, read, to_bytes

DIRECTORY = os.path.join(os.path.dirname(os.path.dirname(__file__)), "franz_go")
TARGET = os.path.join(DIRECTORY, "target")
PROGRAM = os.path.join(TARGET, "driver")
BUILD_S = 300.0


def _sources_digest() -> str:
    digest = hashlib.sha256()
    for name in sorted(os.listdir(DIRECTORY)):
        if name.endswith((".go", ".mod", ".sum")):
            digest.update(read(os.path.join(DIRECTORY, name)).encode())
    return digest.hexdigest()


@functools.cache
def why_not_built() -> str | None:
    """Build unless done for just these sources; the reason where that is not possible. Tried once."""
    if not shutil.which("go"):
        return "franz-go needs go"
    os.makedirs(TARGET, exist_ok=True)
    built, wanted = os.path.join(TARGET, "built-from"), _sources_digest()
    with locked(os.path.join(TARGET, "lock")):
        if os.path.exists(built) and read(built) == wanted:
            return None
        # An older Go must say that it is too old, and not fetch another one.
        environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false"}
        command = ["go", "build", "-o", PROGRAM, "."]
        try:
            outcome = subprocess.run(
                command, cwd=DIRECTORY, env=environment, capture_output=True, text=True, timeout=BUILD_S
            )
        except subprocess.TimeoutExpired:
            return "Go took too long to build franz-go"
        if outcome.returncode:
            assert "./driver.go" not in outcome.stderr and "./members.go" not in outcome.stderr, outcome.stderr
            return f"Go could not build franz-go: {outcome.stderr.strip()[-300:]}"
        with open(built, "w") as stamp:
            stamp.write(wanted)
        return None


class FranzGo(ProcessClient):
    name = "franz-go"
    sends_null_headers = True

    def __init__(self, bootstrap: str) -> None:
        if reason := why_not_built():
            pytest.skip(reason)
        super().__init__([PROGRAM, bootstrap], tempfile.gettempdir())


class Acquired(NamedTuple):
    partition: int
    offset: int
    value: bytes
    delivery_count: int


class ShareMember(ProcessMember):
    """A member of a share group."""

    def __init__(self, client: FranzGo, group: str, topic: str) -> None:
        super().__init__(client, group, topic, {"protocol": "share"})

    def acquire(self) -> list[Acquired]:
        return [
            Acquired(partition, offset, to_bytes(value) or b"", delivery_count)
            for partition, offset, value, delivery_count in self.call("acquire")
        ]

    def decide(self, decisions: Iterable[tuple[Acquired, str]]) -> None:
        """Returns when the broker has persisted it."""
        self.call(
            "decide",
            decisions=[
                {"partition": record.partition, "offset": record.offset, "how": how} for record, how in decisions
            ],
        )
