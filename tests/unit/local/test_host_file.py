"""The file of `penstock host`, and the one metrics page of its brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.local.host import BadHostFile, HostFile, parse_host_file, plan_host, read_host_file
from penstock.local.host_metrics import joined
from penstock.settings.node import NodeSettings, parse_properties

SETTINGS = {"controller.quorum.voters": "1@alpha:9093", "penstock.cluster.id": "4L6g3nShT-eMCtK--X86sw"}
CONTENT: dict[str, Any] = {
    "name": "alpha",
    "brokers": 4,
    "first-id": 101,
    "port": 9092,
    "directory": "/var/lib/penstock",
    "settings": SETTINGS,
}


def parse(**changes: Any) -> HostFile:
    content = {**CONTENT, **{name.replace("_", "-"): value for name, value in changes.items()}}
    return parse_host_file({name: value for name, value in content.items() if value is not None}, [0, 1, 2, 5])


def test_ids_ports_and_directories_follow_from_the_first() -> None:
    nodes = plan_host(
        parse(rack="zone-a", controller={"id": 1, "port": 9100}, node={"103": {"log.retention.hours": 24}})
    )
    assert [(node.node_id, node.port, node.roles) for node in nodes] == [
        (1, 9100, "controller"),
        (101, 9092, "broker"),
        (102, 9093, "broker"),
        (103, 9094, "broker"),
        (104, 9095, "broker"),
    ]
    broker = nodes[3]
    assert broker.directory == "/var/lib/penstock/broker-103"
    assert broker.properties["advertised.listeners"] == "PLAINTEXT://alpha:9094"
    assert broker.properties["listeners"] == "PLAINTEXT://0.0.0.0:9094"
    assert broker.properties["broker.rack"] == "zone-a"
    assert broker.properties["log.retention.hours"] == "24"
    assert broker.checked_at == ("127.0.0.1", 9094)
    assert "log.retention.hours" not in nodes[1].properties
    assert nodes[0].properties["controller.quorum.voters"] == SETTINGS["controller.quorum.voters"]


def test_a_setting_that_is_removed_from_the_file_is_gone(tmp_path: Path) -> None:
    for more, expected in (({"log.retention.hours": 24}, True), ({}, False)):
        node = plan_host(parse(directory=str(tmp_path), settings={**SETTINGS, **more}))[0]
        Path(node.directory).mkdir(exist_ok=True)
        node.write_properties()
        written = NodeSettings.from_properties(parse_properties(Path(node.properties_path).read_text()))
        assert (written.node_id, written.broker_rack) == (101, None)
        assert (written.properties.get("log.retention.hours") == "24") is expected


@pytest.mark.parametrize(
    ("disks", "shares"),
    [
        (["/d1", "/d2"], [["/d1"], ["/d2"], ["/d1"], ["/d2"]]),
        (["/d1", "/d2", "/d3", "/d4", "/d5"], [["/d1", "/d5"], ["/d2"], ["/d3"], ["/d4"]]),
    ],
)
def test_disks_are_shared_out(disks: list[str], shares: list[list[str]]) -> None:
    nodes = plan_host(parse(disks=disks))
    assert [node.properties["log.dirs"] for node in nodes] == [
        ",".join(f"{disk}/broker-{101 + index}" for disk in share) for index, share in enumerate(shares)
    ]


@pytest.mark.parametrize(
    ("pin", "cores"),
    [(True, [(0,), (1,), (2,), (5,)]), (False, [(), (), (), ()]), ([5, 2], [(5,), (2,), (5,), (2,)])],
)
def test_brokers_are_pinned_if_asked(pin: object, cores: list[tuple[int, ...]]) -> None:
    assert [node.cores for node in plan_host(parse(pin=pin))] == cores


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": None}, "name is missing"),
        ({"brokers": "many"}, "brokers is a number"),
        ({"brokers": 0}, "from 1 to 1000"),
        ({"brokres": 3}, "brokres is not a name"),
        ({"controller": {"id": 1}}, "controller.port is missing"),
        ({"controller": {"id": 102, "port": 9500}}, "controller.id 102 is also that of a broker"),
        ({"controller": {"id": 1, "port": 9095}}, "controller.port 9095 is also that of a broker"),
        ({"metrics": "9404"}, None),
        ({"metrics": "here"}, "is not an address"),
        ({"metrics": "127.0.0.1:9093"}, "also that of a node"),
        ({"pin": [7]}, "core 7"),
        ({"pin": "yes"}, "pin is true, false"),
        ({"settings": {}}, "controller.quorum.voters"),
        ({"settings": {**SETTINGS, "node.id": 5}}, "node.id follows from the other lines"),
        ({"settings": {**SETTINGS, "log": {"retention": {"hours": 1}}}}, "in quotes"),
        ({"node": {"200": {}}}, "no node of this file"),
        ({"node": {"first": {}}}, "not the table of a node"),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert parse(**changes).metrics == ("0.0.0.0", 9404)
        return
    with pytest.raises(BadHostFile, match=message):
        parse(**changes)


def test_a_file_that_is_not_toml(tmp_path: Path) -> None:
    path = tmp_path / "host.toml"
    path.write_text("name = alpha\n")
    with pytest.raises(BadHostFile, match=r"host\.toml: not a TOML file"):
        read_host_file(str(path), [0])
    with pytest.raises(BadHostFile, match="No such file"):
        read_host_file(str(tmp_path / "none.toml"), [0])


PAGE = """\
# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{api="Fetch",text="a } b, \\"c\\""} 5
requests_total{api="Produce"} 7
# HELP loop_seconds Waits of the loop.
# TYPE loop_seconds histogram
loop_seconds_bucket{le="0.1"} 3
loop_seconds_bucket{le="+Inf"} 4
loop_seconds_count 4
loop_seconds_sum 0.5
"""


def test_one_page_has_the_samples_of_all_brokers() -> None:
    families = {
        family.name: family for family in text_string_to_metric_families(joined({101: PAGE, 102: PAGE, 103: None}))
    }
    up = {sample.labels["node"]: sample.value for sample in families["penstock_host_node_up"].samples}
    assert up == {"101": 1, "102": 1, "103": 0}
    requests = [(sample.labels["node"], sample.labels["api"], sample.value) for sample in families["requests"].samples]
    assert requests == [("101", "Fetch", 5), ("101", "Produce", 7), ("102", "Fetch", 5), ("102", "Produce", 7)]
    assert families["requests"].samples[0].labels["text"] == 'a } b, "c"'
    assert families["loop_seconds"].type == "histogram"
    assert len(families["loop_seconds"].samples) == 8
