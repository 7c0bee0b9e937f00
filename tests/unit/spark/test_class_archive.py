"""The archive of Java's classes: when it is used, when it is made again, and that nothing about it is an error."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.spark.runtime.class_archive import ClassArchive, archive_options, class_archive, make_behind, wanted
from penstock.spark.runtime.defaults import JAVA_OPTIONS
from penstock.spark.runtime.java import Java
from penstock.spark.runtime.session import plan


@pytest.fixture
def archive(tmp_path: Path) -> ClassArchive:
    return ClassArchive(str(tmp_path), "key")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that would have been started."""
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: commands.append(command))
    return commands


def kept(archive: ClassArchive, content: bytes) -> str:
    written = os.path.join(archive.directory, "written")
    Path(written).write_bytes(content)
    return archive.keep(written)


def test_an_archive_is_used_once_it_is_complete(archive: ClassArchive) -> None:
    assert archive_options(archive, 17) is None
    (Path(archive.directory) / ".training" / "classes.jsa").parent.mkdir()
    (Path(archive.directory) / ".training" / "classes.jsa").write_bytes(b"half of it")
    assert archive_options(archive, 17) is None

    file = kept(archive, b"classes")

    assert f"-XX:SharedArchiveFile={file} " in (archive_options(archive, 17) or "")
    assert f"-XX:AOTCache={file} " in (archive_options(archive, 25) or "")
    assert ClassArchive(archive.directory, "other").file() is None


@pytest.mark.parametrize("damage", [b"", b"class", b"clXsses", b"classes and more"])
def test_a_damaged_archive_is_removed(archive: ClassArchive, damage: bytes) -> None:
    file = kept(archive, b"classes")
    Path(file).write_bytes(damage)

    assert archive.file() is None
    assert not os.path.exists(file)
    assert archive.file() is None


def test_another_java_spark_or_class_path_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    (jars / "spark.jar").write_bytes(b"1")
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    (tmp_path / "jdk" / "bin" / "java").write_bytes(b"")
    java = Java(str(tmp_path / "jdk" / "bin" / "java"), "17.0.15", "PATH")
    assert class_archive(java, str(tmp_path / "spark"), {}, {}) is None
    assert class_archive(replace(java, version="25.0.2"), str(tmp_path / "spark"), {}, {}) is not None
    (tmp_path / "jdk" / "lib" / "server").mkdir(parents=True)
    (tmp_path / "jdk" / "lib" / "server" / "classes.jsa").write_bytes(b"")

    def key(java: Java = java, config: dict[str, str] | None = None, **environment: str) -> str:
        found = class_archive(java, str(tmp_path / "spark"), config or {}, environment)
        assert found is not None
        return found.key

    first = key()
    assert key(config={"spark.sql.shuffle.partitions": "7"}) == first
    others = [
        key(replace(java, version="21.0.1")),
        key(config={"spark.driver.extraClassPath": "/a.jar"}),
        key(HADOOP_CONF_DIR="/etc/hadoop"),
    ]
    (jars / "more.jar").write_bytes(b"")
    others.append(key())
    (jars / "spark.jar").write_bytes(b"22")
    others.append(key())
    assert len({first, *others}) == 6
    assert class_archive(java, str(tmp_path / "no-spark"), {}, {}) is None


def test_one_process_makes_it_and_a_failure_is_not_repeated_at_once(
    archive: ClassArchive, started: list[list[str]]
) -> None:
    with archive.lock() as ours:
        assert ours
        make_behind(archive, {})
        assert not started
    make_behind(archive, {"spark.driver.extraClassPath": "/a.jar", "spark.app.name": "x"})
    assert [command[-3:] for command in started] == [
        [archive.directory, "key", '{"spark.driver.extraClassPath": "/a.jar"}']
    ]

    archive.note_failure("no space left")
    make_behind(archive, {})
    assert len(started) == 1
    os.utime(archive.problem, (0, time.time() - 8 * 86_400))
    make_behind(archive, {})
    assert len(started) == 2


def test_it_can_be_turned_off() -> None:
    assert wanted({}, {})
    assert not wanted({}, {"PENSTOCK_CLASS_ARCHIVE": "false"})
    assert not wanted({"spark.penstock.classArchive": "false"}, {})
    assert wanted({"spark.penstock.classArchive": "true"}, {"PENSTOCK_CLASS_ARCHIVE": "off"})


def test_a_session_uses_the_archive_or_has_it_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PENSTOCK_CLASS_ARCHIVE", raising=False)

    first = plan("a", {})
    assert first.classes is not None
    assert "SharedArchiveFile" not in first.config[JAVA_OPTIONS]

    file = kept(first.classes, b"classes")
    second = plan("a", {JAVA_OPTIONS: "-Dx=y"})
    assert second.classes is None
    assert f"-XX:SharedArchiveFile={file}" in second.config[JAVA_OPTIONS]
    assert second.config[JAVA_OPTIONS].endswith("-Dx=y")

    for config in ({"spark.penstock.classArchive": "false"}, {JAVA_OPTIONS: "-Xshare:off"}):
        off = plan("a", config)
        assert off.classes is None
        assert file not in off.config[JAVA_OPTIONS]
