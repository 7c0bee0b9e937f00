"""docs/spark.md does what it says: its programs run one after the other in this process, as cells of a notebook do."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from documentation import blocks_of, check_output, run_console
from penstock.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.fixture
def fresh_cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1) as cluster:
        yield cluster


def test_examples_run_as_printed(
    spark: SparkSession, fresh_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.session", lambda *_: spark)  # another could not start beside it
    bootstrap = fresh_cluster.bootstrap
    environment = {
        **os.environ,
        "PENSTOCK_BOOTSTRAP": bootstrap,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)

    names: dict[str, object] = {}
    printed = ""
    for language, block in blocks_of(PAGE):
        if language == "console":
            run_console(block, run)
        elif language == "python":
            program = block.replace("127.0.0.1:9092", bootstrap).replace("checkpoints/", f"{tmp_path}/")
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(program, names)
            printed = output.getvalue()
        elif language == "text":
            check_output(block, printed, "the program before")
