"""Spark's own Kafka connector, a broker of Apache Kafka's, a Cassandra, an Elasticsearch: jars that Maven finds
(connector/pom.xml)."""

from __future__ import annotations

import fcntl
import functools
import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Sequence

import pytest

DIRECTORY = os.path.join(os.path.dirname(__file__), "connector")
TARGET = os.path.join(DIRECTORY, "target")
RESOLVE = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
RESOLVE_S = 120.0

# The connector of this very Spark, else one that works with it and can be had where not every release is mirrored.
CONNECTORS = (
    (f"-Dspark.version={importlib.metadata.version('pyspark')}",),
    ("-Dspark.version=4.2.0",),
    ("-Dspark.version=4.2.0", "-Dtokens.version=4.1.0-preview1"),
)


def connector_jars() -> list[str]:
    return _jars("connector", CONNECTORS)


def broker_jars(version: str | None = None) -> list[str]:
    """Of the release that pom.xml names, or of another one."""
    if version is None:
        return _jars("kafka-broker", ((),))
    return _jars("kafka-broker", ((f"-Dkafka.version={version}",),), f"broker-{version}")


def shell_jars() -> list[str]:
    """Of Kafka's metadata shell."""
    return _jars("kafka-shell", ((),))


def connect_jars() -> list[str]:
    return _jars("connect", ((),))


def cassandra_jars() -> list[str]:
    return _jars("cassandra", ((),))


def elasticsearch_jars() -> list[str]:
    return _jars("elasticsearch", ((),))


def opensearch_zip() -> str:
    return _jars("opensearch", ((),))[0]


def _jars(profile: str, choices: Sequence[Sequence[str]], name: str | None = None) -> list[str]:
    found = _resolve(profile, tuple(tuple(choice) for choice in choices), name or profile)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@functools.cache
def _resolve(profile: str, choices: Sequence[Sequence[str]], name: str) -> list[str] | str:
    """The paths of the jars, or the reason why they cannot be had. Asked for once a machine, and once a run if that
    failed."""
    for program in ("java", "mvn"):
        if not shutil.which(program):
            return f"the jars of the {profile} need {program}"
    os.makedirs(TARGET, exist_ok=True)
    class_path = os.path.join(TARGET, f"{name}.classpath")
    with open(os.path.join(TARGET, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if jars := _read(class_path):
            return jars
        reason = ""
        # Offline the last resort comes first: a machine that has it had to resort to it.
        for reach, ordered in (("--offline", tuple(reversed(choices))), ("--fail-fast", choices)):
            for choice in ordered:
                command = ["mvn", "--quiet", "--batch-mode", reach, f"-P{profile}", *choice, RESOLVE]
                try:
                    outcome = subprocess.run(
                        [*command, f"-Dmdep.outputFile={class_path}"],
                        cwd=DIRECTORY,
                        capture_output=True,
                        text=True,
                        timeout=RESOLVE_S,
                    )
                except subprocess.TimeoutExpired:
                    return f"Maven took too long to resolve the {profile}"
                if jars := _read(class_path):
                    return jars
                reason = " ".join(line for line in outcome.stdout.splitlines() if "ERROR" in line)[:300]
        return f"Maven could not resolve the {profile}: {reason}"


def _read(class_path: str) -> list[str]:
    """Empty unless all of them are still there."""
    try:
        with open(class_path) as file:
            jars = file.read().strip().split(":")
    except FileNotFoundError:
        return []
    return jars if all(os.path.exists(jar) for jar in jars) else []
