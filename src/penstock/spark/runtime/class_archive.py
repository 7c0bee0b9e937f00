"""Starts Java with an archive of the classes that Spark loads, which halves the time until a session's first job.

A Spark session loads some 15,000 classes, and by default Java parses and verifies each of them at every start. Java can
store them, as they are in memory, in a class-data archive (200 MB), which later starts map. The archive is made once,
by a background process of low priority that runs a small session of its own (`class_training`); the session that starts
it runs as usual, and so do all that start before the archive is there.

Since version 25 Java calls such an archive an AOT cache. Older versions add to an archive of Java's own classes that
comes with most of them; without that there is none.

An archive can never make a run fail:

- It appears completely or not at all: it is written under another name, and renamed.
- Its name contains its size and checksum. One that was damaged since does not match, is removed, and made again. (Java
  does not check: it aborts if it is given half an archive.)
- Its name contains a digest of the Java, of Spark's jars and of what else is on the class path. If one of them changes,
  there is no archive of that name, and another is made. Java itself ignores an archive of other classes.
- Only one process makes it; the others go on without. If it cannot be made, the reason is noted, and no process tries
  again for a week.

`spark.penstock.classArchive=false`, or the environment variable PENSTOCK_CLASS_ARCHIVE=false, turns all of this off.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock.spark.runtime.cache import cache_directory
from penstock.spark.runtime.java import Java

SETTING = "spark.penstock.classArchive"
VARIABLE = "PENSTOCK_CLASS_ARCHIVE"
TRAINING = "PENSTOCK_CLASS_TRAINING"
"""In the environment of a session that an archive is made from: the file to write."""

ARCHIVE_IN_USE = re.compile(r"-XX:(?:SharedArchiveFile|AOTCache)=(\S+)")

UNUSED_DAYS = 14
"""Archives that no session has used for this long are removed."""

_LAYOUT = "1"  # incremented when the training or the options change
_AGAIN_S = 7 * 24 * 3600.0
_AOT_CACHES = 25  # since this version
# Java reports on stdout why it ignores an archive; it works as well without.
_QUIET, _QUIET_AOT = "-Xlog:cds*=off", "-Xlog:aot*=off"
_CHUNK_BYTES = 1 << 20
# What Spark's own scripts put on the class path of the driver, apart from the jars.
_ENVIRONMENT = ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
_SETTINGS = ("spark.driver.extraClassPath", "spark.driver.userClassPathFirst")

# Temporary files that may be gone before the archive is made; options that are not meant for its session.
_CALLER_VARIABLES = ("TMPDIR", "PENSTOCK_SPARK", "PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


class ClassArchive(NamedTuple):
    """The archive of one Java and one class path, which may not exist yet."""

    directory: str
    key: str

    @property
    def prefix(self) -> str:
        return os.path.join(self.directory, f"classes-{self.key}")

    @property
    def problem(self) -> str:
        """The file that says why there is none."""
        return f"{self.prefix}.failed"

    def file(self) -> str | None:
        """The archive, if it exists and is undamaged."""
        for path in glob.glob(f"{glob.escape(self.prefix)}-*.jsa"):
            with contextlib.suppress(OSError):  # removed by another process
                if os.path.basename(path) == self._name(*_checksum(path)):
                    os.utime(path)
                    return path
                os.unlink(path)
        return None

    def keep(self, written: str) -> str:
        """Give a complete archive its name."""
        path = os.path.join(self.directory, self._name(*_checksum(written)))
        os.replace(written, path)
        return path

    def failed_lately(self) -> bool:
        try:
            return time.time() - os.stat(self.problem).st_mtime < _AGAIN_S
        except OSError:
            return False

    def note_failure(self, reason: str) -> None:
        with open(self.problem, "w", encoding="utf-8") as file:
            file.write(f"{reason}\n")

    @contextlib.contextmanager
    def lock(self) -> Iterator[bool]:
        """Whether this process may make the archive: one does at a time."""
        with open(f"{self.prefix}.lock", "wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def _name(self, size: int, checksum: int) -> str:
        return f"classes-{self.key}-{size}-{checksum:08x}.jsa"


def wanted(config: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> bool:
    stated = config.get(SETTING) or environment.get(VARIABLE) or "true"
    return stated.strip().lower() not in ("false", "off", "0", "no")


def class_archive(
    java: Java, spark_home: str, config: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> ClassArchive | None:
    """The archive for this Java and this class path; None if there cannot be one."""
    directory = os.path.join(cache_directory(), "classes")
    if any(character.isspace() for character in directory):
        return None  # Spark would take the path for two options
    if java.major < _AOT_CACHES and not os.path.exists(_archive_of_java(java)):
        return None
    digest = hashlib.sha256(f"{_LAYOUT} {java.version}\n".encode())
    try:
        os.makedirs(directory, exist_ok=True)
        for path in (os.path.realpath(java.executable), *_jars(spark_home)):
            status = os.stat(path)
            digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    except OSError:
        return None
    for name in _ENVIRONMENT:
        digest.update(f"{name}={environment.get(name)}\n".encode())
    for name in _SETTINGS:
        digest.update(f"{name}={config.get(name)}\n".encode())
    return ClassArchive(directory, digest.hexdigest()[:16])


def archive_options(archive: ClassArchive, java: int) -> str | None:
    """The options that make Java of this version use the archive; None if there is none."""
    file = archive.file()
    if file is None:
        return None
    return f"-XX:AOTCache={file} {_QUIET_AOT}" if java >= _AOT_CACHES else f"-XX:SharedArchiveFile={file} {_QUIET}"


def training_options(file: str, java: int) -> str:
    """The options that make Java write what it has loaded to an archive when it exits."""
    if java >= _AOT_CACHES:
        return f"-XX:AOTCacheOutput={file} {_QUIET_AOT}"
    return f"-XX:ArchiveClassesAtExit={file} {_QUIET}"


def make_behind(archive: ClassArchive, config: Mapping[str, str]) -> None:
    """Start a process that makes the archive, unless there is one already. Nothing waits for it."""
    if archive.failed_lately():
        return
    with archive.lock() as ours:
        if not ours:
            return
    settings = {name: config[name] for name in _SETTINGS if name in config}
    environment = {name: value for name, value in os.environ.items() if name not in _CALLER_VARIABLES}
    with contextlib.suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", "penstock.spark.runtime.class_training", *archive, json.dumps(settings)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C is meant for the driver
        )


def remove_unused(directory: str) -> None:
    oldest = time.time() - UNUSED_DAYS * 86_400
    for path in glob.glob(os.path.join(glob.escape(directory), "classes-*")):
        with contextlib.suppress(OSError):
            if os.stat(path).st_mtime < oldest:
                os.unlink(path)


def _archive_of_java(java: Java) -> str:
    home = os.path.dirname(os.path.dirname(os.path.realpath(java.executable)))
    return os.path.join(home, "lib", "server", "classes.jsa")


def _jars(spark_home: str) -> list[str]:
    jars = os.path.join(os.path.realpath(spark_home), "jars")  # as Spark's scripts do
    return [os.path.join(jars, name) for name in sorted(os.listdir(jars))]


def _checksum(path: str) -> tuple[int, int]:
    """The size and the CRC of a file: for 200 MB in memory some hundredths of a second."""
    from crc32c import crc32c

    size, checksum = 0, 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            size += len(chunk)
            checksum = crc32c(chunk, checksum)
    return size, checksum
