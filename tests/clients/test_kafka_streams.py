"""Kafka Streams on our brokers, with its own group protocol (KIP-1071) and with the classic one.

The application counts words in windows and joins two streams, exactly once; its output must be what a plain computation
over its input says, whichever process dies meanwhile.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clients.drivers.java import class_path, dump_log_segments, run_tool
from clients.streams_application import CLASSIC, PROPERTIES, STREAMS, Application, random_input
from penstock.broker.coordinators.hashing import partition_for
from penstock.client.wire.admin import Admin
from penstock.testing.clusters import RunningCluster, start_cluster
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until

EXACTLY_ONCE = {"processing.guarantee": "exactly_once_v2", "num.stream.threads": "2"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    class_path()  # skips where there is no Java
    with start_node(tmp_path_factory.mktemp("streams") / "node", properties=PROPERTIES) as node:
        yield node


@pytest.fixture(scope="module")
def application(node: RunningNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    settings = {**STREAMS, **EXACTLY_ONCE}
    with closing(Application(node.bootstrap, "words", tmp_path_factory.mktemp("words"), settings)) as application:
        application.start()
        yield application


def wait_until_stable(node: RunningNode) -> None:
    """Two threads share the tasks."""

    def is_stable() -> bool:
        with Admin(node.bootstrap) as admin:
            group = admin.groups.find("words")
        return group is not None and group.state == "Stable" and len(group.members) == 2

    wait_until(is_stable, "two members in a stable group", seconds=120)


def test_the_output_is_what_a_plain_computation_says(application: Application, node: RunningNode) -> None:
    application.send(random_input(1, 300))
    application.wait_for_output()
    assert application.instances[0].errors == ""
    wait_until_stable(node)
    with Admin(node.bootstrap) as admin:
        (listed,) = [group for group in admin.groups.list() if group.group_id == "words"]
        assert (listed.type, listed.protocol_type, listed.state) == ("streams", "streams", "Stable")
        (group,) = admin.groups.describe(["words"])
        assert {partition.topic for member in group.members for partition in member.assignment} >= {
            "words-lines",
            "words-orders",
            "words-payments",
        }
        assert sum(each.lag or 0 for each in admin.groups.lag("words") if "repartition" not in each.topic) == 0
        internal = {
            topic.name: topic for topic in admin.topics.list() if re.search(r"-(changelog|repartition)$", topic.name)
        }
        assert {len(topic.partitions) for topic in internal.values()} == {3}
        assert len(internal) == 4


@pytest.mark.soak
def test_kafkas_tools_read_the_group(application: Application, node: RunningNode) -> None:
    def tool(*arguments: str) -> str:
        command = "streams.StreamsGroupCommand"
        outcome = run_tool(command, "--bootstrap-server", node.bootstrap, "--group", "words", *arguments)
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
        return outcome.stdout

    wait_until_stable(node)
    assert re.search(r"words .*Stable +2", tool("--describe", "--state"))
    assert len(re.findall(r"^words .*ACTIVE", tool("--describe", "--members"), re.MULTILINE)) == 2
    partition = partition_for("words", 5)
    folder = os.path.join(node.data_directory, f"__consumer_offsets-{partition}")
    (log, *_) = sorted(glob.glob(os.path.join(folder, "*.log")))
    dumped = dump_log_segments("--offsets-decoder", "--files", log)
    assert dumped.returncode == 0, dumped.stderr
    types = set(re.findall(r'"type":"?(\d+)', dumped.stdout))
    assert {"17", "19", "20", "21", "22", "23"} <= types, dumped.stdout[-2000:]


def coordinator(cluster: RunningCluster, group: str) -> RunningNode:
    return cluster.leader_of("__consumer_offsets", partition_for(group, 5))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("protocol", "settings"), [("streams", STREAMS), ("classic", CLASSIC)], ids=["streams", "classic"]
)
def test_instances_and_brokers_are_killed(tmp_path: Path, protocol: str, settings: dict[str, str]) -> None:
    class_path()  # skips where there is no Java
    name = f"killed-{protocol}"
    with (
        start_cluster(tmp_path / "cluster", brokers=3, properties=PROPERTIES) as cluster,
        closing(
            Application(cluster.bootstrap, name, tmp_path / "instances", {**settings, **EXACTLY_ONCE})
        ) as application,
    ):
        first = application.start()
        second = application.start()
        application.send(random_input(1, 500))
        first.wait_running()
        second.wait_running()
        application.wait_for_output()
        application.send(random_input(2, 500))
        first.kill()
        application.send(random_input(3, 500))
        application.start()
        application.wait_for_output()
        cluster.wait_for_isr("__consumer_offsets")
        killed = coordinator(cluster, name)
        application.send(random_input(4, 500))
        killed.kill()
        application.send(random_input(5, 500))
        cluster.wait_until(lambda: coordinator(cluster, name).node_id != killed.node_id, "another coordinator")
        application.wait_for_output()
        killed.start()
        application.send(random_input(6, 500))
        application.wait_for_output()

        with cluster.admin() as admin:
            wait_until(lambda: admin.groups.describe([name])[0].state == "Stable", "a stable group", seconds=120)
            assert admin.groups.describe([name])[0].type == protocol
