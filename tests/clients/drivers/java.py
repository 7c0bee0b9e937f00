"""Java's own kafka-clients, and Kafka's tools, compiled and resolved by Maven once (`java/`)."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile

import pytest

from clients.drivers.process import ProcessClient, locked, read

DIRECTORY = os.path.join(os.path.dirname(os.path.dirname(__file__)), "java")
TARGET = os.path.join(DIRECTORY, "target")

QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx512m")
"""A JVM that lives for a second: no optimising compiler, no threads for collecting garbage."""


def sources_digest() -> str:
    digest = hashlib.sha256()
    sources = [os.path.join(path, name) for path, _, names in os.walk(os.path.join(DIRECTORY, "src")) for name in names]
    for path in [os.path.join(DIRECTORY, "pom.xml"), *sorted(sources)]:
        with open(path, "rb") as source:
            digest.update(source.read())
    return digest.hexdigest()


def class_path() -> str:
    if reason := why_not_built():
        pytest.skip(reason)
    return f"{os.path.join(TARGET, 'classes')}:{read(os.path.join(TARGET, 'classpath')).strip()}"


def newest_clients() -> list[str]:
    """The jar of kafka-clients that is the reference for what messages look like."""
    folder = os.path.join(TARGET, "newest")
    return [os.path.join(folder, name) for name in os.listdir(folder)]


@functools.cache
def why_not_built() -> str | None:
    """Compile and resolve unless done for just these sources; the reason where that is not possible. Tried once."""
    for command in ("java", "mvn"):
        if not shutil.which(command):
            return f"Java's clients need {command}"
    os.makedirs(TARGET, exist_ok=True)
    built, wanted = os.path.join(TARGET, "built-from"), sources_digest()
    with locked(os.path.join(TARGET, "lock")):
        if os.path.exists(built) and read(built) == wanted:
            return None
        if reason := why_not_compiled():
            return reason
        with open(built, "w") as stamp:
            stamp.write(wanted)
        return None


def why_not_compiled() -> str | None:
    """From what is on the machine if it is all there, else from the repository Maven is configured with."""
    for reach in (["--offline"], []):
        command = ["mvn", "--quiet", "--batch-mode", *reach, "compile"]
        try:
            outcome = subprocess.run(command, cwd=DIRECTORY, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return "Maven took too long to resolve kafka-clients"
        if outcome.returncode == 0:
            return None
    errors = [line for line in outcome.stdout.splitlines() if "ERROR" in line]
    assert not any("COMPILATION ERROR" in line for line in errors), outcome.stdout
    return f"Maven could not resolve kafka-clients: {' '.join(errors)[:300]}"


class JavaClient(ProcessClient):
    name = "java"
    sends_null_headers = True

    def __init__(self, bootstrap: str) -> None:
        command = ["java", *QUICK_START, "-cp", class_path(), "penstock.tests.Driver", bootstrap]
        super().__init__(command, tempfile.gettempdir())


def dump_log_segments(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_tool("DumpLogSegments", *arguments)


def run_tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One of Kafka's commands, by its class in org.apache.kafka.tools."""
    command = ["java", *QUICK_START, "-cp", class_path(), f"org.apache.kafka.tools.{name}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)
