"""Java's own kafka-clients, and Kafka's tools, compiled and resolved by Maven once (`java/`)."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile

import pytest

from drivers.process import ProcessClient, locked

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
    """Compile and resolve unless done for just these sources; skips the tests where that is not possible."""
    for command in ("java", "mvn"):
        if not shutil.which(command):
            pytest.skip(f"Java's clients need {command}")
    os.makedirs(TARGET, exist_ok=True)
    built, wanted = os.path.join(TARGET, "built-from"), sources_digest()
    with locked(os.path.join(TARGET, "lock")):
        if not os.path.exists(built) or read(built) != wanted:
            compile_and_resolve()
            with open(built, "w") as stamp:
                stamp.write(wanted)
    return f"{os.path.join(TARGET, 'classes')}:{read(os.path.join(TARGET, 'classpath'))}"


def compile_and_resolve() -> None:
    """From what is on the machine if it is all there, else from the repository Maven is configured with."""
    for reach in (["--offline"], []):
        outcome = subprocess.run(
            ["mvn", "--quiet", "--batch-mode", *reach, "compile"],
            cwd=DIRECTORY,
            capture_output=True,
            text=True,
            timeout=150,
        )
        if outcome.returncode == 0:
            return
    errors = [line for line in outcome.stdout.splitlines() if "ERROR" in line]
    assert not any("COMPILATION ERROR" in line for line in errors), outcome.stdout
    pytest.skip(f"Maven could not resolve kafka-clients: {' '.join(errors)[:300]}")


def read(path: str) -> str:
    with open(path) as file:
        return file.read().strip()


class JavaClient(ProcessClient):
    name = "java"
    sends_null_headers = True

    def __init__(self, bootstrap: str) -> None:
        command = ["java", *QUICK_START, "-cp", class_path(), "penstock.tests.Driver", bootstrap]
        super().__init__(command, tempfile.gettempdir())


def dump_log_segments(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["java", *QUICK_START, "-cp", class_path(), "org.apache.kafka.tools.DumpLogSegments", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)
