"""What a session is set to: defaults, and what goes before them."""

from __future__ import annotations

import socket

import pytest

from penstock.local.ports import free_ports
from penstock.spark.runtime.defaults import JAVA_OPTIONS, is_local, is_master, session_defaults, with_defaults
from penstock.spark.runtime.errors import MasterUnreachable, NoSession
from penstock.spark.runtime.session import plan
from penstock.spark.runtime.worker_python import worker_python


def test_masters_are_told_apart() -> None:
    local = ["local", "local[*]", "local[4]", "local[4,3]", "local[*, 2]"]
    others = ["spark://a:7077", "spark://a:7077,b:7077", "yarn", "k8s://https://10.0.0.1:6443"]
    assert all(is_local(master) and is_master(master) for master in local)
    assert all(is_master(master) and not is_local(master) for master in others)
    assert not any(
        is_master(master) for master in ["", "locall", "local[0]", "local[x]", "sparky://a:1", "sc://a", "a:7077"]
    )


def test_what_the_caller_sets_goes_before_the_defaults() -> None:
    defaults = session_defaults("local[2]", java=17, quiet=True)
    config = with_defaults({"spark.ui.enabled": "true", "spark.sql.shuffle.partitions": "7"}, defaults)
    assert config["spark.ui.enabled"] == "true"
    assert config["spark.sql.shuffle.partitions"] == "7"
    assert config["spark.sql.python.filterPushdown.enabled"] == "true"


def test_java_options_are_joined_and_name_one_collector() -> None:
    defaults = session_defaults("local[2]", java=17, quiet=True)
    assert "-XX:+UseParallelGC" in with_defaults({}, defaults)[JAVA_OPTIONS]
    options = with_defaults({JAVA_OPTIONS: "-XX:+UseZGC -Dx=1"}, defaults)[JAVA_OPTIONS].split()
    assert [option for option in options if option.endswith("GC")] == ["-XX:+UseZGC"]
    assert options[-1] == "-Dx=1" and "-Djdk.lang.Process.launchMechanism=VFORK" in options


def test_a_cluster_keeps_the_defaults_that_suit_it() -> None:
    defaults = session_defaults("spark://10.0.0.7:7077", java=17, quiet=True)
    assert not {"spark.ui.enabled", "spark.sql.shuffle.partitions", "spark.driver.host"} & defaults.keys()
    assert session_defaults("spark://127.0.0.1:7077", java=17, quiet=True)["spark.driver.host"] == "127.0.0.1"


def test_a_newer_java_is_not_told_to_use_what_it_deprecates() -> None:
    assert "VFORK" not in session_defaults("local", java=25, quiet=True)[JAVA_OPTIONS]


@pytest.mark.parametrize("master", ["sparky://a:1", "spark://nowhere", "spark://a:b", "local[none]"])
def test_what_is_not_a_master_is_said_before_java_starts(master: str) -> None:
    with pytest.raises(NoSession) as caught:
        plan("x", {"spark.master": master})
    assert master in str(caught.value) and "\n" not in str(caught.value)


def test_a_master_that_does_not_answer_is_named() -> None:
    one, other = free_ports(2)
    with pytest.raises(MasterUnreachable) as caught:
        plan("x", {"spark.master": f"spark://127.0.0.1:{one},127.0.0.1:{other}"})
    assert f"127.0.0.1:{one}: Connection refused; 127.0.0.1:{other}: Connection refused" in str(caught.value)


def test_one_of_several_masters_is_enough() -> None:
    (closed,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as master:
        url = f"spark://127.0.0.1:{closed},127.0.0.1:{master.getsockname()[1]}"
        planned = plan("x", {"spark.master": url})
    assert planned.config["spark.master"] == url


def test_the_running_python_is_used_here_and_the_named_one_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert plan("x", {"spark.master": "local[1]"}).environment["PYSPARK_PYTHON"] == worker_python()
    assert plan("x", {"spark.master": "yarn"}).environment["PYSPARK_PYTHON"] == "/opt/python"


def test_rocksdb_gets_the_local_file_system_that_it_needs() -> None:
    defaults = session_defaults("local[2]", java=17, quiet=False)
    assert "Raw" in with_defaults({}, defaults)["spark.hadoop.fs.file.impl"]
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    config = with_defaults({"spark.sql.streaming.stateStore.providerClass": provider}, defaults)
    assert not any("Raw" in value for value in config.values())
