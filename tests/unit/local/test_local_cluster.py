"""How a local cluster is laid out, before anything of it runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.local.cluster import BadLayout, LocalCluster, plan_cluster
from penstock.local.properties import merge_properties
from penstock.settings.node import NodeSettings, parse_properties


def plan(directory: Path, brokers: int, **options: object) -> LocalCluster:
    ports = list(range(19_001, 19_001 + brokers))
    return plan_cluster(str(directory), host="127.0.0.1", ports=ports, **options)  # type: ignore[arg-type]


def written(cluster: LocalCluster) -> dict[str, NodeSettings]:
    """The settings each node would read, by the name of its directory."""
    found = {}
    for node in cluster.nodes:
        os.makedirs(node.directory, exist_ok=True)
        node.write_properties()
        text = Path(node.properties_path).read_text()
        found[os.path.basename(node.directory)] = NodeSettings.from_properties(parse_properties(text))
    return found


def pretend_formatted(cluster: LocalCluster, cluster_id: str) -> None:
    for node in cluster.nodes:
        os.makedirs(node.data_path, exist_ok=True)
        Path(node.data_path, "meta.properties").write_text(f"#\nnode.id={node.node_id}\ncluster.id={cluster_id}\n")


def test_one_broker_is_the_whole_cluster(tmp_path: Path) -> None:
    cluster = plan(tmp_path, 1)
    assert cluster.controllers == ()
    (settings,) = written(cluster).values()
    assert settings.process_roles == ("broker", "controller")
    assert settings.default_replication_factor == 1


@pytest.mark.parametrize(("brokers", "factor", "in_sync"), [(2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_several_brokers_have_three_controllers(tmp_path: Path, brokers: int, factor: int, in_sync: int) -> None:
    cluster = plan(tmp_path, brokers)
    settings = written(cluster)
    assert set(settings) == {f"node-{number}" for number in range(1, brokers + 1)} | {
        f"controller-{number}" for number in (1, 2, 3)
    }
    assert cluster.bootstrap == ",".join(f"127.0.0.1:{19_000 + number}" for number in range(1, brokers + 1))
    assert len({each.penstock_cluster_id for each in settings.values()}) == 1
    assert len({each.controller_quorum_voters for each in settings.values()}) == 1
    for number in (1, 2, 3):
        controller = settings[f"controller-{number}"]
        assert (controller.node_id, controller.process_roles) == (10_000 + number, ("controller",))
        voter = next(voter for voter in controller.quorum_voters if voter.node_id == controller.node_id)
        (endpoint,) = controller.controller_endpoints
        assert (voter.host, voter.port) == (endpoint.host, endpoint.port)
    for each in settings.values():
        assert each.default_replication_factor == factor
        assert each.properties["min.insync.replicas"] == str(in_sync)
        assert each.broker_rack is None


def test_a_second_start_finds_what_the_first_one_chose(tmp_path: Path) -> None:
    first = written(plan(tmp_path, 3))
    pretend_formatted(plan(tmp_path, 3), first["node-1"].penstock_cluster_id)
    second = written(plan(tmp_path, 4, controllers=5))
    for name, settings in first.items():
        assert second[name].controller_quorum_voters == settings.controller_quorum_voters
        assert second[name].penstock_cluster_id == settings.penstock_cluster_id
    assert second["node-4"].penstock_cluster_id == first["node-1"].penstock_cluster_id


def test_a_directory_stays_the_kind_of_cluster_it_is(tmp_path: Path) -> None:
    pretend_formatted(plan(tmp_path / "one", 1), "one")
    with pytest.raises(BadLayout, match="a cluster of one"):
        plan(tmp_path / "one", 3)
    pretend_formatted(plan(tmp_path / "three", 3), "three")
    with pytest.raises(BadLayout, match="--brokers 3 or more"):
        plan(tmp_path / "three", 1)


def test_defaults_give_way_to_the_file() -> None:
    assert merge_properties("a=1\n", {"b": "2"}, {"a": "9", "b": "9", "c": "3"}) == "a=1\nb=2\nc=3\n"
